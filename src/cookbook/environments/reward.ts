import { messageOf, TinkerError } from "../../errors.js";
import { describe, wrongField, wrongValue } from "../../wire/index.js";
import type { Logs, Metrics } from "./environment.js";
import { withinTime } from "./within-time.js";

/** Reward of an answer or an episode, with metrics to average and texts to show. */
export interface Rewarded {
  readonly reward: number;
  readonly metrics?: Metrics | undefined;
  readonly logs?: Logs | undefined;
}

/** Result of a reward function: a number, or one with metrics and logs. */
export type RewardResult = number | Rewarded;

/** Refuses rewards that are not finite: one NaN would spoil the whole batch. */
export function readReward(given: RewardResult, field = "reward"): Rewarded {
  const rewarded = typeof given === "number" ? { reward: given } : given;
  if (!Number.isFinite(rewarded?.reward)) {
    throw wrongField(field, `must return a finite number or { reward: number }, got ${describe(given)}`);
  }
  const { reward, metrics, logs }: Rewarded = rewarded;
  for (const [name, value] of Object.entries(metrics ?? {})) {
    if (typeof value !== "number") throw wrongValue(`metrics.${name} of ${field}`, "a number", value);
  }
  return { reward, metrics, logs };
}

/** A reward that takes longer than this fails its episode, unless `termination.graderTimeoutMs` is set: 15 minutes. */
export const GRADER_TIMEOUT_MS = 900_000;

/** A reward function threw, took too long or returned something other than a reward; `cause` is its own error. */
export class RewardError extends TinkerError {
  override readonly name = "RewardError";
}

/** The reward of an answer. Errors name what was graded. */
export async function askReward<T>(
  what: string,
  graded: Readonly<Record<string, unknown>>,
  {
    timeoutMs = GRADER_TIMEOUT_MS,
    signal,
  }: { readonly timeoutMs?: number | undefined; readonly signal: AbortSignal },
  grade: (signal: AbortSignal) => T | Promise<T>,
): Promise<T> {
  try {
    return await withinTime(`The ${what}`, timeoutMs, { signal }, grade);
  } catch (cause) {
    if (signal.aborted) throw cause;
    const said =
      cause instanceof TinkerError ? cause.message : `The ${what} failed: ${nameAndMessage(cause)}`;
    const facts = Object.entries(graded).map(([name, value]) => `\n  ${name}: ${shortJson(value)}`);
    throw new RewardError(said + facts.join(""), { cause });
  }
}

function nameAndMessage(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : messageOf(error);
}

const MAX_SHOWN_CHARACTERS = 500;

function shortJson(value: unknown): string {
  let text: string;
  try {
    text = JSON.stringify(value) ?? String(value);
  } catch {
    text = describe(value);
  }
  return text.length > MAX_SHOWN_CHARACTERS ? `${text.slice(0, MAX_SHOWN_CHARACTERS)}…` : text;
}
