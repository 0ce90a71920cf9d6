import type { DecodeOptions, TextTokenizer } from "./text-tokenizer.js";

/** Stands for a character whose bytes are incomplete. */
const UNFINISHED = "\uFFFD";
const MAX_WINDOW = 16;

/** Text of tokens as they come; a character whose bytes lie in several tokens is given when it is whole. */
export class DecodeStream {
  readonly #tokenizer: TextTokenizer;
  readonly #options: DecodeOptions;
  /** The last tokens, whose text is known up to `#given`: what a token reads as may depend on those before it. */
  #window: number[] = [];
  #given = 0;

  constructor(tokenizer: TextTokenizer, options: DecodeOptions = {}) {
    this.#tokenizer = tokenizer;
    this.#options = options;
  }

  /** Takes the next token or tokens, and returns the text that is certain now and was not before. */
  push(tokens: number | ArrayLike<number>): string {
    if (typeof tokens === "number") this.#window.push(tokens);
    else for (let index = 0; index < tokens.length; index++) this.#window.push(tokens[index]!);
    const text = this.#decode(this.#window);
    const certain = text.endsWith(UNFINISHED) ? text.length - UNFINISHED.length : text.length;
    const fresh = text.slice(this.#given, certain);
    this.#given = Math.max(this.#given, certain);
    if (certain === text.length) this.#shorten();
    return fresh;
  }

  /** Returns text held back because the tokens ended within a character. The stream can be reused afterwards. */
  end(): string {
    const rest = this.#decode(this.#window).slice(this.#given);
    this.#window = [];
    this.#given = 0;
    return rest;
  }

  #decode(tokens: readonly number[]): string {
    return this.#tokenizer.decode(tokens, this.#options);
  }

  #shorten(): void {
    if (this.#window.length <= MAX_WINDOW) return;
    const last = this.#window.slice(-MAX_WINDOW / 2);
    const text = this.#decode(last);
    // Without text of its own it would not tell a first token from a later one.
    if (text === "" || text.endsWith(UNFINISHED)) return;
    this.#window = last;
    this.#given = text.length;
  }
}
