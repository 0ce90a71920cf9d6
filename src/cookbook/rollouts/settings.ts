import { TinkerError } from "../../errors.js";
import type { Clock } from "../../transport/index.js";
import * as f from "../../wire/fields/index.js";
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
  /** How the tool calls of one answer run. Default: parallel. */
  readonly toolExecution?: ToolExecution | undefined;
}

/** How one episode runs. */
export interface RolloutOptions extends RolloutSettings {
  readonly hooks?: RolloutHooks | undefined;
  /** Seed from which each turn derives its own; with a policy that uses seeds, the same seed gives the same episode. */
  readonly seed?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly clock?: Clock | undefined;
}

/** Field type of a duration in an option table. */
export const milliseconds = f.numberThat("a number of milliseconds above 0", (given) => given > 0);

const LIMITS = {
  maxTurns: f.option(f.optional(f.positiveInteger), "answers of the model"),
  maxTrajectoryTokens: f.option(f.optional(f.positiveInteger), "tokens read and sampled in one context"),
  maxSampledTokens: f.option(f.optional(f.positiveInteger), "tokens sampled in all turns"),
  maxToolCalls: f.option(f.optional(f.positiveInteger), "tool calls"),
  maxTurnTokens: f.option(f.optional(f.positiveInteger), "tokens of one answer"),
  timeoutMs: f.option(f.optional(milliseconds), "time of the whole episode"),
  sampleTimeoutMs: f.option(f.optional(milliseconds), "time of one request for samples"),
} satisfies f.OptionsOf<RolloutLimits>;

const PARSE_ERRORS = {
  maxConsecutive: f.option(
    f.withDefault(f.nonNegativeInteger, 0),
    "broken tool calls in a row that the model may mend",
  ),
  retryMessage: f.option(
    f.optional(
      f.value<string>(
        "a text with {details}, where the problem is put",
        (given) => typeof given === "string" && given.includes("{details}"),
      ),
    ),
    "message that answers a broken tool call",
  ),
  penalty: f.option(f.withDefault(f.nonNegative, 0), "taken off the reward for each broken tool call"),
  finalReward: f.option(f.withDefault(f.number, 0), "reward of the answer that ends the episode"),
  isMasked: f.option(f.withDefault(f.boolean, false), "leave broken answers out of training"),
} satisfies f.OptionsOf<ParseErrorPolicy>;

const TERMINATION = {
  zeroRewardOnLimit: f.option(f.optional(f.boolean), "reward episodes that a limit ended with at most 0"),
  limits: f.option(f.optional(f.list(f.text)), "reasons that count as limits"),
  skipGradingOnTimeout: f.option(
    f.optional(f.boolean),
    "do not grade groups that ran out of time altogether",
  ),
  graderTimeoutMs: f.option(f.optional(milliseconds), "time of one grading", { otherwise: "15 minutes" }),
  gradesWholeConversation: f.option(
    f.optional(f.boolean),
    "show a reward function the messages of the prompt too",
  ),
} satisfies f.OptionsOf<TerminationPolicy>;

/** The option table for the rules of an episode. */
export const ROLLOUT_OPTIONS = {
  limits: f.option(f.optional(f.message(LIMITS)), "limits of one episode"),
  parseErrors: f.option(f.optional(f.message(PARSE_ERRORS)), "how answers that cannot be read are treated"),
  termination: f.option(
    f.optional(f.message(TERMINATION)),
    "how the reason for an episode's end changes its reward",
  ),
  toolExecution: f.option(
    f.optional(f.oneOf("parallel", "sequential")),
    "how tool calls of one answer are run",
    { otherwise: "parallel" },
  ),
} satisfies f.OptionsOf<RolloutSettings>;

/** The option table of `runRollout`. */
export const RUN_ROLLOUT_OPTIONS = f.optionTable({
  ...ROLLOUT_OPTIONS,
  hooks: f.option(
    f.optional(f.opaque as f.Field<RolloutHooks>),
    "functions that are called during an episode",
  ),
  seed: f.option(f.optional(f.nonNegativeInteger), "seed of the samples"),
  signal: f.option(f.optional(f.abortSignal), "ends the episode"),
  clock: f.option(f.optional(f.having<Clock>("a clock", "now")), "clock of the time limits"),
} satisfies f.OptionsOf<RolloutOptions>);

const rules = f.message(ROLLOUT_OPTIONS);

/** Refuses contradictory limits and policies. */
export function checkSettings({ limits, parseErrors, termination, toolExecution }: RolloutSettings): void {
  rules.check({ limits, parseErrors, termination, toolExecution }, "");
}

/** Refuses a reward that is not finite, since it would spoil all weights; names the `method` that returned it. */
export function checkReward(method: string, reward: unknown): void {
  if (typeof reward === "number" && Number.isFinite(reward)) return;
  throw new TinkerError(`The reward that ${method} gives must be a finite number, got ${String(reward)}.`);
}
