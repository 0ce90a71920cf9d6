import { dirname, join } from "node:path";
import {
  consoleLogger,
  type FinishedRun,
  type RunOptions,
  type RunPlan,
  type TrainingLogger,
  tensorBoardLogger,
} from "../../cookbook/runs/index.js";
import { defaultModel } from "../../local/default-model.js";
import { isTinkerPath } from "../../wire/records/tinker-path.js";
import { type CommandContext, UsageError } from "../context.js";
import { showCommand, showRun } from "../dashboard.js";
import { BUILT_IN, hasServer, openService } from "../local-service.js";
import { namedModel } from "../named-model.js";
import { printable, printableLines, printJson, shellWord } from "../output/index.js";
import { askServer, baseModelOf, startOf } from "./ask-server.js";
import { defaultFolder, type RunCommandOptions } from "./run-options.js";

/** Options of a training run that the command line fills in. */
export type TrainingPlace = Required<Pick<RunOptions, "service" | "model" | "folder">> &
  Pick<RunOptions, "signal" | "pauseSignal" | "loggers" | "startFrom">;

/** A kind of training. */
export interface TrainingKind {
  /** Names the folder if the command line does not. */
  readonly file: string;
  /** The teacher, for kinds of training with one. */
  readonly teacher?: string;
  /** Makes the plan for `--dry-run`. */
  plan(place: TrainingPlace): Promise<RunPlan>;
  train(place: TrainingPlace): Promise<FinishedRun>;
}

/** Trains, or prints the plan of a dry run; then prints the result. */
export async function runTrainingCommand(
  { file, teacher, plan, train }: TrainingKind,
  options: RunCommandOptions,
  context: CommandContext,
): Promise<void> {
  const isLocal = !hasServer(context);
  if (options.model === undefined && !isLocal) {
    throw new UsageError("which model? Give --model NAME (see tinkerts models)");
  }
  const named = await namedModel(options.model ?? defaultModel.name);
  const startFrom = startOf(named, options);
  await using server = await openService(
    context,
    { ...named, statePath: isTinkerPath(startFrom) ? startFrom : undefined },
    { ...options, trains: true },
  );
  const signal = context.interruption();
  const model = server.model.baseModel ?? (await baseModelOf(server.service, startFrom!, signal));
  const folder = options.folder ?? defaultFolder(file, model);
  const place = { service: server.service, model, folder, ...(startFrom !== undefined && { startFrom }) };
  const isJson = context.globals().format === "json";
  if (options.dryRun) {
    const { config, description, estimate } = await plan({ ...place, signal });
    const isBuiltIn = server.shown.address === BUILT_IN;
    await askServer(server.service, { model, rank: options.rank, startFrom, teacher, isBuiltIn }, signal);
    if (isJson) printJson(context, { ...config, folder, ...(estimate && { estimate }) });
    else context.stdout.write(`${printableLines(description)}\n`);
    return;
  }
  const { dashboard } = options;
  await using _ =
    dashboard === false
      ? undefined
      : await showRun(context, { folder, server: server.shown, open: dashboard === true });
  const screen = consoleLogger({ screen: context.stderr });
  const loggers = [
    screen,
    interruptionHint(signal, () => screen.note?.("Ctrl-C again ends at once, without a checkpoint")),
    ...(options.tensorboard ? [tensorBoardLogger(join(folder, "tensorboard"))] : []),
  ];
  const run = await train({ ...place, loggers, pauseSignal: signal });
  if (!run.isFinished) throw new Error(`paused after ${run.steps} steps; ${howToContinue(run)}`);
  const { samplerPath, statePath, steps, metrics, best } = run;
  if (isJson) printJson(context, { samplerPath, statePath, steps, metrics, best, folder });
  else {
    // Not as a notice, which is broken between words to fit the terminal.
    context.stderr.write(`${printableLines(whatNext(run, folder))}\n`);
    context.stdout.write(`${printable(samplerPath)}\n`);
  }
}

function howToContinue({ paused }: FinishedRun): string {
  // The line above says how, and from which checkpoint.
  if (paused?.by === "divergence") return "the run has diverged: begin another one with other settings";
  if (paused?.by !== "budget") return "run the same command to continue";
  return "the same command with a larger --budget or --budget-tokens continues";
}

/** Commands stand on lines of their own, which are not wrapped, so that they can be copied. */
function whatNext({ best }: FinishedRun, folder: string): string {
  const lines = [
    ...(best === undefined ? [] : [`The best weights, after ${best.batch} steps:`, `  ${best.samplerPath}`]),
    "To talk to it, and to see its metrics, samples and checkpoints:",
    `  npx tinkerts chat --model ${shellWord(folder)}`,
    `  ${showCommand([dirname(folder)])}`,
    "Its weights:",
  ];
  return lines.join("\n");
}

/** At the first Ctrl-C of a run, says what a second one does. Before the run begins, the first one ends the process. */
function interruptionHint(signal: AbortSignal, say: () => void): TrainingLogger {
  // Printed after the line that says what the run waits for.
  const sayNext = () => void setImmediate(say);
  return {
    config: () => signal.addEventListener("abort", sayNext, { once: true }),
    metrics: () => {},
    close: () => signal.removeEventListener("abort", sayNext),
  };
}
