import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { writeFileAtomic } from "../../files.node.js";
import type { Datum, ForwardBackwardOutput } from "../../wire/index.js";
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
    // The first token is read and never a target; from then on each target is the next token that is read.
    const [first] = modelInput.toInts();
    return {
      schema_version: 1,
      split: "train",
      iteration: step,
      index,
      tokens: [first, ...Array.from(targetTokens)],
      weights: [0, ...Array.from(weights)],
      logprobs: [null, ...Array.from(logprobs, (value) => Number(value.toPrecision(9)))],
    };
  });
  if (records.length === 0) return;
  const place = join(folder, `iteration_${String(step).padStart(6, "0")}`);
  await mkdir(place, { recursive: true });
  const lines = records.map((record) => `${JSON.stringify(record)}\n`);
  await writeFileAtomic(join(place, "train_examples.jsonl"), lines.join(""));
}
