import { createReadStream } from "node:fs";
import { readdir } from "node:fs/promises";
import { createInterface } from "node:readline";
import type { TextTokenizer } from "../../tokenizers/index.js";
import { parseJsonObject } from "../../training/json-lines.node.js";
import type {
  Sample,
  SampleIndex,
  SampleList,
  SampleStep,
  SampleSummary,
  ShownToken,
  ShownTurn,
} from "../api.js";
import { fileOf, pathIn, type RunFolder } from "./run-folders.js";
import { shownMessages, textOf } from "./shown-message.js";
import { shownTokens } from "./shown-tokens.js";

const MAX_SAMPLES = 2000;
const MAX_FILE_BYTES = 256 << 20;
const STEP_FOLDER = /^iteration_(\d+)$/;
const ROLLOUTS = /^(train|eval_[^/]+)_rollout_summaries\.jsonl$/;
const REPORT = /^([^/]+)_logtree\.json$/;
/** What a supervised run keeps of its batches. */
export const EXAMPLES_FILE = "train_examples.jsonl";
const EXAMPLES = "examples";

type Line = Readonly<Record<string, unknown>>;

/** The steps of a run that something was kept of. */
export async function readSampleIndex(folder: RunFolder): Promise<SampleIndex> {
  const steps: SampleStep[] = [];
  for (const name of await readdir(folder.path).catch(() => [])) {
    const [, number] = STEP_FOLDER.exec(name) ?? [];
    const path = number === undefined ? undefined : await pathIn(folder, name);
    if (path === undefined) continue;
    const files = await readdir(path).catch(() => []);
    const splits = files.flatMap((file) =>
      file === EXAMPLES_FILE ? EXAMPLES : (ROLLOUTS.exec(file)?.[1] ?? []),
    );
    const reports = files.flatMap((file) => REPORT.exec(file)?.[1] ?? []);
    if (splits.length + reports.length > 0)
      steps.push({ step: Number(number), splits: splits.sort(inOrder), reports });
  }
  return { run: folder.id, steps: steps.sort((one, other) => one.step - other.step) };
}

/** What is trained on comes before what is only measured. */
function inOrder(one: string, other: string): number {
  return Number(one.startsWith("eval_")) - Number(other.startsWith("eval_")) || one.localeCompare(other);
}

/** The file of a report; undefined where there is none. */
export async function reportFile(folder: RunFolder, step: number, name: string): Promise<string | undefined> {
  return fileInStep(folder, step, `${name}_logtree.json`, REPORT);
}

/** The samples of a step, without their tokens. */
export async function readSampleList(
  folder: RunFolder,
  step: number,
  split: string,
): Promise<SampleList | undefined> {
  const samples: SampleSummary[] = [];
  let badLines = 0;
  let isCut = false;
  const path = await sampleFile(folder, step, split);
  if (path === undefined) return undefined;
  for await (const { place, line } of linesOf(path)) {
    if (line === undefined) badLines += 1;
    else if (samples.length === MAX_SAMPLES) {
      isCut = true;
      break;
    } else samples.push(summaryOf(line, place));
  }
  return { run: folder.id, step, split, samples, isCut, badLines };
}

/** One sample with everything that is known of it; undefined where there is no such line. */
export async function readSample(
  folder: RunFolder,
  { step, split, place }: { readonly step: number; readonly split: string; readonly place: number },
  tokenizer: TextTokenizer | undefined,
): Promise<Sample | undefined> {
  const path = await sampleFile(folder, step, split);
  if (path === undefined) return undefined;
  for await (const found of linesOf(path)) {
    if (found.place !== place || found.line === undefined) continue;
    const { line } = found;
    return {
      ...summaryOf(line, place),
      metrics: numbersOf(line["trajectory_metrics"]),
      messages: shownMessages(line["messages"]),
      turns: split === EXAMPLES ? [exampleTurn(line, tokenizer)] : turnsOf(line, tokenizer),
    };
  }
  return undefined;
}

