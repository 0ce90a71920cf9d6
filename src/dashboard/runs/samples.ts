import { readdir } from "node:fs/promises";
import type { TextTokenizer } from "../../tokenizers/index.js";
import type { TopkLogprobs } from "../../wire/index.js";
import type {
  PromptAnswer,
  PromptHistory,
  Sample,
  SampleIndex,
  SampleList,
  SampleStep,
  SampleSummary,
  ShownToken,
  ShownTurn,
} from "../api.js";
import { fileOf, pathIn, type ShownFolder } from "./run-folders.js";
import {
  fieldsIn,
  finiteNumber,
  numbersIn,
  numbersOf,
  type SampleLine,
  sampleLines,
  textsOf,
} from "./sample-lines.js";
import { summarized } from "./sample-summary.js";
import { shownMessages } from "./shown-message.js";
import { shownTokens } from "./shown-tokens.js";

const MAX_SAMPLES = 2000;
/** Bounds of what is read for the history of one prompt. */
const MAX_HISTORY_STEPS = 60;
const MAX_HISTORY_ANSWERS = 16;
const MAX_ALTERNATIVES = 20;
const MAX_ANSWER_LENGTH = 4000;
const MAX_PROMPT_LENGTH = 4000;
const STEP_FOLDER = /^iteration_(\d+)$/;
const ROLLOUTS = /^(train|eval_[^/]+)_rollout_summaries\.jsonl$/;
const REPORT = /^([^/]+)_logtree\.json$/;
/** Examples that a supervised run keeps of its batches. */
export const EXAMPLES_FILE = "train_examples.jsonl";
const EXAMPLES = "examples";

