/** What all training runs share: options, checkpoints and exact resumption, the run's folder, evaluation between steps, loggers. */
export type { BestWeights } from "./best-weights.js";
export { consoleLogger, type Screen } from "./console-logger.js";
export { recommendedBatchSize, recommendedLearningRate } from "./hyperparameters.js";
export type { TrainingLogger } from "./logger.js";
export type { BestOptions, RunOptions, SaveOptions } from "./options.js";
export type { FinishedRun, RunPlan } from "./run-training.js";
export { type Schedule, scheduleMultiplier } from "./schedule.js";
export { tensorBoardLogger } from "./tensorboard.js";
