import { basename } from "node:path";
import { Option } from "commander";
import type { SamplingClient } from "tinkerts";
import { prepareChat } from "../../cookbook/chat/chat.js";
import { rendererOf } from "../../cookbook/chat/index.js";
import { needsAnswers } from "../../cookbook/evaluation/graders.js";
import { type EvaluateOptions, evaluate } from "../../cookbook/evaluation/index.js";
import { readTasks, type Task, withSystem } from "../../cookbook/evaluation/tasks.js";
import type { Renderer } from "../../renderers/index.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { addDeviceOptions, type DeviceOptions } from "../device-options.js";
import { checkGrade, type GradeOptions, readGrade } from "../eval/grade-option.js";
import { report, totalFailure } from "../eval/report.js";
import { openService } from "../local-service.js";
import { duration, gathered, wholeNumber } from "../option-values.js";
import { printableLines, printDone, progressBar } from "../output/index.js";
import { addSamplingOptions, type SamplingOptions, samplingParams } from "../sampling-options.js";

interface EvalOptions extends GradeOptions, SamplingOptions, DeviceOptions {
  readonly model?: string;
  readonly checkpoint?: string;
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
const MAX_CONCURRENCY = 4096;
const MAX_TASKS = 10_000_000;
const TEMPERATURE = 0.6;

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<tasks>", "a file with a task a line: .jsonl, .jsonl.gz or .parquet")
    .option("--model <name>", "a model of the server; without a server also a Hugging Face id or a folder")
    .addOption(
      new Option("--checkpoint <tinker-path>", "weights saved for sampling, as tinker://...").conflicts(
        "model",
      ),
    )
    .option("--grade <way>", "exact, number, choice, judge, or a module of your own such as ./my-grade.mjs")
    .option("--letters <letters>", "what may be chosen, for --grade choice", "ABCD")
    .option("--judge-model <name>", "the model or the tinker:// path that judges, for --grade judge")
    .option("--rubric <text>", "what makes an answer right, for --grade judge")
    .option("--samples <number>", "answers to each task", wholeNumber(1, MAX_SAMPLES), 1)
    .option(
      "--pass-at <number>",
      "the k of pass@k; may be repeated (default: 1, 5, 10 and so on, where there are samples)",
      gathered(wholeNumber(1, MAX_SAMPLES)),
    )
    .option("--system <text>", "a system message for tasks that have none")
    .option("--renderer <name>", "how conversations are written (default: what fits the model)")
    .option("--limit <number>", "only the first tasks of the file", wholeNumber(1, MAX_TASKS));
  addSamplingOptions(command, { temperature: TEMPERATURE })
    .option("--concurrency <number>", "tasks at a time (default: 64)", wholeNumber(1, MAX_CONCURRENCY))
    .option("--task-time <time>", "longest time for a task, in s, m or h (default: 5m)", duration)
    .option("--folder <folder>", "keep the results there; the same command goes on where it stopped")
    .option("--dry-run", "check the tasks, and show how the first one is asked");
  addDeviceOptions(command).action((tasks: string, options: EvalOptions) =>
    evaluateTasks(tasks, options, context),
  );
};

async function evaluateTasks(file: string, options: EvalOptions, context: CommandContext): Promise<void> {
  const { model, checkpoint, limit } = options;
  checkOptions(options);
  await using server = await openService(context, model, options);
  const { service, baseModel = "" } = server;
  const grading = await readGrade(options, service);
  const name = nameOf(file);
  const tasks = await readTasks(file, name, { needsAnswers: needsAnswers(grading.grade) });
  const wanted = tasks.slice(0, limit);
  const signal = context.interruption();
  const source = checkpoint === undefined ? { baseModel } : { modelPath: checkpoint };
  const sampler = await service.createSamplingClient({ ...source, signal });
  const renderer = await rendererOf(sampler, options.renderer);
  if (options.dryRun) await showPlan(context, { sampler, renderer }, wanted, options);
  else {
    const settings = { ...grading.settings, renderer: options.renderer };
    const chosen = { ...evaluateOptions(options), grade: grading.grade, settings };
    await runTasks(context, wanted, { ...chosen, sampler, renderer, name, signal });
  }
}

function checkOptions(options: EvalOptions): void {
  const { model, checkpoint, passAt = [], samples } = options;
  if (model === undefined && checkpoint === undefined) {
    throw new UsageError("which model? Give --model NAME (see tinkerts models) or --checkpoint tinker://...");
  }
  const tooMany = passAt.find((k) => k > samples);
  if (tooMany !== undefined) throw new UsageError(`--pass-at ${tooMany} needs --samples ${tooMany} or more`);
  checkGrade(options);
}

function evaluateOptions(options: EvalOptions) {
  const { system, folder, samples, passAt, concurrency, taskTime } = options;
  return {
    ...samplingParams(options),
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
    ? `${done} of ${total} tasks were done, and nothing is kept: with --folder the same command goes on from there.`
    : `${done} of ${total} tasks are done: the same command goes on from there.`;
}

/** The results are known by the name of the file. */
function nameOf(file: string): string {
  const name = basename(file).replace(/\.(?:jsonl|json|parquet)(?:\.gz)?$/i, "");
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
