import { adviceOf, type TriedRates } from "../runs/hyperparameters.js";
import { type FinishedRun, type RunPlan, runTraining } from "../runs/run-training.js";
import { type PreparedRows, planOf, prepareRows } from "../supervised/prepare-run.js";
import { checkRowsOptions, type RowsOptions } from "../supervised/rows-options.js";
import type { LabeledComparison } from "./comparison.js";
import { COMPARISONS, type ComparisonSource } from "./comparisons.js";
import { DpoTraining } from "./dpo-training.js";
import { type DpoLossOptions, dpoLoss, type PairLoss } from "./pair-losses.js";
import { renderPair } from "./pairs.js";
import type { ReferenceState } from "./reference.js";

/** What `trainDpo` needs; everything but `service`, `model` and `data` has a default. */
export interface TrainDpoOptions extends RowsOptions<LabeledComparison>, DpoLossOptions {
  /** What to learn from: `comparisons("pairs.jsonl")`. */
  readonly data: ComparisonSource;
}

const OWN_KEYS = ["beta", "labelSmoothing"] satisfies (keyof DpoLossOptions)[];

/** Rates that were found by trying. */
const TRIED_RATES: TriedRates = { "tinkerts/nano": 2e-4 };
const USUAL_RATE = { learningRate: 1e-5, reason: "usual for DPO" };

/** Reads and counts the comparisons, and decides every setting, without training anything. */
export async function planDpo(options: TrainDpoOptions): Promise<RunPlan> {
  return planOf((await prepareDpo(options)).rows);
}

/**
 * Trains a model to prefer the better of two answers, by direct preference optimization. The reference is the weights
 * that the run began with, also when it goes on from a checkpoint. Every batch is trained exactly once.
 */
export async function trainDpo(options: TrainDpoOptions): Promise<FinishedRun> {
  const { rows, loss } = await prepareDpo(options);
  await using _data = rows.data;
  const training = new DpoTraining(rows, loss);
  const { step, heldOut } = training;
  const run = await runTraining<ReferenceState>({ ...rows, options, step, heldOut });
  // Nobody needs it any more, and what cannot be deleted does no harm.
  if (run.isFinished && training.referencePath !== undefined)
    await options.service
      .createRestClient()
      .deleteCheckpoint(training.referencePath)
      .catch(() => {});
  return run;
}

async function prepareDpo(
  options: TrainDpoOptions,
): Promise<{ readonly rows: PreparedRows<LabeledComparison>; readonly loss: PairLoss }> {
  checkRowsOptions(options, { caller: "trainDpo", ownKeys: OWN_KEYS, rows: COMPARISONS });
  const { model, beta = 0.1, labelSmoothing = 0 } = options;
  const loss = dpoLoss({ beta, labelSmoothing });
  const rows = await prepareRows(options, {
    render: renderPair,
    emptyRow: "no two answers to tell apart",
    learning: `which answer is better, with beta ${beta}`,
    config: { dpo_beta: beta, label_smoothing: labelSmoothing },
    defaults: {
      learningRate: adviceOf(model, TRIED_RATES, () => USUAL_RATE),
      best: { metric: "test/dpo_loss", goal: "lower" },
    },
  });
  return { rows, loss };
}
