/** A piece of markup: text of the format, in which signs are control tokens, or plain text, in which they are not. */
interface Stretch {
  readonly text: string;
  readonly isPlain: boolean;
}

/** Text with a format's own signs, and plain text, in which a typed sign is only text. */
export class Markup {
  readonly stretches: readonly Stretch[];

  constructor(stretches: readonly Stretch[]) {
    this.stretches = stretches;
  }

  get isEmpty(): boolean {
    return this.stretches.every(({ text }) => text === "");
  }

  /** Equal for markup that is encoded to the same tokens. */
  get key(): string {
    return this.stretches.map(({ text, isPlain }) => (isPlain ? "\u0001" : "\u0002") + text).join("");
  }

  /** The markup without its last character. */
  withoutLast(): Markup {
    const last = this.stretches.at(-1)!;
    return new Markup([...this.stretches.slice(0, -1), { ...last, text: last.text.slice(0, -1) }]);
  }

  /** The markup behind a beginning; undefined if it does not begin so. */
  behind(beginning: string): Markup | undefined {
    if (!this.toString().startsWith(beginning)) return undefined;
    let rest = beginning.length;
    const stretches = this.stretches.flatMap((stretch) => {
      const text = stretch.text.slice(rest);
      rest = Math.max(0, rest - stretch.text.length);
      return text === "" ? [] : [{ ...stretch, text }];
    });
    return new Markup(stretches);
  }

  /** The text as a model reads it. */
  toString(): string {
    return this.stretches.map(({ text }) => text).join("");
  }
}

/** Markup of the format; strings that stand in braces are plain text, and markup in braces stays markup. */
export function markup(literals: TemplateStringsArray, ...values: readonly (string | Markup)[]): Markup {
  const stretches: Stretch[] = [];
  for (const [index, text] of literals.entries()) {
    if (text !== "") stretches.push({ text, isPlain: false });
    const value = values[index];
    if (typeof value === "string") stretches.push({ text: value, isPlain: true });
    else if (value !== undefined) stretches.push(...value.stretches);
  }
  return new Markup(stretches);
}

/** Text that the format itself writes. */
export function formatText(text: string): Markup {
  return new Markup(text === "" ? [] : [{ text, isPlain: false }]);
}

/** One after the other, with text of the format between them. */
export function joinMarkup(parts: readonly (string | Markup)[], separator = ""): Markup {
  return new Markup(
    parts.flatMap((part, index) => [
      ...(index > 0 && separator !== "" ? [{ text: separator, isPlain: false }] : []),
      ...(typeof part === "string" ? [{ text: part, isPlain: true }] : part.stretches),
    ]),
  );
}

/** Plain text in which phrases of the format are found, such as those of a declaration of tools. */
export function withPhrases(text: string, phrases: readonly string[]): Markup {
  const phrase = phrases.find((each) => text.includes(each));
  if (phrase === undefined) return markup`${text}`;
  const start = text.indexOf(phrase);
  return markup`${text.slice(0, start)}${formatText(phrase)}${text.slice(start + phrase.length)}`;
}

/** The shape of signs in all formats; only the tokenizer knows whether one is a control token. */
const SIGN = /<[|｜][^<>|｜]*[|｜]>|<\/?[a-z_]+>|\[gMASK\]|｜DSML｜/g;

/** The tokens of markup: text is encoded from one control token to the next, also across pieces of markup and typed text. */
export function encodeMarkup(
  { stretches }: Markup,
  tokenOf: (sign: string) => number | undefined,
  encodePlain: (text: string) => readonly number[],
): readonly number[] {
  const tokens: number[] = [];
  let run = "";
  const flush = () => {
    if (run !== "") for (const token of encodePlain(run)) tokens.push(token);
    run = "";
  };
  for (const { text, isPlain } of stretches) {
    let start = 0;
    for (const match of isPlain ? [] : text.matchAll(SIGN)) {
      const token = tokenOf(match[0]);
      if (token === undefined) continue;
      run += text.slice(start, match.index);
      flush();
      tokens.push(token);
      start = match.index + match[0].length;
    }
    run += text.slice(start);
  }
  flush();
  return tokens;
}
