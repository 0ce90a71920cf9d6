import type { RolloutSettings } from "./settings.js";
import { failFast, minViableGroup, type RolloutStrategy } from "./strategies.js";

/** Models that are made for tools and many turns. */
const AGENTS = /^thinkingmachines\/Inkling/;

/** For episodes of many turns with tools: limits, a chance to mend broken calls, nothing gained by running into a limit. */
export function agentic(): RolloutSettings {
  return {
    limits: { maxTurns: 10, maxTrajectoryTokens: 65_536, maxToolCalls: 30 },
    parseErrors: { maxConsecutive: 2 },
    termination: { zeroRewardOnLimit: true, skipGradingOnTimeout: true, graderTimeoutMs: 900_000 },
    toolExecution: "sequential",
  };
}

/** What a model's episodes are run with where nothing is said: `agentic()` and `minViableGroup()` for Inkling, else neither. */
export function rolloutDefaults(model: string): RolloutSettings & { readonly strategy: RolloutStrategy } {
  return AGENTS.test(model) ? { ...agentic(), strategy: minViableGroup() } : { strategy: failFast() };
}