/** The steps of a run that something was kept of. */
export async function readSampleIndex(folder: ShownFolder): Promise<SampleIndex> {
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

/** Training samples come before evaluation samples. */
function inOrder(one: string, other: string): number {
  return Number(one.startsWith("eval_")) - Number(other.startsWith("eval_")) || one.localeCompare(other);
}

/** The file of a report; undefined where there is none. */
export async function reportFile(
  folder: ShownFolder,
  step: number,
  name: string,
): Promise<string | undefined> {
  return fileInStep(folder, step, `${name}_logtree.json`, REPORT);
}

/** The samples of a step that contain all words of a search, without their tokens. */
export async function readSampleList(
  folder: ShownFolder,
  { step, split, search }: { readonly step: number; readonly split: string; readonly search: string },
  tokenizer: TextTokenizer | undefined,
): Promise<SampleList | undefined> {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const samples: SampleSummary[] = [];
  let badLines = 0;
  let total = 0;
  let isCut = false;
  const path = await sampleFile(folder, step, split);
  if (path === undefined) return undefined;
  for await (const { place, line } of sampleLines(path)) {
    if (line === undefined) {
      badLines += 1;
      continue;
    }
    if (samples.length === MAX_SAMPLES) {
      isCut = true;
      break;
    }
    total += 1;
    const { summary, text } = summarized(line, place, tokenizer);
    const whole = words.length === 0 ? "" : `${text.prompt}\n${text.answer}`.toLowerCase();
    if (words.every((word) => whole.includes(word))) samples.push(summary);
  }
  return { run: folder.id, step, split, samples, total, isCut, badLines };
}

/** The answers to one prompt in the steps of a run; of many steps, some that are evenly apart. */
export async function readPromptHistory(
  folder: ShownFolder,
  { key, split }: { readonly key: string; readonly split: string },
  tokenizer: TextTokenizer | undefined,
): Promise<PromptHistory> {
  const all = (await readSampleIndex(folder)).steps.filter(({ splits }) => splits.includes(split));
  const every = Math.max(1, (all.length - 1) / (MAX_HISTORY_STEPS - 1));
  const count = Math.min(all.length, MAX_HISTORY_STEPS);
  const chosen = Array.from({ length: count }, (_, place) => all[Math.round(place * every)]!);
  const steps: PromptHistory["steps"][number][] = [];
  let prompt = "";
  for (const { step } of chosen) {
    const samples: PromptAnswer[] = [];
    const path = await sampleFile(folder, step, split);
    if (path === undefined) continue;
    for await (const { place, line } of sampleLines(path)) {
      if (place >= MAX_SAMPLES || samples.length >= MAX_HISTORY_ANSWERS) break;
      if (line === undefined) continue;
      const { summary, text } = summarized(line, place, tokenizer);
      if (text.promptKey !== key) continue;
      prompt ||= text.prompt.slice(0, MAX_PROMPT_LENGTH);
      const { prompt: _, promptKey: __, ...answered } = summary;
      samples.push({ ...answered, answer: text.answer.slice(0, MAX_ANSWER_LENGTH) });
    }
    if (samples.length > 0) steps.push({ step, samples });
  }
  return { run: folder.id, prompt, steps, isCut: count < all.length };
}

/** One sample with all its details; undefined if the line does not exist. */
export async function readSample(
  folder: ShownFolder,
  { step, split, place }: { readonly step: number; readonly split: string; readonly place: number },
  tokenizer: TextTokenizer | undefined,
): Promise<Sample | undefined> {
  const path = await sampleFile(folder, step, split);
  if (path === undefined) return undefined;
  for await (const found of sampleLines(path)) {
    if (found.place !== place || found.line === undefined) continue;
    const { line } = found;
    return {
      ...summarized(line, place, tokenizer).summary,
      metrics: numbersOf(line["trajectory_metrics"]),
      messages: shownMessages(line["messages"]),
      turns: split === EXAMPLES ? [exampleTurn(line, tokenizer)] : turnsOf(line, tokenizer),
    };
  }
  return undefined;
}

async function sampleFile(folder: ShownFolder, step: number, split: string): Promise<string | undefined> {
  return split === EXAMPLES
    ? fileInStep(folder, step, EXAMPLES_FILE, /./)
    : fileInStep(folder, step, `${split}_rollout_summaries.jsonl`, ROLLOUTS);
}

async function fileInStep(
  folder: ShownFolder,
  step: number,
  name: string,
  known: RegExp,
): Promise<string | undefined> {
  if (!Number.isInteger(step) || step < 0 || !known.test(name)) return undefined;
  return fileOf(folder, `iteration_${String(step).padStart(6, "0")}`, name);
}

function turnsOf(line: SampleLine, tokenizer: TextTokenizer | undefined): readonly ShownTurn[] {
  let before: readonly number[] = [];
  return fieldsIn(line["steps"]).map((step) => {
    const read = numbersIn(step["ob_tokens"]);
    const sampled = numbersIn(step["tokens"]);
    // In a conversation that goes on, only the latest messages are new.
    const isLonger = read.length > before.length && before.every((token, place) => read[place] === token);
    const observation = isLonger ? read.slice(before.length) : read;
    before = [...read, ...sampled];
    return {
      reward: finiteNumber(step["reward"]) ?? null,
      observationLength: finiteNumber(step["ob_len"]),
      actionLength: finiteNumber(step["ac_len"]),
      ...(observation.length > 0 ? { observation: shownTokens(observation, tokenizer) } : {}),
      ...(sampled.length > 0
        ? {
            tokens: shownTokens(sampled, tokenizer, {
              logprobs: step["logprobs"],
              advantages: step["advantages"],
              weights: step["mask"],
              top: alternativesIn(step["top_logprobs"]),
            }),
          }
        : {}),
      metrics: numbersOf(step["metrics"]),
      logs: textsOf(step["logs"]),
    };
  });
}

function exampleTurn(line: SampleLine, tokenizer: TextTokenizer | undefined): ShownTurn {
  const { logprobs, weights } = line;
  const tokens: readonly ShownToken[] = shownTokens(numbersIn(line["tokens"]), tokenizer, {
    logprobs,
    weights,
  });
  return { reward: null, tokens, metrics: {}, logs: {} };
}

/** The likeliest tokens of each place, where a log has them as pairs of a token and its logprob. */
function alternativesIn(value: unknown): TopkLogprobs | undefined {
  if (!Array.isArray(value)) return undefined;
  const isPair = (pair: unknown): pair is [number, number] =>
    Array.isArray(pair) && Number.isSafeInteger(pair[0]) && finiteNumber(pair[1]) !== undefined;
  return value.map((pairs: unknown) =>
    Array.isArray(pairs) ? pairs.filter(isPair).slice(0, MAX_ALTERNATIVES) : [],
  );
}
