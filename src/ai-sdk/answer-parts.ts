import { type AnswerPiece, AnswerReader } from "../renderers/answer-reader.js";
import { randomUuid } from "../transport/ids.js";
import { callMetadata } from "./answer-metadata.js";
import type { PreparedCall } from "./prepare-call.js";
import type { StreamPart } from "./specification.js";

/** Reads an answer as the parts of a stream, while its tokens come. */
export class AnswerParts {
  readonly #reader: AnswerReader;
  #open: { readonly type: "text" | "reasoning"; readonly id: string } | undefined;
  #blocks = 0;
  #hasCalls = false;

  constructor({ renderer, offersTools, messages, stopTexts, prefillTokens }: PreparedCall) {
    this.#reader = new AnswerReader({
      parser: renderer.streamParser(messages, stopTexts),
      readsCalls: offersTools,
      callSign: renderer.callSign,
      prefill: prefillTokens,
    });
  }

  /** Whether the answer calls tools; known at its end. */
  get hasCalls(): boolean {
    return this.#hasCalls;
  }

  /** How many tokens the thoughts took. */
  get reasoningTokens(): number {
    return this.#reader.reasoningTokens;
  }

  push(token: number): StreamPart[] {
    return this.#reader.push(token).flatMap((piece) => this.#write(piece));
  }

  /** After the last token: what was held back, calls, and the end of what is open. */
  end(): StreamPart[] {
    return [...this.#reader.end().flatMap((piece) => this.#write(piece)), ...this.#close()];
  }

  #write(piece: AnswerPiece): StreamPart[] {
    if (piece.type === "calls") {
      this.#hasCalls = true;
      return [...this.#close(), ...piece.calls.flatMap(partsOfCall)];
    }
    const { type, text: delta } = piece;
    if (this.#open?.type === type) return [{ type: `${type}-delta`, id: this.#open.id, delta }];
    const closed = this.#close();
    const id = String(this.#blocks++);
    this.#open = { type, id };
    return [...closed, { type: `${type}-start`, id }, { type: `${type}-delta`, id, delta }];
  }

  #close(): StreamPart[] {
    if (this.#open === undefined) return [];
    const { type, id } = this.#open;
    this.#open = undefined;
    return [{ type: `${type}-end`, id }];
  }
}

/** The id is one of our own: those of formats begin anew with each answer. */
function partsOfCall(call: Extract<AnswerPiece, { type: "calls" }>["calls"][number]): StreamPart[] {
  const id = `call_${randomUuid()}`;
  const { name: toolName, arguments: input } = call;
  return [
    { type: "tool-input-start", id, toolName },
    { type: "tool-input-delta", id, delta: input },
    { type: "tool-input-end", id },
    { type: "tool-call", toolCallId: id, toolName, input, providerMetadata: callMetadata(call) },
  ];
}
