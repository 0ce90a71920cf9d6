import { DecodeStream } from "./decode-stream.js";
import type { TextTokenizer } from "./text-tokenizer.js";

/**
 * The text of one sample as its tokens come, without special tokens and up to the stop text that ends it: what may be
 * the beginning of a stop text is held back until that is settled.
 */
export class SampleText {
  readonly #decoder: DecodeStream;
  readonly #stops: readonly string[];
  #held = "";

  constructor(tokenizer: TextTokenizer, stops: readonly string[]) {
    this.#decoder = new DecodeStream(tokenizer, { skipSpecialTokens: true });
    this.#stops = stops;
  }

  /** The text that is certain now and was not before; `stopReason` comes with the last token. */
  push(token: number, stopReason?: string): string {
    this.#held += this.#decoder.push(token);
    if (stopReason === undefined) return this.#give(this.#held.length - beginningOf(this.#stops, this.#held));
    this.#held += this.#decoder.end();
    return this.#give(stopReason === "length" ? this.#held.length : endOf(this.#held, this.#stops));
  }

  #give(length: number): string {
    const text = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    return text;
  }
}

/** Where the first stop text begins; the length of a text that has none. */
function endOf(text: string, stops: readonly string[]): number {
  const starts = stops.map((stop) => text.indexOf(stop)).filter((start) => start !== -1);
  return Math.min(text.length, ...starts);
}

/** How much of the end of a text may be the beginning of a sign. */
export function beginningOf(signs: readonly string[], text: string): number {
  const longest = Math.max(0, ...signs.map((sign) => sign.length));
  for (let length = Math.min(longest - 1, text.length); length > 0; length--) {
    if (signs.some((sign) => sign.length > length && text.endsWith(sign.slice(0, length)))) return length;
  }
  return 0;
}