async function sampleFile(folder: RunFolder, step: number, split: string): Promise<string | undefined> {
  return split === EXAMPLES
    ? fileInStep(folder, step, EXAMPLES_FILE, /./)
    : fileInStep(folder, step, `${split}_rollout_summaries.jsonl`, ROLLOUTS);
}

async function fileInStep(
  folder: RunFolder,
  step: number,
  name: string,
  known: RegExp,
): Promise<string | undefined> {
  if (!Number.isInteger(step) || step < 0 || !known.test(name)) return undefined;
  return fileOf(folder, `iteration_${String(step).padStart(6, "0")}`, name);
}

async function* linesOf(
  path: string,
): AsyncGenerator<{ place: number; line: Line | undefined }, void, undefined> {
  const stream = createReadStream(path, { end: MAX_FILE_BYTES });
  let place = -1;
  try {
    for await (const text of createInterface({ input: stream, crlfDelay: Number.POSITIVE_INFINITY })) {
      place += 1;
      if (text.trim() !== "") yield { place, line: parseJsonObject(text) };
    }
  } finally {
    stream.destroy();
  }
}

function summaryOf(line: Line, place: number): SampleSummary {
  const steps = fieldsIn(line["steps"]);
  const total = line["total_reward"];
  const reason = line["stop_reason"];
  const weights = line["weights"];
  return {
    place,
    group: numberOf(line["group_idx"]) ?? 0,
    index: numberOf(line["traj_idx"]) ?? numberOf(line["index"]) ?? place,
    tags: Array.isArray(line["tags"]) ? line["tags"].map(textOf) : [],
    ...(total === undefined ? {} : { reward: numberOf(total) ?? null }),
    ...(typeof reason === "string" ? { stopReason: reason } : {}),
    turnCount: steps.length,
    tokenCount: Array.isArray(weights)
      ? weights.filter((weight) => typeof weight === "number" && weight > 0).length
      : steps.reduce((sum, step) => sum + (numberOf(step["ac_len"]) ?? 0), 0),
  };
}

function turnsOf(line: Line, tokenizer: TextTokenizer | undefined): readonly ShownTurn[] {
  let before: readonly number[] = [];
  return fieldsIn(line["steps"]).map((step) => {
    const read = numbersIn(step["ob_tokens"]);
    const sampled = numbersIn(step["tokens"]);
    // Of a conversation that goes on, only what came since is new.
    const isLonger = read.length > before.length && before.every((token, place) => read[place] === token);
    const observation = isLonger ? read.slice(before.length) : read;
    before = [...read, ...sampled];
    return {
      reward: numberOf(step["reward"]) ?? null,
      observationLength: numberOf(step["ob_len"]),
      actionLength: numberOf(step["ac_len"]),
      ...(observation.length > 0 ? { observation: shownTokens(observation, tokenizer) } : {}),
      ...(sampled.length > 0
        ? {
            tokens: shownTokens(sampled, tokenizer, {
              logprobs: step["logprobs"],
              advantages: step["advantages"],
              weights: step["mask"],
            }),
          }
        : {}),
      metrics: numbersOf(step["metrics"]),
      logs: textsOf(step["logs"]),
    };
  });
}

function exampleTurn(line: Line, tokenizer: TextTokenizer | undefined): ShownTurn {
  const { logprobs, weights } = line;
  const tokens: readonly ShownToken[] = shownTokens(numbersIn(line["tokens"]), tokenizer, {
    logprobs,
    weights,
  });
  return { reward: null, tokens, metrics: {}, logs: {} };
}

function fieldsIn(value: unknown): readonly Line[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === "object" && item !== null) : [];
}

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}

function numbersIn(value: unknown): readonly number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item)) ? value : [];
}

function numbersOf(value: unknown): Readonly<Record<string, number | null>> {
  return Object.fromEntries(
    Object.entries(value ?? {}).map(([name, item]) => [
      name,
      typeof item === "boolean" ? Number(item) : (numberOf(item) ?? null),
    ]),
  );
}

function textsOf(value: unknown): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(value ?? {}).map(([name, item]) => [name, textOf(item)]));
}
