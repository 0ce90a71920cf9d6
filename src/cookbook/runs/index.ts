/** Shared by all training runs: options, checkpoints, exact resumes, the run's folder, evaluation between steps, loggers. */
export * from "./best-weights.js";
export * from "./console-logger.js";
export * from "./hyperparameters.js";
export * from "./logger.js";
export * from "./options.js";
export * from "./run-training.js";
export * from "./schedule.js";
export * from "./tensorboard.js";
