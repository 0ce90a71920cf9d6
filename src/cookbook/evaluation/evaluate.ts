import type { SamplingClient } from "../../clients/index.js";
import { throwIfAborted } from "../../transport/index.js";
import * as f from "../../wire/fields/index.js";
import { CHAT_OPTIONS } from "../chat/chat.js";
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

/** Progress of an evaluation, for `onProgress`. */
export interface EvaluationProgress {
  /** Tasks with a result, including those of an earlier call. */
  readonly done: number;
  readonly total: number;
  /** Number of correct answers so far. */
  readonly numCorrect: number;
  readonly numErrors: number;
}

/** Options of `evaluate`; sampling options are those of `chat`, with a default temperature of 0.6. */
export interface EvaluateOptions extends Omit<ChatOptions, "tools" | "signal"> {
  readonly sampler: ChatSampler & Partial<Pick<SamplingClient, "getInfo">>;
  readonly tasks: TasksFrom;
  readonly grade: Grade;
  /** Name of the results. Default: `tasks`. */
  readonly name?: string | undefined;
  /** System message for tasks without one. */
  readonly system?: string | undefined;
  /** Answers per task; more than one gives pass@k. Default: 1. */
  readonly numSamples?: number | undefined;
  /** Values of `k` for pass@k. Default: 1, 5, 10, 25, 50 and 100 up to the number of samples, and that number. */
  readonly passAtK?: readonly number[] | undefined;
  /** Number of tasks that run at the same time. Default: 64. */
  readonly concurrency?: number | undefined;
  /**
   * Time limit of a task with its grading, in milliseconds; exceeding it is an error of this task. Default: 5 minutes.
   */
  readonly exampleTimeoutMs?: number | undefined;
  /** Folder for results. The same call continues where an earlier one stopped, and retries failed tasks. */
  readonly folder?: string | undefined;
  /** Other settings that the results depend on, such as a grader's version; a folder with other settings is refused. */
  readonly settings?: Readonly<Record<string, unknown>> | undefined;
  readonly onProgress?: ((progress: EvaluationProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

const NAME = /^[\w.-]*\w[\w.-]*$/;
const { tools: _tools, ...ANSWERING } = CHAT_OPTIONS;

/** The option table of `evaluate`. */
export const EVALUATE_OPTIONS = f.optionTable(
  {
    ...ANSWERING,
    temperature: f.defaulting(ANSWERING.temperature, 0.6),
    sampler: f.option(
      f.having<EvaluateOptions["sampler"]>("a SamplingClient", "sample"),
      "model that answers",
    ),
    tasks: f.option(f.opaque as f.Field<TasksFrom>, "tasks to answer"),
    grade: f.option(
      f.functionOf<Grade>("a function, as numberMatch() or one of your own"),
      "how good an answer is, from 0 to 1",
    ),
    name: f.option(
      f.withDefault(
        f.value<string>(
          "letters, digits, dots and dashes",
          (given) => typeof given === "string" && NAME.test(given),
        ),
        "tasks",
      ),
      "name of the results",
    ),
    system: f.option(f.optional(f.anyText), "system message for tasks that have none"),
    passAtK: f.option(f.optional(f.list(f.positiveInteger)), "the k of pass@k", {
      otherwise: "1, 5, 10, 25, 50, 100, as far as there are samples, and all",
    }),
    concurrency: f.option(f.withDefault(f.positiveInteger, 64), "tasks at a time"),
    exampleTimeoutMs: f.option(
      f.withDefault(f.positiveInteger, 300_000),
      "milliseconds for each task, with its grade",
    ),
    folder: f.option(f.optional(f.text), "where results are kept"),
    settings: f.option(
      f.optional(f.opaque as f.Field<Readonly<Record<string, unknown>>>),
      "what else the results depend on, as the version of a grader",
    ),
    onProgress: f.option(
      f.optional(f.functionOf<NonNullable<EvaluateOptions["onProgress"]>>()),
      "called as results come in",
    ),
  } satisfies f.OptionsOf<EvaluateOptions>,
  checkPassAtK,
);

/** A `k` of pass@k needs as many answers. */
export function checkPassAtK(
  options: Pick<EvaluateOptions, "passAtK"> & { readonly numSamples: number },
): void {
  const { passAtK = [], numSamples } = options;
  const wrong = passAtK.find((k) => k > numSamples);
  if (wrong !== undefined)
    throw f.wrongValue("passAtK", `a list of integers from 1 to numSamples (${numSamples})`, wrong);
}

/** Evaluates a model on tasks: samples answers, grades them, and returns scores. */
export async function evaluate(given: EvaluateOptions): Promise<EvaluationResult> {
  const startedAt = performance.now();
  const options = EVALUATE_OPTIONS.check(given, "evaluate");
  const { sampler, grade, name, numSamples, concurrency, signal } = options;
  const tasks = await readTasks(options.tasks, name, { needsAnswers: needsAnswers(grade) });
  const renderer =
    typeof options.renderer === "object" ? options.renderer : await rendererOf(sampler, options.renderer);
  const { exampleTimeoutMs, temperature, maxTokens, topK, topP, seed, stop, prefill, system } = options;
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

/**
 * Processes several items at a time; after the first failure no more are started, and it is thrown when the others have
 * ended.
 */
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
