/** Episodes: models that act in environments, alone and in groups, under limits. */
export { type CountedFailures, FailureCounts } from "./failure-counts.js";
export type { RolloutHooks, RolloutState } from "./hooks.js";
export { type Policy, type PolicyCall, samplerPolicy } from "./policy.js";
export { RolloutPool } from "./pool.js";
export { agentic, rolloutDefaults } from "./presets.js";
export {
  type RecordedBatch,
  type RecordedGroup,
  rolloutRecords,
  type TrainedStretch,
} from "./records.js";
export { type RolloutGroupOptions, rolloutGroup } from "./rollout-group.js";
export { runRollout } from "./run-rollout.js";
export { derivedSeed } from "./seeds.js";
export type { RolloutOptions, RolloutSettings } from "./settings.js";
export {
  failFast,
  type GroupProgress,
  minViableGroup,
  type RetryOptions,
  type RolloutStrategy,
  retryOnFailure,
} from "./strategies.js";
