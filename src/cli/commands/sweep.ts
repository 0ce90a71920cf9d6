import { basename, join } from "node:path";
import type { RunOptions } from "../../cookbook/runs/index.js";
import { type SweepResult, settingsToTry, sweep } from "../../cookbook/sweeps/index.js";
import { defaultModel } from "../../local/default-model.js";
import { isTinkerPath } from "../../wire/records/tinker-path.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { showCommand, showRun } from "../dashboard.js";
import { addDeviceOptions, type DeviceOptions } from "../device-options.js";
import { hasServer, openService } from "../local-service.js";
import { namedModel } from "../named-model.js";
import { wholeNumber } from "../option-values.js";
import { printList } from "../output/index.js";
import { kindOf } from "../sweep/kinds.js";
import { readPlan, type SweepPlan } from "../sweep/plan-file.js";
import { printSweep, settingHeader } from "../sweep/report.js";
import { SweepDisplay } from "../sweep/sweep-display.js";
import { baseModelOf, startOf } from "../train/ask-server.js";

interface SweepFlags extends DeviceOptions {
  readonly model?: string;
  readonly folder?: string;
  readonly metric?: string;
  readonly atOnce?: number;
  readonly dryRun?: true;
  readonly dashboard?: boolean;
}

const MAX_AT_ONCE = 64;

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<plan>", "what to train and which settings to try: .yaml, .json, .ts or .mjs")
    .option("--model <model>", "base model (default: that of the plan)")
    .option("--folder <folder>", "where the sweep is kept (default: that of the plan, else sweeps/PLAN)")
    .option(
      "--metric <name>",
      "metric that the runs are compared by (default: that of the plan, else test/nll)",
    )
    .option(
      "--at-once <number>",
      "number of runs that are trained at the same time",
      wholeNumber(1, MAX_AT_ONCE),
    )
    .option("--dashboard", "open the sweep in the browser")
    .option("--no-dashboard", "do not serve the dashboard")
    .option("--dry-run", "check the plan and list the runs, without training");
  addDeviceOptions(command).action((file: string, flags: SweepFlags) => runSweep(file, flags, context));
};

async function runSweep(file: string, flags: SweepFlags, context: CommandContext): Promise<void> {
  const plan = await readPlan(file);
  const kind = await kindOf(plan);
  const runs = settingsToTry(plan as { readonly grid?: Readonly<Record<string, readonly unknown[]>> });
  if (flags.dryRun) {
    listRuns(context, runs);
    return;
  }
  const model = flags.model ?? plan.model;
  if (model === undefined && hasServer(context))
    throw new UsageError("which model? Give --model NAME, or model in the plan (see tinkerts models)");
  const named = await namedModel(model ?? defaultModel.name);
  const { startFrom: given } = plan.options as Pick<RunOptions, "startFrom">;
  const startFrom = startOf(named, { ...(given !== undefined && { startFrom: given }) });
  await using server = await openService(
    context,
    { ...named, statePath: isTinkerPath(startFrom) ? startFrom : undefined },
    { ...flags, trains: true },
  );
  const pauseSignal = context.interruption();
  const baseModel = server.model.baseModel ?? (await baseModelOf(server.service, startFrom!, pauseSignal));
  const folder = flags.folder ?? plan.folder ?? defaultFolder(file);
  const { dashboard } = flags;
  await using _ =
    dashboard === false
      ? undefined
      : await showRun(context, { folder, server: server.shown, open: dashboard === true });
  const display = new SweepDisplay(context);
  const result = await sweep({
    ...sweepSettings(plan, flags),
    train: kind.train,
    options: {
      ...kind.options,
      ...plan.options,
      // Those of the files have been read: a teacher may be the folder of a run.
      ...("teacher" in kind.options && { teacher: kind.options["teacher"] }),
      service: server.service,
      model: baseModel,
      ...(startFrom !== undefined && { startFrom }),
    },
    folder,
    loggers: (run) => display.loggers(run),
    onChange: (run, record) => display.change(run, record),
    pauseSignal,
  }).finally(() => display.clear());
  report(context, result, folder);
}

/** Settings of the sweep itself: those of the plan, overridden by flags. */
function sweepSettings({ name, grid, list, metric, direction, atOnce }: SweepPlan, flags: SweepFlags) {
  const given = {
    name,
    grid,
    list,
    metric: flags.metric ?? metric,
    direction,
    atOnce: flags.atOnce ?? atOnce,
  };
  return given as { readonly grid?: Record<string, readonly unknown[]>; readonly metric?: string };
}

function listRuns(context: CommandContext, runs: readonly Readonly<Record<string, unknown>>[]): void {
  const names = [...new Set(runs.flatMap((settings) => Object.keys(settings)))];
  const columns = names.map((name) => ({
    header: settingHeader(name),
    name,
    value: (settings: Readonly<Record<string, unknown>>) => {
      const value = settings[name];
      return typeof value === "string" || typeof value === "number" ? value : JSON.stringify(value);
    },
  }));
  printList(context, runs, { columns, empty: "no runs" });
  context.notify(`${runs.length} ${runs.length === 1 ? "run" : "runs"}`);
}

/** sweeps/PLAN, beside the runs of other commands. */
const defaultFolder = (file: string) => join("sweeps", basename(file).replace(/\.[^.]+$/, ""));

function report(context: CommandContext, result: SweepResult, folder: string): void {
  const { best, metric, recommendedLearningRate: recommended } = result;
  printSweep(context, result, result);
  if (recommended !== undefined)
    context.notify(`The recommended learning rate of the model is ${recommended}.`);
  if (best !== undefined) {
    const setting = Object.entries(best.settings).map(([name, value]) => `${name} ${JSON.stringify(value)}`);
    context.notify(
      `The best ${metric} has ${setting.join(", ")}. To see the runs:\n  ${showCommand([folder])}`,
    );
  }
  const count = (status: string) => result.runs.filter((run) => run.status === status).length;
  if (count("failed") > 0)
    throw new Error(
      `${count("failed")} of ${result.runs.length} runs failed; run the same command to try them again`,
    );
  if (result.isFinished) return;
  const isUsedUp = result.runs.some(({ status, error }) => status === "paused" && error !== undefined);
  throw new Error(
    isUsedUp
      ? "a budget is used up; the same command with a larger one in the plan's options continues"
      : "paused; run the same command to continue",
  );
}
