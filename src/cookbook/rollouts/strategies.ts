import { wrongValue } from "../../wire/index.js";
import { checkCount, checkTime } from "./settings.js";

/** How a group stands when one of its episodes has failed. */
export interface GroupProgress {
  readonly groupSize: number;
  readonly numSucceeded: number;
  /** Episodes tried again so far. */
  readonly numRetries: number;
}

/** What becomes of episodes that fail. */
export interface RolloutStrategy {
  /** An episode that takes longer has failed. */
  readonly timeoutMs?: number | undefined;
  /** Whether a run goes on without a group that fails; otherwise it ends with the group's error. */
  readonly skipsFailedGroups: boolean;
  /** Try it again in a new environment, go on without it, or let the group fail. */
  afterFailure(progress: GroupProgress): "retry" | "drop" | "fail";
  /** Episodes without which a group fails. */
  minSuccessful(groupSize: number): number;
}

/** Refuses what is no strategy, as the function that makes one. */
export function checkStrategy(strategy: unknown): void {
  if (strategy === undefined) return;
  if (typeof (strategy as Partial<RolloutStrategy> | null)?.afterFailure === "function") return;
  throw wrongValue("strategy", "a strategy, as failFast() or retryOnFailure() makes one", strategy);
}

/** How often episodes of a group are tried again. */
export interface RetryOptions {
  /** In the whole group. Default: 3. */
  readonly maxRetries?: number | undefined;
  /** Of one episode. Default: none. */
  readonly timeoutMs?: number | undefined;
}

const MAX_RETRIES = 3;
const VIABLE_SHARE = 0.75;

/** The first failure ends the run. */
export function failFast(): RolloutStrategy {
  return { skipsFailedGroups: false, afterFailure: () => "fail", minSuccessful: (groupSize) => groupSize };
}

/** Failed episodes are tried again; a group that stays incomplete is left out. */
export function retryOnFailure({ maxRetries = MAX_RETRIES, timeoutMs }: RetryOptions = {}): RolloutStrategy {
  checkCount("maxRetries", maxRetries);
  checkTime("timeoutMs", timeoutMs);
  return {
    timeoutMs,
    skipsFailedGroups: true,
    afterFailure: ({ numRetries }) => (numRetries < maxRetries ? "retry" : "fail"),
    minSuccessful: (groupSize) => groupSize,
  };
}

/** A group goes on without some of its episodes; failed ones are tried again only while too few have succeeded. */
export function minViableGroup({
  minSuccessful,
  maxRetries = MAX_RETRIES,
  timeoutMs,
}: RetryOptions & {
  /** Default: three quarters of the group. */
  readonly minSuccessful?: number | undefined;
} = {}): RolloutStrategy {
  if (minSuccessful !== undefined) checkCount("minSuccessful", minSuccessful, 1);
  checkCount("maxRetries", maxRetries);
  checkTime("timeoutMs", timeoutMs);
  const needed = (groupSize: number) => minSuccessful ?? Math.ceil(VIABLE_SHARE * groupSize);
  return {
    timeoutMs,
    skipsFailedGroups: true,
    afterFailure: ({ groupSize, numSucceeded, numRetries }) =>
      numSucceeded < needed(groupSize) && numRetries < maxRetries ? "retry" : "drop",
    minSuccessful: needed,
  };
}
