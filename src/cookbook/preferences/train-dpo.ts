import { keptOptions, type OptionsOf, optionTable } from "../../wire/index.js";
import { adviceOf, type TriedRates } from "../runs/hyperparameters.js";
import { checkBest } from "../runs/options.js";
import { type FinishedRun, type RunPlan, runTraining } from "../runs/run-training.js";
import { type PreparedRows, planOf, prepareRows, tokensOf } from "../supervised/prepare-run.js";
import { type RowsOptions, rowsOptions } from "../supervised/rows-options.js";
import type { LabeledComparison } from "./comparison.js";
import { COMPARISONS, type ComparisonSource } from "./comparisons.js";
import { DpoTraining } from "./dpo-training.js";
import { DPO_LOSS_OPTIONS, type DpoLossOptions, dpoLoss, type PairLoss } from "./pair-losses.js";
import { renderPair } from "./pairs.js";
import type { ReferenceState } from "./reference.js";

/** Options of `trainDpo`; everything but `service`, `model` and `data` has a default. */
export interface TrainDpoOptions extends RowsOptions<LabeledComparison>, DpoLossOptions {
  /** Comparisons to train on: `comparisons("pairs.jsonl")`. */
  readonly data: ComparisonSource;
}

/** The option table of `trainDpo`. */
export const DPO_OPTIONS = optionTable(
  {
    ...rowsOptions<LabeledComparison>(COMPARISONS),
    ...DPO_LOSS_OPTIONS.fields,
  } satisfies OptionsOf<TrainDpoOptions>,
  checkBest,
);

/** Learning rates found by experiment. */
const TRIED_RATES: TriedRates = { "tinkerts/nano": 2e-4 };
const USUAL_RATE = { learningRate: 1e-5, reason: "usual for DPO" };

/** Reads and counts the comparisons, and decides every setting, without training anything. */
export async function planDpo(options: TrainDpoOptions): Promise<RunPlan> {
  return planOf((await prepareDpo(options)).rows);
}

/**
 * Trains a model to prefer the better of two answers, by direct preference optimization. The reference is the weights
 * at the start of the run, also after a resume. Every batch is trained exactly once.
 */
export async function trainDpo(options: TrainDpoOptions): Promise<FinishedRun> {
  const { rows, loss } = await prepareDpo(options);
  await using _data = rows.data;
  const training = new DpoTraining(rows, loss);
  const { step, heldOut } = training;
  const run = await runTraining<ReferenceState>({ ...rows, options, step, heldOut });
  // The reference is no longer needed; failing to delete it does no harm.
  if (run.isFinished && training.referencePath !== undefined)
    await options.service
      .createRestClient()
      .deleteCheckpoint(training.referencePath)
      .catch(() => {});
  return run;
}

async function prepareDpo(
  given: TrainDpoOptions,
): Promise<{ readonly rows: PreparedRows<LabeledComparison>; readonly loss: PairLoss }> {
  const options = DPO_OPTIONS.check(given, "trainDpo");
  const { model, beta, labelSmoothing } = options;
  const loss = dpoLoss({ beta, labelSmoothing });
  const rows = await prepareRows(options, {
    render: renderPair,
    emptyRow: "no two different answers",
    learning: `which answer is better, with beta ${beta}`,
    config: keptOptions(DPO_LOSS_OPTIONS.fields, options),
    // A custom loss: a forward pass and a backward pass. The reference reads each token once, and the last target too.
    stepTokens: ({ tokens, datums }) => ({ train: 2 * tokens, prefill: tokens + datums, sample: datums }),
    evaluationTokens: (test, evaluations) => ({
      train: tokensOf(test) * evaluations,
      prefill: tokensOf(test) + test.length,
      sample: test.length,
    }),
    defaults: {
      learningRate: adviceOf(model, TRIED_RATES, () => USUAL_RATE),
      best: { metric: "test/dpo_loss", goal: "lower" },
    },
  });
  return { rows, loss };
}
