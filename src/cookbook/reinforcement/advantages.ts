import { ValidationError } from "../../errors.js";
import { wrongValue } from "../../wire/index.js";
import { type TrajectoryGroup, totalRewards } from "../environments/index.js";

/**
 * Baseline that an episode is compared with: the `mean` of its group; the mean, in units of the group's deviation
 * (`mean_deviation`, as in GRPO); or the mean of the others (`leave_one_out`).
 */
export type AdvantageRule = (typeof ADVANTAGE_RULES)[number];

/** The values of `AdvantageRule`. */
export const ADVANTAGE_RULES = ["mean", "mean_deviation", "leave_one_out"] as const;

/** Stops groups whose rewards hardly differ from being scaled up. */
const LEAST_DEVIATION = 1e-6;

/** The advantage of each episode of a group over its baseline. A single episode has 0. */
export function groupAdvantages(group: TrajectoryGroup, rule: AdvantageRule = "mean"): Float32Array {
  const rewards = Float32Array.from(totalRewards(group));
  const odd = rewards.findIndex((reward) => !Number.isFinite(reward));
  if (odd >= 0)
    throw new ValidationError(
      `trajectories[${odd}]`,
      `the reward of trajectories[${odd}] must be a finite number, got ${rewards[odd]}`,
    );
  const size = rewards.length;
  const mean = Math.fround(Math.fround(rewards.reduce((sum, each) => sum + each, 0)) / size);
  const centred = rewards.map((reward) => reward - mean);
  switch (rule) {
    case "mean":
      return centred;
    case "mean_deviation": {
      const squares = centred.reduce((sum, each) => sum + each * each, 0);
      const deviation = Math.fround(Math.sqrt(squares / Math.max(1, size - 1)));
      return centred.map((each) => each / Math.fround(deviation + LEAST_DEVIATION));
    }
    case "leave_one_out":
      return centred.map((each) => each * (size / Math.max(1, size - 1)));
    default:
      throw wrongValue("rule", '"mean", "mean_deviation" or "leave_one_out"', rule satisfies never);
  }
}

/** The groups whose episodes have different rewards: the others do not show what is better. */
export function dropConstantGroups<G extends TrajectoryGroup>(groups: readonly G[]): G[] {
  return groups.filter((group) => !isConstant(totalRewards(group)));
}

/** Whether all rewards are the same number. */
export function isConstant(rewards: readonly number[]): boolean {
  return rewards.every((reward) => reward === rewards[0]);
}
