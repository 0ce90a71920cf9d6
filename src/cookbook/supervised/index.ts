/** Fine-tuning on conversations: the loop, its settings, what it measures. */
export * from "./likelihood.js";
export * from "./options.js";
export * from "./prepare-run.js";
export * from "./train-supervised.js";
