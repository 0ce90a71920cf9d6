import { DecodeStream, type TextTokenizer } from "../../tokenizers/index.js";
import type { Message } from "./messages.js";
import type { ParsedResponse, ParseTermination } from "./renderer.js";

const THINK_OPEN = "<think>";
const THINK_CLOSE = "</think>";

/** One piece of an answer as it comes. `contentIndex` rises at each change between text and thoughts. */
export type MessageDelta =
  | { readonly type: "header"; readonly role: string }
  | { readonly type: "text"; readonly text: string; readonly contentIndex: number }
  | { readonly type: "thinking"; readonly thinking: string; readonly contentIndex: number }
  | { readonly type: "message"; readonly message: Message; readonly termination: ParseTermination };

/** Turns the tokens of an answer into text and thoughts while they come; half characters and half tags are held back. */
export class StreamParser {
  readonly #parts: {
    readonly tokenizer: TextTokenizer;
    readonly endTokens: readonly number[];
    readonly prefix: string;
    readonly parse: (tokens: readonly number[]) => ParsedResponse;
  };
  readonly #decoder: DecodeStream;
  readonly #tokens: number[] = [];
  /** Text that is decoded and not yet given. */
  #held = "";
  #prefixIsSettled: boolean;
  #isThinking = false;
  #contentIndex = 0;
  #hasHeader = false;
  #hasEnded = false;

  constructor(parts: {
    readonly tokenizer: TextTokenizer;
    /** Tokens that end the answer. */
    readonly endTokens: readonly number[];
    /** What the prompt wrote of the answer: text that belongs before the first token, unless the model repeats it. */
    readonly prefix: string;
    readonly parse: (tokens: readonly number[]) => ParsedResponse;
  }) {
    this.#parts = parts;
    this.#decoder = new DecodeStream(parts.tokenizer);
    this.#prefixIsSettled = parts.prefix === "";
  }

  /** Takes the next token or tokens and gives what is certain now. */
  push(tokens: number | ArrayLike<number>): readonly MessageDelta[] {
    const deltas: MessageDelta[] = [];
    for (const token of typeof tokens === "number" ? [tokens] : Array.from(tokens)) {
      if (this.#hasEnded) break;
      this.#tokens.push(token);
      if (this.#parts.endTokens.includes(token)) {
        this.#hasEnded = true;
        break;
      }
      const text = this.#decoder.push(token);
      if (text === "") continue;
      this.#held += text;
      this.#giveHeader(deltas);
      this.#give(deltas);
    }
    return deltas;
  }

  /** After the last token: what was held back, and the whole message. */
  end(): readonly MessageDelta[] {
    const deltas: MessageDelta[] = [];
    this.#held += this.#decoder.end();
    this.#giveHeader(deltas);
    this.#settlePrefix(true);
    this.#give(deltas);
    this.#giveText(this.#held, deltas);
    this.#held = "";
    deltas.push({ type: "message", ...this.#parts.parse(this.#tokens) });
    return deltas;
  }

  #giveHeader(deltas: MessageDelta[]): void {
    if (this.#hasHeader) return;
    this.#hasHeader = true;
    deltas.push({ type: "header", role: "assistant" });
  }

  /** Gives all that no tag can begin in. */
  #give(deltas: MessageDelta[]): void {
    if (!this.#settlePrefix(false)) return;
    for (;;) {
      const tag = this.#isThinking ? THINK_CLOSE : THINK_OPEN;
      const start = this.#held.indexOf(tag);
      if (start === -1) {
        const certain = this.#held.length - beginningOf(tag, this.#held);
        this.#giveText(this.#held.slice(0, certain), deltas);
        this.#held = this.#held.slice(certain);
        return;
      }
      this.#giveText(this.#held.slice(0, start), deltas);
      this.#held = this.#held.slice(start + tag.length);
      this.#isThinking = !this.#isThinking;
      this.#contentIndex++;
    }
  }

  #giveText(text: string, deltas: MessageDelta[]): void {
    if (text === "") return;
    const contentIndex = this.#contentIndex;
    deltas.push(
      this.#isThinking
        ? { type: "thinking", thinking: text, contentIndex }
        : { type: "text", text, contentIndex },
    );
  }

  /** Puts the prefix back as soon as it is certain that the model does not repeat it. */
  #settlePrefix(isEnd: boolean): boolean {
    if (this.#prefixIsSettled) return true;
    if (!isEnd && THINK_OPEN.startsWith(this.#held)) return false;
    if (!this.#held.startsWith(THINK_OPEN)) this.#held = this.#parts.prefix + this.#held;
    this.#prefixIsSettled = true;
    return true;
  }
}

/** How much of the end of a text may be the beginning of a tag. */
function beginningOf(tag: string, text: string): number {
  for (let length = Math.min(tag.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(tag.slice(0, length))) return length;
  }
  return 0;
}
