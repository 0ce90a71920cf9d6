import { ValidationError } from "../../errors.js";
import { wrongValue } from "../../wire/index.js";
import { type TrajectoryGroup, totalRewards } from "../environments/index.js";

/**
 * What an episode is compared with: the `mean` of its group; the mean, in units of the group's deviation
 * (`mean-deviation`, as in GRPO); or the mean of the others (`leave-one-out`).
 */
export type AdvantageRule = "mean" | "mean-deviation" | "leave-one-out";

/** Keeps a group whose rewards hardly differ from being blown up. */
const LEAST_DEVIATION = 1e-6;

/** How much better each episode of a group is than what it is compared with. Nobody is better than himself alone: 0. */
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
    case "mean-deviation": {
      const squares = centred.reduce((sum, each) => sum + each * each, 0);
      const deviation = Math.fround(Math.sqrt(squares / Math.max(1, size - 1)));
      return centred.map((each) => each / Math.fround(deviation + LEAST_DEVIATION));
    }
    case "leave-one-out":
      return centred.map((each) => each * (size / Math.max(1, size - 1)));
    default:
      throw wrongValue("rule", '"mean", "mean-deviation" or "leave-one-out"', rule satisfies never);
  }
}

/** The groups whose episodes were not all rewarded alike: the others say nothing about what is better. */
export function dropConstantGroups<G extends TrajectoryGroup>(groups: readonly G[]): G[] {
  return groups.filter((group) => !isConstant(totalRewards(group)));
}

/** Whether all rewards are the same number. */
export function isConstant(rewards: readonly number[]): boolean {
  return rewards.every((reward) => reward === rewards[0]);
}
