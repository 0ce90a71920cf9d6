import type { Datum, ForwardBackwardOutput } from "../../wire/index.js";
import type { TrainingSpec } from "../runs/run-training.js";
import { adamAt, type RunSettings } from "../runs/settings.js";
import { lossTokens } from "./training-data.js";

/** What a step trains on, and what is measured of its pass. */
export interface CrossEntropyBatch {
  readonly data: readonly Datum[];
  measure(output: ForwardBackwardOutput): {
    readonly train_mean_nll: number;
    readonly [name: string]: number;
  };
  /** Writes some of it down, for people. */
  keep?(output: ForwardBackwardOutput): Promise<void>;
}

/** One pass and one update for each step, which sends its requests before those of the last one are answered. */
export function crossEntropyStep<State>(
  settings: RunSettings,
  makeBatch: (step: number, signal: AbortSignal) => Promise<CrossEntropyBatch>,
): TrainingSpec<State>["step"] {
  return async (training, step, { signal, addMetrics, countTokens, checkLoss }) => {
    const startedMs = performance.now();
    const { data, measure, keep } = await makeBatch(step, signal);
    const madeMs = performance.now();
    const adam = adamAt(settings, step);
    const pass = training.forwardBackward(data, "cross_entropy", { signal });
    const update = training.optimStep(adam, { signal });
    const numTokens = sumOf(data, ({ modelInput }) => modelInput.length);
    countTokens(numTokens);
    const results = async () => {
      const output = await pass;
      const measured = measure(output);
      checkLoss(measured.train_mean_nll);
      await keep?.(output);
      const updated = await update;
      const doneMs = performance.now();
      return {
        epoch: Math.floor(step / settings.stepsPerEpoch),
        progress: (step + 1) / settings.steps,
        learning_rate: adam.learningRate,
        ...updated.metrics,
        num_sequences: data.length,
        num_tokens: numTokens,
        num_loss_tokens: sumOf(data, lossTokens),
        ...measured,
        "time/get_batch": (madeMs - startedMs) / 1000,
        "time/step": (doneMs - madeMs) / 1000,
        "time/total": (doneMs - startedMs) / 1000,
      };
    };
    addMetrics(results());
  };
}

function sumOf(batch: readonly Datum[], count: (datum: Datum) => number): number {
  return batch.reduce((sum, datum) => sum + count(datum), 0);
}
