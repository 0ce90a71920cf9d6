import { TinkerError, ValidationError } from "../../errors.js";
import type { Clock } from "../../transport/index.js";
import { checkKeys, wrongValue } from "../../wire/index.js";
import type {
  ParseErrorPolicy,
  RolloutLimits,
  TerminationPolicy,
  ToolExecution,
} from "../environments/index.js";
import type { RolloutHooks } from "./hooks.js";

/** The rules of an episode. */
export interface RolloutSettings {
  readonly limits?: RolloutLimits | undefined;
  readonly parseErrors?: ParseErrorPolicy | undefined;
  readonly termination?: TerminationPolicy | undefined;
  /** Default: parallel. */
  readonly toolExecution?: ToolExecution | undefined;
}

/** How one episode is run. */
export interface RolloutOptions extends RolloutSettings {
  readonly hooks?: RolloutHooks | undefined;
  /** Each turn takes its own from it: with the same one, a policy that keeps to seeds gives the same episode. */
  readonly seed?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly clock?: Clock | undefined;
}

const LIMIT_KEYS: ReadonlySet<string> = new Set([
  ...(["maxTurns", "maxTrajectoryTokens", "maxSampledTokens", "maxToolCalls", "maxTurnTokens"] as const),
  ...(["timeoutMs", "sampleTimeoutMs"] as const),
] satisfies (keyof RolloutLimits)[]);
const PARSE_ERROR_KEYS: ReadonlySet<string> = new Set([
  ...(["maxConsecutive", "retryMessage", "penalty", "finalReward", "isMasked"] as const),
] satisfies (keyof ParseErrorPolicy)[]);
const TERMINATION_KEYS: ReadonlySet<string> = new Set([
  ...(["zeroRewardOnLimit", "limits", "skipGradingOnTimeout", "graderTimeoutMs"] as const),
  "gradesWholeConversation",
] satisfies (keyof TerminationPolicy)[]);

/** Refuses limits and policies that cannot be meant. */
export function checkSettings({
  limits = {},
  parseErrors = {},
  termination = {},
  toolExecution = "parallel",
}: RolloutSettings): void {
  checkKeys(limits, LIMIT_KEYS, "limits");
  checkKeys(parseErrors, PARSE_ERROR_KEYS, "parseErrors");
  checkKeys(termination, TERMINATION_KEYS, "termination");
  if (toolExecution !== "parallel" && toolExecution !== "sequential")
    throw wrongValue("toolExecution", "parallel or sequential", toolExecution satisfies never);
  const { timeoutMs, sampleTimeoutMs, ...counts } = limits;
  for (const [name, value] of Object.entries(counts)) {
    if (value === undefined || (Number.isSafeInteger(value) && value >= 1)) continue;
    throw new ValidationError(
      `limits.${name}`,
      `limits.${name} must be a whole number from 1, or absent where there is no limit, got ${value}`,
    );
  }
  checkTime("limits.timeoutMs", timeoutMs);
  checkTime("limits.sampleTimeoutMs", sampleTimeoutMs);
  checkTime("termination.graderTimeoutMs", termination.graderTimeoutMs);
  const { maxConsecutive = 0, penalty = 0, finalReward = 0, retryMessage } = parseErrors;
  checkCount("parseErrors.maxConsecutive", maxConsecutive);
  if (!(penalty >= 0 && Number.isFinite(penalty))) {
    throw new ValidationError(
      "parseErrors.penalty",
      `parseErrors.penalty must be a number from 0, got ${penalty}`,
    );
  }
  if (!Number.isFinite(finalReward)) {
    throw new ValidationError(
      "parseErrors.finalReward",
      `parseErrors.finalReward must be a finite number, got ${finalReward}`,
    );
  }
  if (retryMessage !== undefined && !retryMessage.includes("{details}")) {
    throw new ValidationError(
      "parseErrors.retryMessage",
      `parseErrors.retryMessage must contain {details}, where what was wrong is put, got ${retryMessage}`,
    );
  }
}

/** Refuses a time that is none. */
export function checkTime(field: string, value: number | undefined): void {
  if (value === undefined || (value > 0 && Number.isFinite(value))) return;
  throw new ValidationError(field, `${field} must be a number of milliseconds above 0, got ${value}`);
}

/** Refuses what is no number of things. */
export function checkCount(field: string, value: number, least = 0): void {
  if (Number.isSafeInteger(value) && value >= least) return;
  throw new ValidationError(field, `${field} must be a whole number from ${least}, got ${value}`);
}

/** Refuses a reward that would spoil all weights; `method` gave it. */
export function checkReward(method: string, reward: unknown): void {
  if (typeof reward === "number" && Number.isFinite(reward)) return;
  throw new TinkerError(`The reward that ${method} gives must be a finite number, got ${String(reward)}.`);
}
