import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { writeFileAtomic } from "../../files.node.js";
import type { Datum, ForwardBackwardOutput, SampledSequence } from "../../wire/index.js";
import { scoredTokens } from "./held-out.js";

const NUM_EXAMPLES_SHOWN = 4;

/**
 * Writes the first examples of a step into the folder of a run, for people: `iteration_NNNNNN/train_examples.jsonl`, beside
 * which the Python cookbook keeps its episodes. Each token stands with its weight in the loss and its logprob.
 */
export async function writeExamples(
  folder: string,
  step: number,
  data: readonly Datum[],
  output: ForwardBackwardOutput,
): Promise<void> {
  const records = scoredTokens(data, output).flatMap(({ targetTokens, weights, logprobs }, index) => {
    const { modelInput } = data[index]!;
    if (!modelInput.isText || index >= NUM_EXAMPLES_SHOWN) return [];
    // The first token is never a target; every other token is the target of the one before it.
    const [first] = modelInput.toInts();
    return {
      schema_version: 1,
      split: "train",
      iteration: step,
      index,
      tokens: [first, ...Array.from(targetTokens)],
      weights: [0, ...Array.from(weights)],
      logprobs: [null, ...Array.from(logprobs, shortNumber)],
    };
  });
  if (records.length > 0) await writeRecords(folder, step, "train_examples.jsonl", records);
}

/** An answer to a held-out prompt. */
export interface EvaluationAnswer {
  readonly prompt: readonly number[];
  readonly answer: SampledSequence;
}

/** Writes answers to held-out prompts in the fields of an episode without a reward, with the likeliest tokens at each place. */
export async function writeAnswers(
  folder: string,
  step: number,
  answers: readonly EvaluationAnswer[],
): Promise<void> {
  const records = answers.map(
    ({ prompt, answer: { tokens, logprobs, topkLogprobs, stopReason } }, index) => ({
      schema_version: 1,
      split: "eval/answers",
      iteration: step,
      group_idx: index,
      traj_idx: 0,
      tags: [],
      stop_reason: stopReason,
      steps: [
        {
          step_idx: 0,
          ob_len: prompt.length,
          ac_len: tokens.length,
          ob_tokens: prompt,
          tokens: Array.from(tokens),
          ...(logprobs && { logprobs: Array.from(logprobs, shortNumber) }),
          ...(topkLogprobs && {
            top_logprobs: topkLogprobs.map(
              (pairs) => pairs?.map(([id, value]) => [id, shortNumber(value)]) ?? [],
            ),
          }),
        },
      ],
    }),
  );
  await writeRecords(folder, step, "eval_answers_rollout_summaries.jsonl", records);
}

/** A 32-bit number has 9 significant digits; JavaScript would write 17. */
function shortNumber(value: number): number {
  return Number(value.toPrecision(9));
}

async function writeRecords(
  folder: string,
  step: number,
  file: string,
  records: readonly object[],
): Promise<void> {
  const place = join(folder, `iteration_${String(step).padStart(6, "0")}`);
  await mkdir(place, { recursive: true });
  const lines = records.map((record) => `${JSON.stringify(record)}\n`);
  await writeFileAtomic(join(place, file), lines.join(""));
}
