import { ValidationError } from "../../errors.js";
import type { Renderer, SupervisedExample, TrainOn } from "../../renderers/index.js";
import { withTools } from "../../renderers/prepare-answer.js";
import { tokensAt } from "../../training/datum-from.js";
import * as f from "../../wire/fields/index.js";
import {
  chunkLength,
  Datum,
  type EncodedTextChunk,
  ModelInput,
  type ModelInputChunk,
} from "../../wire/index.js";
import type { Conversation } from "./conversation.js";
import { roleProblems } from "./roles.js";

/** How an example becomes a datum. */
export interface DatumOptions {
  /** Longer examples are cut at the end. Default: no limit. */
  readonly maxLength?: number | undefined;
  /** `mean`: each example has the same weight, whatever its length. `none` (default): each token has. */
  readonly reduction?: "none" | "mean" | undefined;
}

/** The option table of `datumFromExample`. */
export const DATUM_OPTIONS = f.optionTable({
  maxLength: f.option(f.optional(f.twoOrMore), "cut examples longer than this many tokens"),
  reduction: f.option(f.withDefault(f.oneOf("none", "mean"), "none"), "weights within an example"),
} satisfies f.OptionsOf<DatumOptions>);

/**
 * Turns a conversation into examples to train on, with its tools declared. Formats that write earlier answers
 * differently from the current one give one example per answer.
 */
export function toExamples(
  { messages, tools = [] }: Conversation,
  renderer: Renderer,
  trainOn?: TrainOn,
): readonly SupervisedExample[] {
  const [wrong] = roleProblems(messages, renderer);
  if (wrong !== undefined) throw new ValidationError(wrong.field, wrong.message);
  return renderer.buildSupervisedExamples(withTools(renderer, messages, tools), trainOn);
}

/**
 * Turns an example into a datum for `cross_entropy`: at each position the next token, with its weight. Undefined if it
 * has no trained tokens, or none within `maxLength`.
 */
export function datumFromExample(
  { input, weights }: SupervisedExample,
  options: DatumOptions = {},
): Datum | undefined {
  const { maxLength, reduction } = DATUM_OPTIONS.check(options, "datumFromExample");
  const chunks = shorten(input.chunks, maxLength);
  const tokens = tokensAt(chunks);
  const trained = weights.slice(1, tokens.length);
  const total = trained.reduce((sum, weight) => sum + weight, 0);
  if (!(total > 0)) return undefined;
  return new Datum({
    modelInput: ModelInput.from(withoutLast(chunks)),
    lossFnInputs: {
      targetTokens: tokens.slice(1),
      weights: reduction === "mean" ? trained.map((weight) => weight / total) : trained,
    },
  });
}

/** Cuts from the right, images as a whole; images have no trained tokens, so none is left at the end. */
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
