import { GRADER_TIMEOUT_MS } from "../environments/reward.js";
import type { RolloutSettings } from "./settings.js";
import { failFast, minViableGroup, type RolloutStrategy } from "./strategies.js";

/** Models made for tools and many turns. */
const AGENTS = /^thinkingmachines\/Inkling/;

/**
 * Settings for episodes of many turns with tools: limits, a chance to correct broken calls, and no reward for reaching
 * a limit.
 */
export function agentic(): RolloutSettings {
  return {
    limits: { maxTurns: 10, maxTrajectoryTokens: 65_536, maxToolCalls: 30 },
    parseErrors: { maxConsecutive: 2 },
    termination: { zeroRewardOnLimit: true, skipGradingOnTimeout: true, graderTimeoutMs: GRADER_TIMEOUT_MS },
    toolExecution: "sequential",
  };
}

/** Default rollout settings of a model: `agentic()` and `minViableGroup()` for Inkling, none for others. */
export function rolloutDefaults(model: string): RolloutSettings & { readonly strategy: RolloutStrategy } {
  return AGENTS.test(model) ? { ...agentic(), strategy: minViableGroup() } : { strategy: failFast() };
}
