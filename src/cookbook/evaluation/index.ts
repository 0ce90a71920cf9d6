/** How good a model is: tasks, graders, runs that can go on where they stopped, and measuring during training. */
export { type EvaluateOptions, type EvaluationProgress, evaluate } from "./evaluate.js";
export {
  type EvaluationContext,
  type Evaluator,
  type TaskEvaluatorOptions,
  taskEvaluator,
} from "./evaluator.js";
export { extractBoxed, extractChoice, extractNumber } from "./extract.js";
export {
  type Attempt,
  choiceMatch,
  exactMatch,
  type Grade,
  type Graded,
  numberMatch,
  type Reward,
} from "./graders.js";
export { type JudgeOptions, judge } from "./judge.js";
export type { EvaluationResult, ExampleResult, Outcome } from "./result.js";
export { passAtK } from "./statistics.js";
export type { Task, TaskLike, TasksFrom } from "./tasks.js";
