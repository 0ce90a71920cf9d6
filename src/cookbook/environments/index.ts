/** Worlds that a model acts in and is rewarded by: problems, conversations, tools. */
export * from "./environment.js";
export { type EnvironmentGroupOptions, environmentGroups } from "./environment-groups.js";
export { interleaveGroups, type MixedGroups } from "./interleave-groups.js";
export type { ParseErrorPolicy, RolloutLimits, TerminationPolicy, ToolExecution } from "./limits.js";
export { type McpClient, mcpTools } from "./mcp-tools.js";
export {
  type ConversationRules,
  type MessageAnswer,
  type MessageEnvironment,
  type MessageEnvironmentOptions,
  type MessageStep,
  messageEnvironment,
} from "./message-environment.js";
export {
  type Problem,
  type ProblemAnswer,
  type ProblemGroupOptions,
  problemGroups,
} from "./problem-groups.js";
export type { InOrder } from "./replay.js";
export type { Rewarded, RewardResult } from "./reward.js";
export {
  type Tool,
  type ToolContext,
  type ToolOptions,
  type ToolOutput,
  type TypedSchema,
  tool,
} from "./tool.js";
export { type ToolEnvironmentOptions, type ToolEpisode, toolEnvironment } from "./tool-environment.js";
export { RolloutTimeoutError } from "./within-time.js";
