/** Worlds that a model acts in and is rewarded by: problems, conversations, tools. */
export * from "./environment.js";
export type { ParseErrorPolicy, RolloutLimits, TerminationPolicy, ToolExecution } from "./limits.js";
