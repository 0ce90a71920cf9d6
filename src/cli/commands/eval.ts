import { basename } from "node:path";
import type { SamplingClient } from "tinkerts";
import { prepareChat } from "../../cookbook/chat/chat.js";
import { rendererOf } from "../../cookbook/chat/index.js";
import { needsAnswers } from "../../cookbook/evaluation/graders.js";
import {
  CHOICE_LETTERS,
  EVALUATE_OPTIONS,
  type EvaluateOptions,
  evaluate,
} from "../../cookbook/evaluation/index.js";
import { readTasks, type Task, withSystem } from "../../cookbook/evaluation/tasks.js";
import type { Renderer } from "../../renderers/index.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { addDeviceOptions, type DeviceOptions } from "../device-options.js";
import { checkGrade, type GradeOptions, readGrade } from "../eval/grade-option.js";
import { report, totalFailure } from "../eval/report.js";
import { openService } from "../local-service.js";
import { MODEL_HELP, namedModel, samplingSource } from "../named-model.js";
import { flagOf, helpOf } from "../option-flags.js";
import { duration, gathered, wholeNumber } from "../option-values.js";
import { printableLines, printDone, progressBar } from "../output/index.js";
import { addSamplingOptions, type SamplingOptions, samplingParamsFrom } from "../sampling-options.js";

interface EvalOptions extends GradeOptions, SamplingOptions, DeviceOptions {
  readonly system?: string;
  readonly renderer?: string;
  readonly samples: number;
  readonly passAt?: readonly number[];
  readonly limit?: number;
  readonly concurrency?: number;
  readonly taskTime?: number;
  readonly folder?: string;
  readonly dryRun?: true;
}

const MAX_SAMPLES = 1024;
const MAX_TASKS = 10_000_000;
const { fields: FIELDS } = EVALUATE_OPTIONS;

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<tasks>", "a file with a task a row: .jsonl, .json, .csv, .tsv or .parquet")
    .option("--model <model>", MODEL_HELP)
    .option("--grade <way>", "exact, number, choice, judge, or your own module, such as ./my-grade.mjs")
    .option("--letters <letters>", "allowed choices, for --grade choice", CHOICE_LETTERS)
    .option("--judge-model <name>", "model that judges, for --grade judge: like --model")
    .option("--rubric <text>", "what a correct answer is, for --grade judge")
    .option(
      "--samples <number>",
      FIELDS.numSamples.notes.help,
      wholeNumber(1, MAX_SAMPLES),
      FIELDS.numSamples.fallback,
    )
    .option(
      "--pass-at <number>",
      `${helpOf(FIELDS.passAtK)}; repeatable`,
      gathered(wholeNumber(1, MAX_SAMPLES)),
    )
    .addOption(flagOf("system", FIELDS.system))
    .option("--renderer <name>", helpOf(FIELDS.renderer))
    .option("--limit <number>", "only the first tasks of the file", wholeNumber(1, MAX_TASKS));
  const minutes = FIELDS.exampleTimeoutMs.fallback! / 60_000;
  addSamplingOptions(command, FIELDS)
    .addOption(flagOf("concurrency", FIELDS.concurrency))
    .option("--task-time <time>", `time limit per task, in s, m or h (default: ${minutes}m)`, duration)
    .option("--folder <folder>", `${helpOf(FIELDS.folder)}; the same command resumes`)
    .option("--dry-run", "check the tasks and show the first prompt, without sampling");
  addDeviceOptions(command).action((tasks: string, options: EvalOptions) =>
    evaluateTasks(tasks, options, context),
  );
};

