/** Text as it comes, up to one of some signs; what may be the beginning of a sign is held back. */
export class HeldText {
  readonly #signs: readonly string[];
  #held = "";
  #isFound = false;

  constructor(signs: readonly string[]) {
    this.#signs = signs;
  }

  /** The text that was held back; if a sign has come, the text from the sign on. */
  get rest(): string {
    return this.#held;
  }

  /** The text that was held back, unless a sign has come. */
  end(): string {
    return this.#isFound ? "" : this.#held;
  }

  /** Takes more text, and gives what certainly stands before every sign. */
  push(text: string): string {
    this.#held += text;
    if (this.#isFound) return "";
    const found = firstOf(this.#signs, this.#held);
    this.#isFound = found !== undefined;
    const certain = found?.start ?? this.#held.length - beginningOf(this.#signs, this.#held);
    const given = this.#held.slice(0, certain);
    this.#held = this.#held.slice(certain);
    return given;
  }
}

/** The first of some signs in a text. */
export function firstOf(
  signs: readonly string[],
  text: string,
): { readonly sign: string; readonly start: number } | undefined {
  const found = signs
    .map((sign) => ({ sign, start: text.indexOf(sign) }))
    .filter(({ start }) => start !== -1);
  return found.sort((a, b) => a.start - b.start)[0];
}

/** How much of the end of a text may be the beginning of a sign. */
export function beginningOf(signs: readonly string[], text: string): number {
  const longest = Math.max(0, ...signs.map((sign) => sign.length));
  for (let length = Math.min(longest - 1, text.length); length > 0; length--) {
    if (signs.some((sign) => sign.length > length && text.endsWith(sign.slice(0, length)))) return length;
  }
  return 0;
}
