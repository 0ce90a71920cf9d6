import * as f from "../../wire/fields/index.js";
import type { SweptSettings } from "./settings-grid.js";

/** How far a run of a sweep is. A run that a crash cut off stays `running` until the sweep goes on. */
export const SWEEP_STATUSES = ["waiting", "running", "finished", "paused", "failed"] as const;

/** One run of a sweep. */
export interface SweepRun {
  /** Its folder, within that of the sweep. */
  readonly folder: string;
  /** The options that it was trained with, besides those of all runs. */
  readonly settings: SweptSettings;
  readonly status: (typeof SWEEP_STATUSES)[number];
  /** The metric that the runs are compared by: at the end, or of the best weights if they were kept by it. */
  readonly value?: number | undefined;
  /** Cost of the run in dollars, where prices are known and it was not free. */
  readonly costUsd?: number | undefined;
  /** Number of steps trained. */
  readonly steps?: number | undefined;
  /** The trained weights, to sample from. */
  readonly samplerPath?: string | undefined;
  /** Path of the weights with the optimizer state, to continue training from. */
  readonly statePath?: string | undefined;
  /** Why the run failed or was paused, or why it has no value. */
  readonly error?: string | undefined;
}

/** A sweep as its `sweep.json` has it. */
export interface SweepRecord {
  readonly name: string;
  readonly metric: string;
  /** Whether the lowest or the highest value of the metric is the best. */
  readonly direction: "min" | "max";
  /** The recommended learning rate of the model, for sweeps of learning rates. */
  readonly recommendedLearningRate?: number | undefined;
  readonly runs: readonly SweepRun[];
}

/** The fields of `sweep.json`. */
export const SWEEP_RECORD = f.message(
  {
    name: f.text,
    metric: f.text,
    direction: f.oneOf("min", "max"),
    recommendedLearningRate: f.optional(f.positive),
    runs: f.list(
      f.message(
        {
          folder: f.value("the name of a folder in that of the sweep", (given) => {
            return typeof given === "string" && /^[\w-][\w.-]*$/.test(given);
          }),
          settings: f.customField((given, path): SweptSettings => {
            f.checkObject(given, path);
            return given;
          }),
          status: f.oneOf(...SWEEP_STATUSES),
          value: f.optional(f.number),
          costUsd: f.optional(f.nonNegative),
          steps: f.optional(f.nonNegativeInteger),
          samplerPath: f.optional(f.text),
          statePath: f.optional(f.text),
          error: f.optional(f.anyText),
        } satisfies f.FieldsOf<SweepRun>,
        { open: true },
      ),
    ),
  } satisfies f.FieldsOf<SweepRecord>,
  { open: true },
);

/** The runs with a value, the best first, and behind them the others. */
export function rankedRuns({
  runs,
  direction,
}: Pick<SweepRecord, "runs" | "direction">): readonly SweepRun[] {
  const sign = direction === "min" ? 1 : -1;
  const rank = ({ value }: SweepRun) => (value === undefined ? Number.POSITIVE_INFINITY : sign * value);
  return runs.toSorted((one, other) => (rank(one) === rank(other) ? 0 : rank(one) - rank(other)));
}
