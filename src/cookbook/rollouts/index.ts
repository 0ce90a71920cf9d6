/** Episodes: models that act in environments, alone and in groups, under limits. */
export * from "./failure-counts.js";
export * from "./hooks.js";
export * from "./policy.js";
export * from "./pool.js";
export * from "./presets.js";
export * from "./records.js";
export * from "./rollout-group.js";
export * from "./run-rollout.js";
export * from "./seeds.js";
export * from "./settings.js";
export * from "./strategies.js";
