import { beginningOf, firstOf } from "../tokenizers/held-text.js";
import { DecodeStream, type TextTokenizer } from "../tokenizers/index.js";
import type { Message } from "./messages.js";
import type { ParsedResponse, ParseTermination } from "./renderer.js";

const THINK_OPEN = "<think>";
const THINK_CLOSE = "</think>";

/** Kind of a part of an answer; signs of the format that are neither text nor thoughts are hidden. */
type StretchKind = "text" | "thinking" | "hidden";

/** Signs by which a format separates text from thoughts. */
export interface StreamFormat {
  readonly first: StretchKind;
  /** The signs that may end a stretch. */
  readonly ends: Readonly<Record<StretchKind, readonly string[]>>;
  /** Returns the kind of the stretch after one that ended with a sign. */
  readonly after: (kind: StretchKind, sign: string, stretch: string) => StretchKind;
}

const THINK_TAGS: StreamFormat = {
  first: "text",
  ends: { text: [THINK_OPEN], thinking: [THINK_CLOSE], hidden: [] },
  after: (kind) => (kind === "text" ? "thinking" : "text"),
};

/** One piece of an answer as it comes. `contentIndex` rises at each change between text and thoughts. */
export type MessageDelta =
  | { readonly type: "header"; readonly role: string }
  | { readonly type: "text"; readonly text: string; readonly contentIndex: number }
  | { readonly type: "thinking"; readonly thinking: string; readonly contentIndex: number }
  | { readonly type: "message"; readonly message: Message; readonly termination: ParseTermination };

/** How a stream of one answer is read. */
interface StreamParserParts {
  readonly tokenizer: TextTokenizer;
  /** Tokens that end the answer. */
  readonly endTokens: readonly number[];
  /** Texts that end the answer. */
  readonly endTexts: readonly string[];
  /** Beginning of the answer that the prompt wrote: text that belongs before the first token, unless the model repeats it. */
  readonly prefix: string;
  /** One character that the format writes before an answer and that is not part of it. */
  readonly padding?: string | undefined;
  readonly parse: (tokens: readonly number[]) => ParsedResponse;
  /** Default: thoughts stand between `<think>` and `</think>`. */
  readonly format?: StreamFormat | undefined;
}

/** Turns the tokens of an answer into text and thoughts while they come; half characters and half tags are held back. */
export class StreamParser {
  readonly #parts: StreamParserParts;
  readonly #decoder: DecodeStream;
  readonly #tokens: number[] = [];
  /** Decoded text that was not returned yet. */
  #held = "";
  #prefixIsSettled: boolean;
  readonly #format: StreamFormat;
  #kind: StretchKind;
  #contentIndex = 0;
  #hasText = false;
  #hasHeader = false;
  #hasEnded = false;
  #isCut = false;

  constructor(parts: StreamParserParts) {
    this.#parts = parts;
    this.#format = parts.format ?? THINK_TAGS;
    this.#kind = this.#format.first;
    this.#decoder = new DecodeStream(parts.tokenizer);
    this.#prefixIsSettled = parts.prefix === "";
  }

  /** Takes the next tokens and returns the pieces that are certain now. */
  push(tokens: number | ArrayLike<number>): readonly MessageDelta[] {
    const deltas: MessageDelta[] = [];
    for (const token of typeof tokens === "number" ? [tokens] : Array.from(tokens)) {
      if (this.#hasEnded || this.#isCut) break;
      this.#tokens.push(token);
      if (this.#parts.endTokens.includes(token)) {
        this.#hasEnded = true;
        break;
      }
      const text = this.#decoder.push(token);
      if (text === "") continue;
      this.#hold(text);
      this.#giveHeader(deltas);
      this.#give(deltas);
    }
    return deltas;
  }

  /** After the last token: what was held back, and the whole message. */
  end(): readonly MessageDelta[] {
    const deltas: MessageDelta[] = [];
    this.#hold(this.#decoder.end());
    this.#giveHeader(deltas);
    this.#settlePrefix(true);
    this.#give(deltas);
    this.#giveText(this.#held, deltas);
    this.#held = "";
    deltas.push({ type: "message", ...this.#parts.parse(this.#tokens) });
    return deltas;
  }

  /** Adds text, up to one that ends the answer. */
  #hold(text: string): void {
    if (this.#isCut || text === "") return;
    const { padding } = this.#parts;
    const isPadded = !this.#hasText && padding !== undefined && text.startsWith(padding);
    this.#hasText = true;
    this.#held += isPadded ? text.slice(padding.length) : text;
    const end = firstOf(this.#parts.endTexts, this.#held);
    if (end === undefined) return;
    this.#held = this.#held.slice(0, end.start);
    this.#isCut = true;
  }

  #giveHeader(deltas: MessageDelta[]): void {
    if (this.#hasHeader) return;
    this.#hasHeader = true;
    deltas.push({ type: "header", role: "assistant" });
  }

  /** Returns the text in which no sign and no stop text can begin. */
  #give(deltas: MessageDelta[]): void {
    if (!this.#settlePrefix(false)) return;
    for (;;) {
      const signs = this.#format.ends[this.#kind];
      const end = firstOf(signs, this.#held);
      if (end === undefined) {
        if (this.#kind === "hidden") return;
        const certain = this.#held.length - beginningOf([...signs, ...this.#parts.endTexts], this.#held);
        this.#giveText(this.#held.slice(0, certain), deltas);
        this.#held = this.#held.slice(certain);
        return;
      }
      const stretch = this.#held.slice(0, end.start);
      this.#giveText(stretch, deltas);
      this.#held = this.#held.slice(end.start + end.sign.length);
      if (this.#kind !== "hidden") this.#contentIndex++;
      this.#kind = this.#format.after(this.#kind, end.sign, stretch);
    }
  }

  #giveText(text: string, deltas: MessageDelta[]): void {
    if (text === "" || this.#kind === "hidden") return;
    const contentIndex = this.#contentIndex;
    deltas.push(
      this.#kind === "thinking"
        ? { type: "thinking", thinking: text, contentIndex }
        : { type: "text", text, contentIndex },
    );
  }

  /** Adds the prefix once it is certain that the model does not repeat it. */
  #settlePrefix(isEnd: boolean): boolean {
    if (this.#prefixIsSettled) return true;
    if (!isEnd && THINK_OPEN.startsWith(this.#held)) return false;
    if (!this.#held.startsWith(THINK_OPEN)) this.#held = this.#parts.prefix + this.#held;
    this.#prefixIsSettled = true;
    return true;
  }
}
