/** Turns tokens into text. */
export type Decode = (tokens: number[]) => string;

/** Decides after each token whether a sample is finished. */
export class StopCondition {
  readonly #tokens: Set<number>;
  readonly #strings: string[];
  readonly #decode: Decode | undefined;
  readonly #longest: number;

  constructor(tokens: number[], strings: string[], decode: Decode | undefined) {
    this.#tokens = new Set(tokens);
    this.#strings = strings.filter((text) => text.length > 0);
    this.#decode = decode;
    this.#longest = Math.max(0, ...this.#strings.map((text) => text.length));
  }

  /** `tokens` are all tokens generated so far; only what the newest one may have completed is looked at. */
  reached(tokens: number[]): boolean {
    const newest = tokens.at(-1);
    if (newest === undefined) return false;
    if (this.#tokens.has(newest)) return true;
    if (this.#strings.length === 0 || !this.#decode) return false;
    // A token may decode to nothing (part of a character), so the window grows until it is surely long enough.
    for (let window = this.#longest + 4; ; window *= 2) {
      const text = this.#decode(tokens.slice(-window));
      if (this.#strings.some((stop) => text.includes(stop))) return true;
      if (window >= tokens.length || text.length > 2 * this.#longest) return false;
    }
  }
}
