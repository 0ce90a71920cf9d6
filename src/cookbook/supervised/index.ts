/** Fine-tuning on conversations: the loop, its settings, what it measures, and who is told. */
export type { BestWeights } from "./best-weights.js";
export { consoleLogger, type Screen } from "./console-logger.js";
export { recommendedBatchSize, recommendedLearningRate } from "./hyperparameters.js";
export { bitsPerByte, meanNll, type ScoredTokens } from "./likelihood.js";
export type { TrainingLogger } from "./logger.js";
export type { BestOptions, SaveOptions, TrainSupervisedOptions } from "./options.js";
export { planSupervised, type SupervisedPlan } from "./prepare-run.js";
export { type Schedule, scheduleMultiplier } from "./schedule.js";
export { tensorBoardLogger } from "./tensorboard.js";
export { type SupervisedRun, trainSupervised } from "./train-supervised.js";
