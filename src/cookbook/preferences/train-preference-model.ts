import { Datum, type OptionsOf, optionTable } from "../../wire/index.js";
import type { MeasureWeights } from "../runs/evaluation.js";
import { checkBest } from "../runs/options.js";
import { type FinishedRun, type RunPlan, runTraining } from "../runs/run-training.js";
import { crossEntropyStep } from "../supervised/cross-entropy-step.js";
import { scoredTokens } from "../supervised/held-out.js";
import { meanNll } from "../supervised/likelihood.js";
import {
  type PreparedRows,
  planOf,
  prepareRows,
  type Rendering,
  tokensOf,
} from "../supervised/prepare-run.js";
import { type RowsOptions, rowsOptions } from "../supervised/rows-options.js";
import type { RenderedRow } from "../supervised/training-data.js";
import { type LabeledComparison, swapComparison } from "./comparison.js";
import { labelDatum } from "./comparison-format.js";
import { COMPARISONS, type ComparisonSource } from "./comparisons.js";

/** Options of `trainPreferenceModel`; everything but `service`, `model` and `data` has a default. */
export interface TrainPreferenceModelOptions extends RowsOptions<LabeledComparison> {
  /** Comparisons to train on: `comparisons("pairs.jsonl")`. */
  readonly data: ComparisonSource;
}

/** Reads and counts the comparisons, and decides every setting, without training anything. */
export async function planPreferenceModel(options: TrainPreferenceModelOptions): Promise<RunPlan> {
  return planOf(await prepare(options));
}

/**
 * Trains a model to say which of two answers is better: it learns the label of each comparison, shown in both orders.
 * `preferenceModel(sampler)` makes a judge of it.
 */
export async function trainPreferenceModel(options: TrainPreferenceModelOptions): Promise<FinishedRun> {
  const prepared = await prepare(options);
  await using rows = prepared.data;
  return await runTraining({
    ...prepared,
    options,
    heldOut: labelAccuracy(rows.test),
    step: crossEntropyStep(prepared.settings, async (step) => {
      const data = (await rows.rows(step)).flatMap((row) => row.data);
      return { data, measure: (output) => ({ train_mean_nll: meanNll(scoredTokens(data, output)) }) };
    }),
  });
}

/** The option table of `trainPreferenceModel`. */
export const PREFERENCE_MODEL_OPTIONS = optionTable(
  rowsOptions<LabeledComparison>(COMPARISONS) satisfies OptionsOf<TrainPreferenceModelOptions>,
  checkBest,
);

async function prepare(given: TrainPreferenceModelOptions): Promise<PreparedRows<LabeledComparison>> {
  const options = PREFERENCE_MODEL_OPTIONS.check(given, "trainPreferenceModel");
  return prepareRows(options, {
    render: renderLabels,
    emptyRow: "no label",
    learning: "which answer is better",
    config: { train_on_what: "preference_label" },
    evaluationTokens: (test, evaluations) => ({
      train: (tokensOf(test) + tokensOf([...wrongLabels(test).values()])) * evaluations,
    }),
  });
}

/** Rows that are cut lose their label, which is at the end. */
function renderLabels(comparison: LabeledComparison, { renderer, maxLength }: Rendering): RenderedRow {
  const data = [comparison, swapComparison(comparison)].map((each) => labelDatum(each, renderer));
  const isTooLong = maxLength !== undefined && data.some(({ modelInput }) => modelInput.length >= maxLength);
  return { data: isTooLong ? [] : data, isCut: isTooLong, hadAnswer: true };
}

/**
 * The mean NLL of the held-out labels, and how often the right label is likelier than the wrong one; ties have none.
 */
function labelAccuracy(test: readonly Datum[]): MeasureWeights | undefined {
  if (test.length === 0) return undefined;
  const wrong = wrongLabels(test);
  const decided = [...wrong.keys()];
  return async (training, signal) => {
    const data = [...test, ...wrong.values()];
    const output = await training.forward(data, "cross_entropy", { signal });
    const scored = scoredTokens(data, output);
    const likelihood = (place: number) => Number(scored[place]!.logprobs[scored[place]!.logprobs.length - 1]);
    const right = decided.filter((place, order) => likelihood(place) > likelihood(test.length + order));
    return {
      "test/nll": meanNll(scored.slice(0, test.length)),
      ...(decided.length > 0 && { "test/accuracy": right.length / decided.length }),
    };
  };
}

/** Each decided label of `test` turned round, by its place; a tie has no wrong label. */
function wrongLabels(test: readonly Datum[]): ReadonlyMap<number, Datum> {
  const wrong = new Map<number, Datum>();
  for (const [place, datum] of test.entries()) {
    // Each comparison appears in both orders, so that the label of one is the wrong label of the other.
    const label = labelOf(test[place % 2 === 0 ? place + 1 : place - 1]!);
    if (label !== labelOf(datum)) wrong.set(place, withLabel(datum, label));
  }
  return wrong;
}

function labelOf({ lossFnInputs }: Datum): number {
  return Number(lossFnInputs["targetTokens"]!.toDense().data.at(-1));
}

function withLabel({ modelInput, lossFnInputs }: Datum, label: number): Datum {
  const targetTokens = Int32Array.from(lossFnInputs["targetTokens"]!.toDense().data);
  targetTokens[targetTokens.length - 1] = label;
  return new Datum({ modelInput, lossFnInputs: { ...lossFnInputs, targetTokens } });
}
