import * as f from "../../wire/fields/index.js";
import { milliseconds } from "./settings.js";

/** State of a group when one of its episodes has failed. */
export interface GroupProgress {
  readonly groupSize: number;
  readonly numSucceeded: number;
  /** Number of episodes retried so far. */
  readonly numRetries: number;
}

/** Handling of episodes that fail. */
export interface RolloutStrategy {
  /** Time limit of an episode; exceeding it is a failure. */
  readonly timeoutMs?: number | undefined;
  /** Whether a run continues without a failed group; otherwise it ends with the group's error. */
  readonly skipsFailedGroups: boolean;
  /** Decides: retry in a new environment, continue without the episode, or fail the group. */
  afterFailure(progress: GroupProgress): "retry" | "drop" | "fail";
  /** Fewest episodes with which a group succeeds. */
  minSuccessful(groupSize: number): number;
}

/** Field type of the strategy for failed episodes in an option table. */
export const STRATEGY_OPTION = f.option(
  f.optional(
    f.having<RolloutStrategy>("a strategy, as failFast() or retryOnFailure() makes one", "afterFailure"),
  ),
  "how failed episodes are treated",
  { otherwise: "failFast(), they end the run" },
);

/** How often episodes of a group are retried. */
export interface RetryOptions {
  /** Retries in the whole group. Default: 3. */
  readonly maxRetries?: number | undefined;
  /** Time limit of one episode in milliseconds. Default: none. */
  readonly timeoutMs?: number | undefined;
}

/** How many episodes of a group must succeed, and how often failed ones are retried. */
export interface ViableGroupOptions extends RetryOptions {
  /** Fewest episodes with which a group succeeds. Default: three quarters of the group. */
  readonly minSuccessful?: number | undefined;
}

const RETRY_FIELDS = {
  maxRetries: f.option(f.withDefault(f.nonNegativeInteger, 3), "episodes of a group that are tried again"),
  timeoutMs: f.option(f.optional(milliseconds), "milliseconds for one episode"),
} satisfies f.OptionsOf<RetryOptions>;
/** The option table of `retryOnFailure`. */
export const RETRY_OPTIONS = f.optionTable(RETRY_FIELDS);
/** The option table of `minViableGroup`. */
export const VIABLE_GROUP_OPTIONS = f.optionTable({
  ...RETRY_FIELDS,
  minSuccessful: f.option(f.optional(f.positiveInteger), "episodes without which a group fails", {
    otherwise: "three quarters of the group",
  }),
} satisfies f.OptionsOf<ViableGroupOptions>);
const VIABLE_SHARE = 0.75;

/** Ends the run at the first failure. */
export function failFast(): RolloutStrategy {
  return { skipsFailedGroups: false, afterFailure: () => "fail", minSuccessful: (groupSize) => groupSize };
}

/** Retries failed episodes; a group that stays incomplete is left out. */
export function retryOnFailure(options: RetryOptions = {}): RolloutStrategy {
  const { maxRetries, timeoutMs } = RETRY_OPTIONS.check(options, "retryOnFailure");
  return {
    timeoutMs,
    skipsFailedGroups: true,
    afterFailure: ({ numRetries }) => (numRetries < maxRetries ? "retry" : "fail"),
    minSuccessful: (groupSize) => groupSize,
  };
}

/** Continues a group without some of its episodes; failed ones are retried only while too few have succeeded. */
export function minViableGroup(options: ViableGroupOptions = {}): RolloutStrategy {
  const { minSuccessful, maxRetries, timeoutMs } = VIABLE_GROUP_OPTIONS.check(options, "minViableGroup");
  const needed = (groupSize: number) => minSuccessful ?? Math.ceil(VIABLE_SHARE * groupSize);
  return {
    timeoutMs,
    skipsFailedGroups: true,
    afterFailure: ({ groupSize, numSucceeded, numRetries }) =>
      numSucceeded < needed(groupSize) && numRetries < maxRetries ? "retry" : "drop",
    minSuccessful: needed,
  };
}