async function evaluateTasks(file: string, options: EvalOptions, context: CommandContext): Promise<void> {
  const { limit } = options;
  const model = await namedModel(options.model);
  checkOptions(options);
  await using server = await openService(context, model, options);
  const { service } = server;
  const grading = await readGrade(options, service);
  const name = nameOf(file);
  const tasks = await readTasks(file, name, { needsAnswers: needsAnswers(grading.grade) });
  const wanted = tasks.slice(0, limit);
  const signal = context.interruption();
  const sampler = await service.createSamplingClient({ ...samplingSource(server.model), signal });
  const renderer = await rendererOf(sampler, options.renderer);
  if (options.dryRun) await showPlan(context, { sampler, renderer }, wanted, options);
  else {
    const settings = { ...grading.settings, renderer: options.renderer };
    const chosen = { ...evaluateOptions(options), grade: grading.grade, settings };
    await runTasks(context, wanted, { ...chosen, sampler, renderer, name, signal });
  }
}

function checkOptions(options: EvalOptions): void {
  const { passAt = [], samples } = options;
  const tooMany = passAt.find((k) => k > samples);
  if (tooMany !== undefined) throw new UsageError(`--pass-at ${tooMany} needs --samples ${tooMany} or more`);
  checkGrade(options);
}

function evaluateOptions(options: EvalOptions) {
  const { system, folder, samples, passAt, concurrency, taskTime } = options;
  return {
    ...samplingParamsFrom(options, FIELDS),
    system,
    folder,
    concurrency,
    numSamples: samples,
    passAtK: passAt,
    exampleTimeoutMs: taskTime,
  };
}

type RunOptions = Omit<EvaluateOptions, "tasks" | "onProgress"> & {
  readonly name: string;
  readonly signal: AbortSignal;
};

async function runTasks(context: CommandContext, tasks: readonly Task[], options: RunOptions): Promise<void> {
  const { folder, name, signal } = options;
  const bar = progressBar(context, "answering", "items");
  let done = 0;
  const running = evaluate({
    ...options,
    tasks: tasks.map(({ row, id }) => ({ ...row, id })),
    onProgress: (progress) => {
      done = progress.done;
      bar.update(done, progress.total);
    },
  });
  const result = await running
    .finally(() => bar.end())
    .catch((error: unknown) => {
      if (signal.aborted) context.notify(whatIsKept(folder, done, tasks.length));
      throw error;
    });
  const failure = totalFailure(result);
  if (failure !== undefined) throw new Error(`no task could be done: ${failure}`);
  report(context, result, tasks);
  if (folder !== undefined) context.notify(`\nEvery answer is in ${folder}/${name}/trajectories.jsonl.`);
}

function whatIsKept(folder: string | undefined, done: number, total: number): string {
  return folder === undefined
    ? `${done} of ${total} tasks were done, and nothing is kept: with --folder run the same command to continue.`
    : `${done} of ${total} tasks are done: run the same command to continue.`;
}

/** Results are identified by the file's name. */
function nameOf(file: string): string {
  const name = basename(file).replace(/\.(?:jsonl?|csv|tsv|parquet)(?:\.gz)?$/i, "");
  return name.replaceAll(/[^\w.-]+/g, "-").replace(/^\W+$/, "tasks") || "tasks";
}

async function showPlan(
  context: CommandContext,
  { sampler, renderer }: { readonly sampler: SamplingClient; readonly renderer: Renderer },
  tasks: readonly Task[],
  { system, samples }: EvalOptions,
): Promise<void> {
  const prompts = await Promise.all(
    tasks.map(async ({ messages, tools }) => {
      const chat = await prepareChat(sampler, withSystem(messages, system), { renderer, tools });
      return chat.prompt;
    }),
  );
  const lengths = prompts.map((prompt) => prompt.length);
  const promptTokens = lengths.reduce((sum, length) => sum + length, 0);
  const longestPrompt = lengths.reduce((most, length) => Math.max(most, length), 0);
  const first = prompts[0]!.isText ? renderer.tokenizer.decode(prompts[0]!.toInts()) : "";
  const facts = { tasks: tasks.length, answers: tasks.length * samples, promptTokens, longestPrompt };
  printDone(
    context,
    `${facts.tasks} tasks, ${facts.answers} answers. Prompts have ${promptTokens} tokens together, the longest ${longestPrompt}. ` +
      "Nothing was sampled. The first one, as the model reads it:",
    facts,
  );
  if (context.globals().format === "table") context.stdout.write(`\n${printableLines(first)}\n`);
}
