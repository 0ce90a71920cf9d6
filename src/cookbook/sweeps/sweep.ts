import { messageOf } from "../../errors.js";
import { throwIfAborted } from "../../transport/index.js";
import * as f from "../../wire/fields/index.js";
import { recommendedLearningRate } from "../runs/hyperparameters.js";
import type { TrainingLogger } from "../runs/logger.js";
import type { RunOptions } from "../runs/options.js";
import type { FinishedRun } from "../runs/run-training.js";
import { trainSupervised } from "../supervised/train-supervised.js";
import {
  namesThatDiffer,
  type SweptSettings,
  settingsKey,
  settingsToTry,
  sweepRunFolder,
} from "./settings-grid.js";
import type { SweepFolder } from "./sweep-folder.node.js";
import { rankedRuns, type SweepRecord, type SweepRun } from "./sweep-record.js";

/** Settings of `sweep`: the training, the values to try, and the metric that compares the runs. */
export interface SweepOptions<O extends RunOptions = RunOptions> {
  /** Function that trains one run: `trainSupervised`, or any other of the cookbook's `train...` that returns one run. */
  readonly train: (options: O) => Promise<FinishedRun>;
  /** Options of all runs, without a folder. Data must be a file or a list, since each run reads it. */
  readonly options?: Partial<O> | undefined;
  /** Values to try of each option; every combination is a run. */
  readonly grid?: { readonly [K in keyof O]?: readonly O[K][] } | undefined;
  /** Settings to try, one object per run; with a grid as well, each of them with every combination. */
  readonly list?: readonly Partial<O>[] | undefined;
  /**
   * Folder of the sweep: `sweep.json`, and a folder for each run. The same call with the same folder continues where it
   * stopped, and tries failed runs again; with more values it trains those too.
   */
  readonly folder: string;
  /** Name for people. Default: the folder's. */
  readonly name?: string | undefined;
  /** Metric that the runs are compared by. Default: `test/nll`. */
  readonly metric?: string | undefined;
  /** Whether the lowest or the highest value is the best. Default: `max` for rewards, accuracies and scores, else `min`. */
  readonly direction?: "min" | "max" | undefined;
  /** Number of runs that are trained at the same time. Default: 1. */
  readonly atOnce?: number | undefined;
  /** Makes the loggers of a run. Default: none besides the files in its folder. */
  readonly loggers?: ((run: SweepRun) => readonly TrainingLogger[]) | undefined;
  /** Called when the status of a run changes. */
  readonly onChange?: ((run: SweepRun, sweep: SweepRecord) => void) | undefined;
  /** Aborts all runs at once; their checkpoints are kept. */
  readonly signal?: AbortSignal | undefined;
  /** Pauses the runs after their current step, with a checkpoint, and starts no further ones. */
  readonly pauseSignal?: AbortSignal | undefined;
}

/** A sweep that has ended, or was paused. */
export interface SweepResult extends SweepRecord {
  /** Whether all runs are finished; others are paused, or have failed. */
  readonly isFinished: boolean;
  /** The finished run with the best value of the metric. */
  readonly best: SweepRun | undefined;
}

const MAX_RUNS_AT_ONCE = 64;

/** The option table of `sweep`. */
export const SWEEP_OPTIONS = f.optionTable({
  train: f.option(f.functionOf<SweepOptions["train"]>(), "function that trains one run"),
  options: f.option(f.withDefault(objectField<Partial<RunOptions>>(), {}), "options of all runs"),
  grid: f.option(
    f.optional(objectField<NonNullable<SweepOptions["grid"]>>()),
    "values to try of each option",
  ),
  list: f.option(f.optional(f.list(objectField<Partial<RunOptions>>())), "settings to try"),
  folder: f.option(f.text, "folder of the sweep"),
  name: f.option(f.optional(f.text), "name for people", { otherwise: "the folder's" }),
  metric: f.option(f.withDefault(f.text, "test/nll"), "metric that the runs are compared by"),
  direction: f.option(f.optional(f.oneOf("min", "max")), "which value of the metric is the best", {
    otherwise: "max for rewards, accuracies and scores, else min",
  }),
  atOnce: f.option(
    f.withDefault(f.integerFrom(1, MAX_RUNS_AT_ONCE), 1),
    "runs that are trained at the same time",
  ),
  loggers: f.option(
    f.optional(f.functionOf<NonNullable<SweepOptions["loggers"]>>()),
    "makes the loggers of a run",
  ),
  onChange: f.option(
    f.optional(f.functionOf<NonNullable<SweepOptions["onChange"]>>()),
    "called when the status of a run changes",
  ),
  signal: f.option(f.optional(f.abortSignal), "ends all runs at once"),
  pauseSignal: f.option(f.optional(f.abortSignal), "pauses the runs after their current step"),
} satisfies f.OptionsOf<SweepOptions>);

type FilledSweepOptions = f.FilledMessage<typeof SWEEP_OPTIONS.fields>;

function objectField<T>(): f.Field<T> {
  return f.customField((given, path) => {
    f.checkObject(given, path);
    return given as T;
  });
}

/**
 * Trains a model with each setting of a grid or a list, some runs at a time, and compares them by a metric. A run that
 * fails does not end the others. The same call continues after a kill: finished runs return at once, and every step of
 * the others is trained exactly once.
 */
export async function sweep<O extends RunOptions>(given: SweepOptions<O>): Promise<SweepResult> {
  const options = SWEEP_OPTIONS.check(given, "sweep");
  for (const name of ["folder", "loggers", "signal", "pauseSignal"] as const)
    if (options.options[name] !== undefined)
      throw f.wrongField(`options.${name}`, `is an option of sweep itself`);
  const planned = settingsToTry(options as { readonly grid?: Readonly<Record<string, readonly unknown[]>> });
  const { SweepFolder } = await import("./sweep-folder.node.js");
  const folder = await SweepFolder.open(options.folder);
  try {
    return await new Sweep(options, folder, planned, await folder.read()).run();
  } finally {
    await folder.close();
  }
}

