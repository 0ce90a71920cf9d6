import { dirname, join } from "node:path";
import {
  consoleLogger,
  type FinishedRun,
  type RunOptions,
  type RunPlan,
  tensorBoardLogger,
} from "../../cookbook/runs/index.js";
import { defaultModel } from "../../local/default-model.js";
import { type CommandContext, UsageError } from "../context.js";
import { showRun } from "../dashboard.js";
import { hasServer, openService } from "../local-service.js";
import { printJson } from "../output/index.js";
import { defaultFolder, type RunCommandOptions } from "./run-options.js";

/** What a kind of training gets from the command line: where to train, and whom to tell. */
export type TrainingPlace = Required<Pick<RunOptions, "service" | "model" | "folder">> &
  Pick<RunOptions, "signal" | "pauseSignal" | "loggers">;

/** A kind of training. */
export interface TrainingKind {
  /** Names the folder, where the command line does not. */
  readonly file: string;
  /** For `--dry-run`. */
  plan(place: TrainingPlace): Promise<RunPlan>;
  train(place: TrainingPlace): Promise<FinishedRun>;
}

/** Trains, or says what it would do; what comes of it is printed. */
export async function runTrainingCommand(
  { file, plan, train }: TrainingKind,
  options: RunCommandOptions,
  context: CommandContext,
): Promise<void> {
  const isLocal = !hasServer(context);
  if (options.model === undefined && !isLocal) {
    throw new UsageError("which model? Give --model NAME (see tinkerts models)");
  }
  await using server = await openService(context, options.model ?? defaultModel.name, options);
  const model = server.baseModel ?? defaultModel.name;
  const folder = options.folder ?? defaultFolder(file, model);
  const place = { service: server.service, model, folder };
  const signal = context.interruption();
  const isJson = context.globals().format === "json";
  if (options.dryRun) {
    const { config, description } = await plan({ ...place, signal });
    if (isJson) printJson(context, { ...config, folder });
    else context.stdout.write(`${description}\n`);
    return;
  }
  const { dashboard } = options;
  await using _ =
    dashboard === false
      ? undefined
      : await showRun(context, { folder, server: server.shown, open: dashboard === true });
  const loggers = [
    consoleLogger({ screen: context.stderr }),
    ...(options.tensorboard ? [tensorBoardLogger(join(folder, "tensorboard"))] : []),
  ];
  const run = await train({ ...place, loggers, pauseSignal: signal });
  if (!run.isFinished)
    throw new Error(`paused after ${run.steps} steps; the same command goes on from there`);
  const { samplerPath, statePath, steps, metrics, best } = run;
  if (isJson) printJson(context, { samplerPath, statePath, steps, metrics, best, folder });
  else {
    context.notify(whatNext(run, folder, isLocal));
    context.stdout.write(`${samplerPath}\n`);
  }
}

function whatNext({ samplerPath, best }: FinishedRun, folder: string, isLocal: boolean): string {
  const chat = `tinkerts chat --model-path ${best?.samplerPath ?? samplerPath}`;
  const lines = [
    `Metrics and checkpoints are in ${folder}; \`tinkerts dashboard ${dirname(folder)}\` shows them.`,
    ...(best === undefined ? [] : [`The best weights, after ${best.batch} steps: ${best.samplerPath}`]),
    isLocal
      ? `To talk to it, run \`tinkerts serve\` in this folder, and in another terminal: ${chat} --base-url localhost:8642`
      : `To talk to it: ${chat}`,
  ];
  return lines.join("\n");
}
