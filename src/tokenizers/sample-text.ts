import { DecodeStream } from "./decode-stream.js";
import { HeldText } from "./held-text.js";
import type { TextTokenizer } from "./text-tokenizer.js";

/**
 * The text of one sample as its tokens come, without special tokens and up to the stop text that ends it: what may be
 * the beginning of a stop text is held back until that is settled.
 */
export class SampleText {
  readonly #decoder: DecodeStream;
  readonly #text: HeldText;

  constructor(tokenizer: TextTokenizer, stops: readonly string[]) {
    this.#decoder = new DecodeStream(tokenizer, { skipSpecialTokens: true });
    this.#text = new HeldText(stops);
  }

  /** The text that is certain now and was not before; `stopReason` comes with the last token. */
  push(token: number, stopReason?: string): string {
    const text = this.#text.push(this.#decoder.push(token));
    return stopReason === undefined ? text : text + this.#text.push(this.#decoder.end()) + this.#text.end();
  }
}