class Sweep {
  readonly #options: FilledSweepOptions;
  readonly #folder: SweepFolder;
  readonly #planned: ReadonlySet<string>;
  #record: SweepRecord;

  constructor(
    options: FilledSweepOptions,
    folder: SweepFolder,
    planned: readonly SweptSettings[],
    before: SweepRecord | undefined,
  ) {
    const { metric, direction = usualDirection(metric), name = folder.name } = options;
    this.#options = options;
    this.#folder = folder;
    this.#planned = new Set(planned.map(settingsKey));
    const runs = mergedRuns(planned, metric, before);
    this.#record = { name, metric, direction, ...recommendation(runs, options), runs };
  }

  async run(): Promise<SweepResult> {
    const { atOnce, signal, pauseSignal } = this.#options;
    await this.#folder.write(this.#record);
    const waiting = this.#record.runs.filter(({ settings }) => this.#planned.has(settingsKey(settings)));
    const worker = async () => {
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
        if (pauseSignal?.aborted || signal?.aborted) return;
        await this.#train(next);
      }
    };
    // An error here is not one of a run: the record could not be written.
    await Promise.all(Array.from({ length: atOnce }, worker));
    throwIfAborted(signal, "The sweep");
    const runs = this.#record.runs.filter(({ settings }) => this.#planned.has(settingsKey(settings)));
    const [best] = rankedRuns({ ...this.#record, runs: runs.filter(({ status }) => status === "finished") });
    return {
      ...this.#record,
      isFinished: runs.every(({ status }) => status === "finished"),
      best: best?.value === undefined ? undefined : best,
    };
  }

  async #train({ folder, settings }: SweepRun): Promise<void> {
    const { train, options, loggers, signal, pauseSignal } = this.#options;
    const running: SweepRun = { folder, settings, status: "running" };
    await this.#change(running);
    // Runs that share a client count each other's tokens.
    await using service = options.service?.clone();
    const outcome = await train({
      ...options,
      ...settings,
      ...(service && { service }),
      folder: this.#folder.runPath(folder),
      loggers: loggers?.(running) ?? [],
      signal,
      pauseSignal,
    } as RunOptions).then(
      (run) => this.#ended(running, run),
      (error: unknown): SweepRun => ({
        ...running,
        status: signal?.aborted || pauseSignal?.aborted ? "paused" : "failed",
        error: messageOf(error),
      }),
    );
    await this.#change(outcome);
  }

  #ended(running: SweepRun, run: FinishedRun): SweepRun {
    const { metric } = this.#record;
    const { isFinished, metrics, best, steps, samplerPath, statePath, paused } = run;
    const value = finite(best?.metric === metric ? best.value : metrics[metric]);
    const costUsd = finite(metrics["cost/usd"]);
    const numbers = Object.keys(metrics).filter((name) => finite(metrics[name]) !== undefined);
    const unmeasured = `it has no metric ${metric}, only ${numbers.join(", ")}`;
    const error =
      isFinished && value === undefined ? unmeasured : paused?.by === "budget" ? paused.reason : undefined;
    return {
      ...running,
      status: isFinished ? "finished" : "paused",
      ...(value !== undefined && { value }),
      ...(costUsd && { costUsd }),
      steps,
      samplerPath: best?.metric === metric ? best.samplerPath : samplerPath,
      statePath,
      ...(error !== undefined && { error }),
    };
  }

  async #change(run: SweepRun): Promise<void> {
    const runs = this.#record.runs.map((each) => (each.folder === run.folder ? run : each));
    this.#record = { ...this.#record, runs };
    await this.#folder.write(this.#record);
    this.#options.onChange?.(run, this.#record);
  }
}

const finite = (value: unknown) => (typeof value === "number" && Number.isFinite(value) ? value : undefined);

/** The planned runs in the folders that they have had, and behind them those of earlier plans. */
function mergedRuns(
  planned: readonly SweptSettings[],
  metric: string,
  before: SweepRecord | undefined,
): readonly SweepRun[] {
  const known = new Map((before?.runs ?? []).map((run) => [settingsKey(run.settings), run]));
  let number = Math.max(0, ...[...known.values()].map(({ folder }) => Number.parseInt(folder, 10) || 0));
  const runs = planned.map((settings): SweepRun => {
    const key = settingsKey(settings);
    const earlier = known.get(key);
    known.delete(key);
    // A finished one stays so until it is looked at again, with the metric that it was compared by.
    if (earlier?.status === "finished" && before?.metric === metric) return earlier;
    return { folder: earlier?.folder ?? sweepRunFolder(++number, settings), settings, status: "waiting" };
  });
  return [
    ...runs,
    ...[...known.values()].map((run) =>
      run.status === "running" ? { ...run, status: "paused" as const } : run,
    ),
  ];
}

function recommendation(
  runs: readonly SweepRun[],
  { train, options: { model } }: FilledSweepOptions,
): Pick<SweepRecord, "recommendedLearningRate"> {
  const isSwept = namesThatDiffer(runs).includes("learningRate");
  // Other kinds of training have other rates.
  const isKnown = typeof model === "string" && (train as unknown) === trainSupervised;
  return isSwept && isKnown ? { recommendedLearningRate: recommendedLearningRate(model) } : {};
}

function usualDirection(metric: string): "min" | "max" {
  return /reward|accuracy|score|correct|win/.test(metric) ? "max" : "min";
}
