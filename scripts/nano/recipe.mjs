// How tinkerts/nano is pretrained.
export const recipe = {
  seed: 1,
  /** Standard deviation of the initial matrices. */
  deviation: 0.04,
  /** Rows of tokens in a step, and the length of each. */
  rows: 8,
  length: 256,
  steps: 2686,
  learningRate: 2e-3,
  beta1: 0.9,
  beta2: 0.98,
  eps: 1e-8,
  /** On matrices only. */
  weightDecay: 0.05,
  gradClipNorm: 1,
  warmupSteps: 100,
  /** The learning rate is constant for this share of the steps, then falls in a line to its last value. */
  constantShare: 0.6,
  lastLearningRate: 4e-5,
};

/** The learning rate of a step, the first being 0. */
export function learningRateAt(step, steps) {
  const { learningRate, lastLearningRate, warmupSteps, constantShare } = recipe;
  const warm = Math.min(1, (step + 1) / warmupSteps);
  const fallen = Math.max(0, (step / steps - constantShare) / (1 - constantShare));
  return warm * (learningRate - fallen * (learningRate - lastLearningRate));
}
