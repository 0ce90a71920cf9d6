import type { AnswerPiece } from "../renderers/answer-reader.js";
import { randomUuid } from "../transport/ids.js";
import { callMetadata } from "./answer-metadata.js";
import type { Content, StreamPart } from "./specification.js";

/** Writes the pieces of an answer as the parts of a stream. */
export class AnswerParts {
  #open: { readonly type: "text" | "reasoning"; readonly id: string } | undefined;
  #blocks = 0;

  next(piece: AnswerPiece): StreamPart[] {
    if (piece.type === "calls") return [...this.end(), ...piece.calls.flatMap(partsOfCall)];
    const { type, text: delta } = piece;
    if (this.#open?.type === type) return [{ type: `${type}-delta`, id: this.#open.id, delta }];
    const closed = this.end();
    const id = String(this.#blocks++);
    this.#open = { type, id };
    return [...closed, { type: `${type}-start`, id }, { type: `${type}-delta`, id, delta }];
  }

  /** Closes the part of the stream that is open. */
  end(): StreamPart[] {
    if (this.#open === undefined) return [];
    const { type, id } = this.#open;
    this.#open = undefined;
    return [{ type: `${type}-end`, id }];
  }
}

/** Writes one piece of a complete answer. */
export function contentOf(piece: AnswerPiece): Content[] {
  return piece.type === "calls" ? piece.calls.map(toolCall) : [piece];
}

function partsOfCall(call: Call): StreamPart[] {
  const part = toolCall(call);
  const { toolCallId: id, toolName, input } = part;
  return [
    { type: "tool-input-start", id, toolName },
    { type: "tool-input-delta", id, delta: input },
    { type: "tool-input-end", id },
    part,
  ];
}

type Call = Extract<AnswerPiece, { type: "calls" }>["calls"][number];

/** The id is our own: the ids that formats write start again with each answer. */
function toolCall(call: Call) {
  const { name: toolName, arguments: input } = call;
  const toolCallId = `call_${randomUuid()}`;
  return { type: "tool-call" as const, toolCallId, toolName, input, providerMetadata: callMetadata(call) };
}
