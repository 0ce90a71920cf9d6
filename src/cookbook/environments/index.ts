/** Environments that a model acts in and that reward it: problems, conversations, tools. */
export * from "./environment.js";
export * from "./environment-groups.js";
export * from "./interleave-groups.js";
export * from "./limits.js";
export * from "./mcp-tools.js";
export * from "./message-environment.js";
export * from "./problem-groups.js";
export * from "./replay.js";
export * from "./reward.js";
export * from "./tool.js";
export * from "./tool-environment.js";
export * from "./within-time.js";
