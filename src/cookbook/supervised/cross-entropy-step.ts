import type { TrainingClient } from "../../clients/index.js";
import type { Datum, ForwardBackwardOutput } from "../../wire/index.js";
import type { TrainingSpec } from "../runs/run-training.js";
import { adamAt, type RunSettings } from "../runs/settings.js";
import type { TrainingContext } from "../runs/training-loop.js";
import { lossTokens } from "./training-data.js";

/** The data of a step, how its pass is sent, and what is measured of it. */
export interface StepPass {
  readonly data: readonly Datum[];
  send(): PromiseLike<ForwardBackwardOutput>;
  /** A loss that is not a number ends the run. */
  measure(
    output: ForwardBackwardOutput,
    numTokens: number,
  ): { loss: number; metrics: Record<string, number> };
  /** Writes some of it down, for people. */
  readonly keep?: ((output: ForwardBackwardOutput) => Promise<void>) | undefined;
}

/** One pass and one update for each step, which sends its requests before those of the last one are answered. */
export function passStep<State>(
  settings: RunSettings,
  prepare: (training: TrainingClient, step: number, context: TrainingContext<State>) => Promise<StepPass>,
): TrainingSpec<State>["step"] {
  return async (training, step, context) => {
    const startedMs = performance.now();
    const { data, send, measure, keep } = await prepare(training, step, context);
    const madeMs = performance.now();
    const adam = adamAt(settings, step);
    const pass = send();
    const update = training.optimStep(adam, { signal: context.signal });
    const numTokens = sumOf(data, ({ modelInput }) => modelInput.length);
    context.countTokens(numTokens);
    const results = async () => {
      const output = await pass;
      const { loss, metrics } = measure(output, numTokens);
      context.checkLoss(loss);
      await keep?.(output);
      const updated = await update;
      const doneMs = performance.now();
      return {
        epoch: Math.floor(step / settings.stepsPerEpoch),
        progress: (step + 1) / settings.steps,
        learning_rate: adam.learningRate,
        ...updated.metrics,
        ...metrics,
        "time/get_batch": (madeMs - startedMs) / 1000,
        "time/step": (doneMs - madeMs) / 1000,
        "time/total": (doneMs - startedMs) / 1000,
      };
    };
    context.addMetrics(results());
  };
}

/** The data of a step that is trained by cross-entropy, and what is measured of its pass. */
export interface CrossEntropyBatch extends Pick<StepPass, "data" | "keep"> {
  measure(output: ForwardBackwardOutput): {
    readonly train_mean_nll: number;
    readonly [name: string]: number;
  };
}

/** Steps of `passStep` whose loss is the cross-entropy of their data. */
export function crossEntropyStep<State>(
  settings: RunSettings,
  makeBatch: (step: number, signal: AbortSignal) => Promise<CrossEntropyBatch>,
): TrainingSpec<State>["step"] {
  return passStep(settings, async (training, step, { signal }) => {
    const { data, measure, keep } = await makeBatch(step, signal);
    return {
      data,
      keep,
      send: () => training.forwardBackward(data, "cross_entropy", { signal }),
      measure: (output, numTokens) => {
        const measured = measure(output);
        const counts = { num_sequences: data.length, num_tokens: numTokens };
        const metrics = { ...counts, num_loss_tokens: sumOf(data, lossTokens), ...measured };
        return { loss: measured.train_mean_nll, metrics };
      },
    };
  });
}

function sumOf(batch: readonly Datum[], count: (datum: Datum) => number): number {
  return batch.reduce((sum, datum) => sum + count(datum), 0);
}
