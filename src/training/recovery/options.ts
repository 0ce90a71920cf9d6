import { clockField, durationMs } from "../../transport/index.js";
import {
  abortSignal,
  type FieldsOf,
  functionOf,
  having,
  nonNegative,
  nonNegativeInteger,
  optional,
  optionGroup,
  optionTable,
  positive,
  positiveInteger,
  text,
  withDefault,
} from "../../wire/index.js";
import type { RecoveryLog, RecoveryPolicy, RunEvent, RunWithRecoveryOptions } from "./types.js";

type Options = RunWithRecoveryOptions<unknown, unknown>;

const POLICY = {
  maxAttempts: withDefault(nonNegativeInteger, 5),
  backoffMs: withDefault(nonNegative, 1_000),
  maxBackoffMs: withDefault(durationMs, 60_000),
  checkEveryMs: withDefault(durationMs, 30_000),
  unreachableAfterMs: withDefault(durationMs, 5 * 60_000),
  checkpoint: withDefault(text, "latest"),
  shouldRestore: optional(functionOf<NonNullable<RecoveryPolicy["shouldRestore"]>>()),
} satisfies FieldsOf<RecoveryPolicy>;

/** The options of `runWithRecovery`. */
export const RECOVERY_OPTIONS = optionTable({
  service: functionOf<Options["service"]>("a function that makes a ServiceClient"),
  start: functionOf<Options["start"]>("a function that makes a TrainingClient"),
  restore: optional(functionOf<NonNullable<Options["restore"]>>()),
  step: functionOf<Options["step"]>(),
  measure: optional(functionOf<NonNullable<Options["measure"]>>()),
  steps: positiveInteger,
  checkpointEvery: withDefault(positiveInteger, 20),
  checkpointTtlSeconds: optional(positive),
  checkpointAt: optional(functionOf<NonNullable<Options["checkpointAt"]>>()),
  log: optional(having<RecoveryLog>("a RecoveryLog, as RunLog is one", "logMetrics")),
  policy: optionGroup(POLICY),
  onEvent: optional(functionOf<(event: RunEvent) => void>()),
  signal: optional(abortSignal),
  pauseSignal: optional(abortSignal),
  clock: optional(clockField),
  random: optional(functionOf<() => number>()),
} satisfies Record<keyof Options, unknown>);

/** The options of `runWithRecovery`, checked, with their defaults. */
export type FilledRecoveryOptions<S, T> = RunWithRecoveryOptions<S, T> & {
  readonly checkpointEvery: number;
  readonly policy: RecoveryPolicy;
};
