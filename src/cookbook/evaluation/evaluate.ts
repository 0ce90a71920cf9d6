import type { SamplingClient } from "../../clients/index.js";
import { ValidationError } from "../../errors.js";
import { throwIfAborted } from "../../transport/index.js";
import { checkKeys } from "../../wire/index.js";
import { type ChatOptions, type ChatSampler, rendererOf } from "../chat/index.js";
import { type Grade, needsAnswers } from "./graders.js";
import {
  type Answered,
  type EvaluationResult,
  type ExampleResult,
  isCorrect,
  isError,
  summarize,
} from "./result.js";
import type { ResultsFolder } from "./results-folder.node.js";
import { type ExampleSettings, runExample } from "./run-example.js";
import { usualKs } from "./statistics.js";
import { digest, readTasks, type Task, type TasksFrom } from "./tasks.js";

/** How far an evaluation is. */
export interface EvaluationProgress {
  /** Tasks with a result, also from an earlier call. */
  readonly done: number;
  readonly total: number;
  /** Of the answers so far. */
  readonly numCorrect: number;
  readonly numErrors: number;
}

/** What is measured, and how. How the model is sampled is as for `chat`, but for the temperature: 0.6. */
export interface EvaluateOptions extends Omit<ChatOptions, "tools" | "signal"> {
  readonly sampler: ChatSampler & Partial<Pick<SamplingClient, "getInfo">>;
  readonly tasks: TasksFrom;
  readonly grade: Grade;
  /** What the results are known by. Default: `tasks`. */
  readonly name?: string | undefined;
  /** A system message for tasks that have none. */
  readonly system?: string | undefined;
  /** Answers to each task; more than one gives pass@k. Default: 1. */
  readonly numSamples?: number | undefined;
  /** The `k` of pass@k. Default: 1, 5, 10, 25, 50, 100, as far as there are samples, and all. */
  readonly passAtK?: readonly number[] | undefined;
  /** Tasks at a time. Default: 64. */
  readonly concurrency?: number | undefined;
  /** For each task, with its grade; more is an error of this task. Default: 5 minutes. */
  readonly exampleTimeoutMs?: number | undefined;
  /** Where results are kept. The same call goes on where an earlier one stopped; what failed is tried again. */
  readonly folder?: string | undefined;
  /** What else the results depend on, as the version of a grader: a folder with other settings is refused. */
  readonly settings?: Readonly<Record<string, unknown>> | undefined;
  readonly onProgress?: ((progress: EvaluationProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

const OPTION_KEYS: ReadonlySet<string> = new Set([
  ...["sampler", "tasks", "grade", "name", "system", "numSamples", "passAtK", "concurrency"],
  ...["exampleTimeoutMs", "folder", "settings", "onProgress", "signal", "renderer", "prefill"],
  ...["maxTokens", "temperature", "topK", "topP", "seed", "stop"],
] as (keyof EvaluateOptions)[]);

const CONCURRENCY = 64;
const TEMPERATURE = 0.6;
const EXAMPLE_TIMEOUT_MS = 300_000;
const NAME = /^[\w.-]*\w[\w.-]*$/;

/** Lets a model answer tasks, grades the answers, and says how good they are. */
export async function evaluate(options: EvaluateOptions): Promise<EvaluationResult> {
  const { sampler, grade, name = "tasks", numSamples = 1, concurrency = CONCURRENCY, signal } = options;
  const startedAt = performance.now();
  checkKeys(options, OPTION_KEYS, "");
  checkOptions(name, numSamples, concurrency, options);
  const tasks = await readTasks(options.tasks, name, { needsAnswers: needsAnswers(grade) });
  const renderer =
    typeof options.renderer === "object" ? options.renderer : await rendererOf(sampler, options.renderer);
  const { exampleTimeoutMs = EXAMPLE_TIMEOUT_MS, temperature = TEMPERATURE } = options;
  const { maxTokens, topK, topP, seed, stop, prefill, system } = options;
  const settings: ExampleSettings = {
    sampler,
    grade,
    system,
    exampleTimeoutMs,
    chat: { renderer, numSamples, maxTokens, temperature, topK, topP, seed, stop, prefill },
  };
  const results = await openResults(tasks, name, settings, options);
  try {
    const byTask = tasks.map(({ id }) => results?.finished.get(id));
    const tell = progressOf(byTask, options.onProgress);
    tell();
    const pending = [...tasks.keys()].filter((index) => byTask[index] === undefined);
    await inParallel(pending, concurrency, signal, async (index, running) => {
      const answered = await runExample(tasks[index]!, index, settings, running);
      await results?.add(answered);
      byTask[index] = withoutThinking(answered);
      tell(byTask[index]);
    });
    const ks = options.passAtK ?? (numSamples > 1 ? usualKs(numSamples) : []);
    const seconds = (performance.now() - startedAt) / 1000;
    const result = summarize(name, byTask as (readonly ExampleResult[])[], ks, seconds);
    await results?.finish(result);
    return result;
  } finally {
    await results?.close();
  }
}

function checkOptions(
  name: string,
  numSamples: number,
  concurrency: number,
  { passAtK = [], exampleTimeoutMs = 1, grade }: EvaluateOptions,
): void {
  if (typeof grade !== "function") {
    throw new ValidationError("grade", "grade must be a function, as numberMatch() or one of your own");
  }
  if (!NAME.test(name)) {
    throw new ValidationError("name", `name must be letters, digits, dots and dashes, got ${name}`);
  }
  for (const [field, value] of Object.entries({ numSamples, concurrency, exampleTimeoutMs })) {
    if (Number.isSafeInteger(value) && value >= 1) continue;
    throw new ValidationError(field, `${field} must be a whole number from 1, got ${value}`);
  }
  for (const k of passAtK) {
    if (Number.isSafeInteger(k) && k >= 1 && k <= numSamples) continue;
    throw new ValidationError(
      "passAtK",
      `passAtK must hold whole numbers from 1 to numSamples (${numSamples}), got ${k}`,
    );
  }
}

async function openResults(
  tasks: readonly Task[],
  name: string,
  { chat, grade, system }: ExampleSettings,
  { folder, sampler, settings, renderer }: EvaluateOptions,
): Promise<ResultsFolder | undefined> {
  if (folder === undefined) return undefined;
  const { ResultsFolder } = await import("./results-folder.node.js");
  const { renderer: _, numSamples, ...sampling } = chat;
  const info = await sampler.getInfo?.();
  const digests = await Promise.all(
    tasks.map(async ({ id, messages, tools, answer }) => [
      id,
      await digest(JSON.stringify({ messages, tools, answer })),
    ]),
  );
  return await ResultsFolder.open(
    folder,
    name,
    {
      model: info?.baseModel ?? (await sampler.getBaseModel()),
      ...(info?.modelPath && { modelPath: info.modelPath }),
      ...(typeof renderer === "string" && { renderer }),
      grade: grade.name,
      system,
      numSamples: numSamples ?? 1,
      ...sampling,
      ...settings,
    },
    Object.fromEntries(digests) as Record<string, string>,
  );
}

function progressOf(
  byTask: readonly (readonly ExampleResult[] | undefined)[],
  onProgress: EvaluateOptions["onProgress"],
): (more?: readonly ExampleResult[]) => void {
  const known = byTask.filter((examples) => examples !== undefined);
  let done = known.length;
  let numCorrect = known.flat().filter(isCorrect).length;
  let numErrors = known.flat().filter(isError).length;
  return (more) => {
    if (more !== undefined) {
      done += 1;
      numCorrect += more.filter(isCorrect).length;
      numErrors += more.filter(isError).length;
    }
    onProgress?.({ done, total: byTask.length, numCorrect, numErrors });
  };
}

const withoutThinking = ({ examples }: Answered): readonly ExampleResult[] =>
  examples.map(({ thinking: _, ...example }) => example);

/** Works on several items at a time; the first failure ends the others, and is thrown when they have ended. */
export async function inParallel<T>(
  items: readonly T[],
  concurrency: number,
  signal: AbortSignal | undefined,
  work: (item: T, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  throwIfAborted(signal, "The evaluation");
  const running = new AbortController();
  const stop = () => running.abort(signal?.reason);
  signal?.addEventListener("abort", stop);
  const rest = items.values();
  const failures: unknown[] = [];
  const worker = async () => {
    for (const item of rest) {
      if (running.signal.aborted) return;
      await work(item, running.signal).catch((error: unknown) => {
        failures.push(error);
        running.abort(error);
      });
    }
  };
  await Promise.all(Array.from({ length: Math.min(concurrency, items.length) }, worker));
  signal?.removeEventListener("abort", stop);
  throwIfAborted(signal, "The evaluation");
  if (failures.length > 0) throw failures[0];
}
