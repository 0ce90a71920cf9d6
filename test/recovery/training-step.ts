import type { TrainingClient } from "../../src/index.js";

export const STEPS = 60;
export const CHECKPOINT_EVERY = 7;

const datum = (first: number) => {
  const tokens = Array.from({ length: 12 }, (_, index) => (first * 7 + index * 3) % 50);
  const targets = tokens.map((token) => (token * 5 + first) % 50);
  return { modelInput: tokens, lossFnInputs: { targetTokens: targets, weights: targets.map(() => 1 / 12) } };
};

/** A step whose data and settings follow from its number alone. */
export function trainStep(training: TrainingClient, step: number) {
  const pass = training.forwardBackward([datum(step % 5), datum((step * 3) % 11)], "cross_entropy");
  training.optimStep({ learningRate: 1e-2 / (1 + step / 20), gradClipNorm: 1, weightDecay: 0.01 });
  return pass.map(({ metrics }) => metrics["loss:sum"]);
}
