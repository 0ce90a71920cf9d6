import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { writeFileAtomic } from "../../files.node.js";
import { type Clock, systemClock } from "../../transport/index.js";
import { wrongField } from "../../wire/index.js";
import { logTree } from "./log-tree.js";
import { type RecordedBatch, rolloutRecords } from "./records.js";

const NUM_GROUPS_SHOWN = 4;
const SPLIT = /^(?:train|eval\/[\w.-]*\w[\w.-]*)$/;

/**
 * Writes the episodes of a step into the folder of a run, in the Python cookbook's files:
 * `iteration_NNNNNN/train_rollout_summaries.jsonl`, with `eval_NAME` for evaluations, and the first groups as a tree to read
 * in `train_logtree.json`. Each file is replaced as a whole.
 */
export async function writeRollouts(
  folder: string,
  batch: RecordedBatch,
  {
    numGroupsShown = NUM_GROUPS_SHOWN,
    clock = systemClock,
  }: { readonly numGroupsShown?: number | undefined; readonly clock?: Clock | undefined } = {},
): Promise<void> {
  const { split, iteration } = batch;
  if (!SPLIT.test(split)) {
    throw wrongField("split", `must be train, or eval/ and letters, digits, dots and dashes, got ${split}`);
  }
  const step = join(folder, `iteration_${String(iteration).padStart(6, "0")}`);
  await mkdir(step, { recursive: true });
  const name = join(step, split.replace("/", "_"));
  await writeFileAtomic(`${name}_rollout_summaries.jsonl`, jsonLines(batch));
  if (numGroupsShown === 0) return;
  const tree = logTree(batch, numGroupsShown, new Date(clock.wallNow()));
  await writeFileAtomic(`${name}_logtree.json`, JSON.stringify(tree));
}

function* jsonLines(batch: RecordedBatch): Generator<string> {
  for (const record of rolloutRecords(batch)) yield `${JSON.stringify(record)}\n`;
}
