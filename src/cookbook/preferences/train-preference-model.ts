import { Datum } from "../../wire/index.js";
import type { MeasureWeights } from "../runs/evaluation.js";
import { type FinishedRun, type RunPlan, runTraining } from "../runs/run-training.js";
import { crossEntropyStep } from "../supervised/cross-entropy-step.js";
import { scoredTokens } from "../supervised/held-out.js";
import { meanNll } from "../supervised/likelihood.js";
import { type PreparedRows, planOf, prepareRows, type Rendering } from "../supervised/prepare-run.js";
import { checkRowsOptions, type RowsOptions } from "../supervised/rows-options.js";
import type { RenderedRow } from "../supervised/training-data.js";
import { type LabeledComparison, swapComparison } from "./comparison.js";
import { labelDatum } from "./comparison-format.js";
import { COMPARISONS, type ComparisonSource } from "./comparisons.js";

/** What `trainPreferenceModel` needs; everything but `service`, `model` and `data` has a default. */
export interface TrainPreferenceModelOptions extends RowsOptions<LabeledComparison> {
  /** What to learn from: `comparisons("pairs.jsonl")`. */
  readonly data: ComparisonSource;
}

/** Reads and counts the comparisons, and decides every setting, without training anything. */
export async function planPreferenceModel(options: TrainPreferenceModelOptions): Promise<RunPlan> {
  return planOf(await prepare(options));
}

/**
 * Trains a model to say which of two answers is better: the label of each comparison, which is shown both ways round.
 * `preferenceModel(sampler)` asks it.
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

/** Refuses what no run could be made of, before anything is read or sent. */
export function checkPreferenceModelOptions(options: TrainPreferenceModelOptions): void {
  checkRowsOptions(options, { caller: "trainPreferenceModel", ownKeys: [], rows: COMPARISONS });
}

async function prepare(options: TrainPreferenceModelOptions): Promise<PreparedRows<LabeledComparison>> {
  checkPreferenceModelOptions(options);
  return prepareRows(options, {
    render: renderLabels,
    emptyRow: "no label",
    learning: "which answer is better",
    config: { train_on_what: "preference_label" },
  });
}

/** What is cut has lost its label, which stands at the end. */
function renderLabels(comparison: LabeledComparison, { renderer, maxLength }: Rendering): RenderedRow {
  const data = [comparison, swapComparison(comparison)].map((each) => labelDatum(each, renderer));
  const isTooLong = maxLength !== undefined && data.some(({ modelInput }) => modelInput.length >= maxLength);
  return { data: isTooLong ? [] : data, isCut: isTooLong, hadAnswer: true };
}

/** How likely the held-out labels are, and how often the right one is likelier than the wrong one; ties have none. */
function labelAccuracy(test: readonly Datum[]): MeasureWeights | undefined {
  if (test.length === 0) return undefined;
  // Each comparison stands both ways round, so that the label of one is the wrong label of the other.
  const wrong = test.map((datum, place) =>
    withLabel(datum, labelOf(test[place % 2 === 0 ? place + 1 : place - 1]!)),
  );
  const decided = [...test.keys()].filter((place) => labelOf(wrong[place]!) !== labelOf(test[place]!));
  return async (training, signal) => {
    const data = [...test, ...decided.map((place) => wrong[place]!)];
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

function labelOf({ lossFnInputs }: Datum): number {
  return Number(lossFnInputs["targetTokens"]!.toDense().data.at(-1));
}

function withLabel({ modelInput, lossFnInputs }: Datum, label: number): Datum {
  const targetTokens = Int32Array.from(lossFnInputs["targetTokens"]!.toDense().data);
  targetTokens[targetTokens.length - 1] = label;
  return new Datum({ modelInput, lossFnInputs: { ...lossFnInputs, targetTokens } });
}
