/** Fine-tuning on conversations: the loop, its settings, what it measures. */
export { bitsPerByte, meanNll, type ScoredTokens } from "./likelihood.js";
export type { TrainSupervisedOptions } from "./options.js";
export { planSupervised } from "./prepare-run.js";
export { trainSupervised } from "./train-supervised.js";
