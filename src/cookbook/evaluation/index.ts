/** How good a model is: tasks, graders, runs that can go on where they stopped, and measuring during training. */
export type { EvaluationContext, Evaluator } from "./evaluator.js";
