import { type Datum, ModelInput } from "../../wire/index.js";
import type { Evaluator } from "../evaluation/index.js";

/** An answer may be this much longer than that of the held-out row. */
const LENGTH_FACTOR = 2;
const EXTRA_TOKENS = 16;
const MAX_TOKENS = 256;
const NUM_ALTERNATIVES = 4;

/** Settings of the answers that are kept at each evaluation. */
export interface EvaluationAnswersSettings {
  readonly folder: string | undefined;
  readonly count: number;
  /** Tokens that the model can read. */
  readonly maxLength: number | undefined;
  readonly stop: readonly number[] | readonly string[];
  readonly seed: number;
}

/** A held-out prompt and the most tokens of an answer to it. */
interface AnswerPrompt {
  readonly tokens: readonly number[];
  readonly maxTokens: number;
}

/**
 * Answers the first held-out prompts at each evaluation and keeps the answers in the run folder, for people. Prompts and
 * seed stay the same, so that the answers of different steps and runs can be compared. Undefined without a folder or a prompt.
 */
export function evaluationAnswers(
  test: readonly Datum[],
  { folder, count, maxLength, stop, seed }: EvaluationAnswersSettings,
): Evaluator | undefined {
  const prompts: AnswerPrompt[] = [];
  for (const datum of folder === undefined ? [] : test) {
    if (prompts.length === count) break;
    prompts.push(...promptsOf(datum, maxLength));
  }
  if (folder === undefined || prompts.length === 0) return undefined;
  return {
    name: "answers",
    evaluate: async ({ sampler, step, signal }) => {
      const answer = async ({ tokens, maxTokens }: AnswerPrompt) => {
        const samplingParams = { maxTokens, temperature: 0, seed, stop };
        const { sequences } = await sampler.sample(
          { prompt: ModelInput.fromInts(tokens), samplingParams, topkSampleLogprobs: NUM_ALTERNATIVES },
          { signal },
        );
        return { prompt: tokens, answer: sequences[0]! };
      };
      const answers = await Promise.all(prompts.map(answer));
      const { writeAnswers } = await import("./example-files.node.js");
      await writeAnswers(folder, step, answers);
      return {};
    },
  };
}

/** The tokens before the first trained one; none of a row with images, or one that leaves no room for an answer. */
function promptsOf(
  { modelInput, lossFnInputs }: Datum,
  maxLength: number | undefined,
): readonly AnswerPrompt[] {
  if (!modelInput.isText) return [];
  const weights = Array.from(lossFnInputs["weights"]!.toDense().data);
  const first = weights.findIndex((weight) => weight > 0);
  if (first === -1) return [];
  // The first trained target follows the token at its own place.
  const tokens = Array.from(modelInput.toInts()).slice(0, first + 1);
  const trained = weights.filter((weight) => weight > 0).length;
  const room = (maxLength ?? Number.POSITIVE_INFINITY) - tokens.length;
  const maxTokens = Math.min(MAX_TOKENS, LENGTH_FACTOR * trained + EXTRA_TOKENS, room);
  return maxTokens > 0 ? [{ tokens, maxTokens }] : [];
}
