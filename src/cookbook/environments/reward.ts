import { ValidationError } from "../../errors.js";
import { describe, wrongValue } from "../../wire/index.js";
import type { Logs, Metrics } from "./environment.js";

/** How good an answer or an episode is, with numbers that are averaged and texts that are shown. */
export interface Rewarded {
  readonly reward: number;
  readonly metrics?: Metrics | undefined;
  readonly logs?: Logs | undefined;
}

/** What a reward function may give. */
export type RewardResult = number | Rewarded;

/** Refuses what cannot be trained on: one NaN would spoil the whole batch. */
export function readReward(given: RewardResult, field = "reward"): Rewarded {
  const rewarded = typeof given === "number" ? { reward: given } : given;
  if (!Number.isFinite(rewarded?.reward)) {
    throw new ValidationError(
      field,
      `${field} must return a finite number or { reward: number }, got ${describe(given)}`,
    );
  }
  const { reward, metrics, logs }: Rewarded = rewarded;
  for (const [name, value] of Object.entries(metrics ?? {})) {
    if (typeof value !== "number") throw wrongValue(`metrics.${name} of ${field}`, "a number", value);
  }
  return { reward, metrics, logs };
}
