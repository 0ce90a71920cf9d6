/** Evaluation: tasks, graders, resumable runs, and measurements during training. */
export * from "./evaluate.js";
export * from "./evaluator.js";
export * from "./extract.js";
export * from "./graders.js";
export * from "./judge.js";
export * from "./result.js";
export * from "./statistics.js";
export * from "./tasks.js";
