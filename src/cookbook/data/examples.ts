import { ValidationError } from "../../errors.js";
import type { Message, Renderer, SupervisedExample, TrainOn } from "../../renderers/index.js";
import { textOf } from "../../renderers/index.js";
import { tokensAt } from "../../training/datum-from.js";
import {
  chunkLength,
  Datum,
  type EncodedTextChunk,
  ModelInput,
  type ModelInputChunk,
} from "../../wire/index.js";
import type { Conversation } from "./conversation.js";
import { checkWhole } from "./rows.js";

/** How an example becomes a datum. */
export interface DatumOptions {
  /** Longer examples lose their end. Default: they stay whole. */
  readonly maxLength?: number | undefined;
  /** `mean`: each example weighs the same, however long it is. `none` (default): each token does. */
  readonly reduction?: "none" | "mean" | undefined;
}

/**
 * A conversation as examples to learn from, with its tools declared. Formats that write old answers otherwise than the
 * one being produced give one example for each answer.
 */
export function toExamples(
  { messages, tools = [] }: Conversation,
  renderer: Renderer,
  trainOn?: TrainOn,
): readonly SupervisedExample[] {
  return renderer.buildSupervisedExamples(tools.length === 0 ? messages : withTools(), trainOn);

  function withTools(): readonly Message[] {
    const system = messages[0]?.role === "system" ? messages[0] : undefined;
    const declared = renderer.declareTools(tools, system && textOf(system));
    const trainable = system?.trainable ?? false;
    return [
      ...(trainOn === "customized" ? declared.map((message) => ({ ...message, trainable })) : declared),
      ...messages.slice(system === undefined ? 0 : 1),
    ];
  }
}

/**
 * An example as the data of `cross_entropy`: at each position the next token, with its weight. Undefined where nothing
 * is learnt from it, since no token has a weight, or none of those that `maxLength` leaves.
 */
export function datumFromExample(
  { input, weights }: SupervisedExample,
  { maxLength, reduction = "none" }: DatumOptions = {},
): Datum | undefined {
  if (reduction !== "none" && reduction !== "mean") {
    throw new ValidationError(
      "reduction",
      `reduction must be "none" or "mean", got ${String(reduction satisfies never)}`,
    );
  }
  if (maxLength !== undefined) checkWhole("maxLength", maxLength, 2);
  const chunks = shorten(input.chunks, maxLength);
  const tokens = tokensAt(chunks);
  const learnt = weights.slice(1, tokens.length);
  const total = learnt.reduce((sum, weight) => sum + weight, 0);
  if (!(total > 0)) return undefined;
  return new Datum({
    modelInput: ModelInput.from(withoutLast(chunks)),
    lossFnInputs: {
      targetTokens: tokens.slice(1),
      weights: reduction === "mean" ? learnt.map((weight) => weight / total) : learnt,
    },
  });
}

/** Cut from the right, images whole; nothing can be learnt at an image, so none is left at the end. */
function shorten(given: readonly ModelInputChunk[], maxLength = Number.POSITIVE_INFINITY): ModelInputChunk[] {
  const chunks: ModelInputChunk[] = [];
  let room = maxLength;
  for (const chunk of given) {
    const length = chunkLength(chunk);
    if (length > room) {
      if (chunk.type === "encoded_text" && room > 0) chunks.push(firstTokens(chunk, room));
      break;
    }
    if (length > 0 || chunk.type !== "encoded_text") chunks.push(chunk);
    room -= length;
  }
  while (chunks.length > 0 && chunks.at(-1)!.type !== "encoded_text") chunks.pop();
  return chunks;
}

function withoutLast(chunks: readonly ModelInputChunk[]): ModelInputChunk[] {
  const last = chunks.at(-1) as EncodedTextChunk;
  const rest = chunks.slice(0, -1);
  return last.tokens.length > 1 ? [...rest, firstTokens(last, last.tokens.length - 1)] : rest;
}

function firstTokens({ type, tokens }: EncodedTextChunk, count: number): EncodedTextChunk {
  return { type, tokens: tokens.slice(0, count) };
}
