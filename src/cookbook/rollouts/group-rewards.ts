import { TinkerError } from "../../errors.js";
import type { Clock } from "../../transport/index.js";
import type {
  Environment,
  EnvironmentGroup,
  GroupReward,
  Metrics,
  Player,
  TerminationPolicy,
  Trajectory,
} from "../environments/index.js";
import { withinTime } from "../environments/within-time.js";
import { checkReward } from "./settings.js";

/** Reasons that end an episode from outside, unless a policy says otherwise. */
const LIMITS: readonly string[] = [
  ...["max_tokens", "max_sampled_tokens", "max_turns", "max_tool_calls", "rollout_timeout"],
];

interface GradingOptions {
  readonly termination?: TerminationPolicy | undefined;
  readonly signal: AbortSignal;
  readonly clock?: Clock | undefined;
}

/** Computes the rewards that a group gives to its episodes, adjusted by the reasons for their end. */
export async function gradeGroup(
  group: EnvironmentGroup,
  trajectories: readonly Trajectory[],
  environments: readonly (Environment | Player)[],
  options: GradingOptions,
): Promise<readonly { readonly reward: number; readonly metrics: Metrics }[]> {
  const { termination = {} } = options;
  const rewards: readonly GroupReward[] = canSkipGrading(termination, trajectories)
    ? trajectories.map(() => ({ reward: 0 }))
    : await ask(group, trajectories, environments, options);
  return rewards.map(({ reward, metrics = {} }, place) => {
    const clamped = clampedReward(termination, trajectories[place]!, reward);
    if (clamped === undefined) return { reward, metrics };
    return { reward: clamped, metrics: { ...metrics, zero_reward_on_limit: 1 } };
  });
}

async function ask(
  group: EnvironmentGroup,
  trajectories: readonly Trajectory[],
  environments: readonly (Environment | Player)[],
  { termination = {}, ...time }: GradingOptions,
): Promise<readonly GroupReward[]> {
  if (group.groupRewards === undefined) return trajectories.map(() => ({ reward: 0 }));
  const rewards = await withinTime("Grading", termination.graderTimeoutMs, time, (signal) =>
    group.groupRewards!(trajectories, { environments, signal }),
  );
  if (rewards.length !== trajectories.length) {
    throw new TinkerError(
      `groupRewards must give a reward for each of ${trajectories.length} episodes, got ${rewards.length}.`,
    );
  }
  for (const { reward } of rewards) checkReward("groupRewards", reward);
  return rewards;
}

/** Grades a whole group at once, because comparisons must see all of its episodes. */
function canSkipGrading(
  { skipGradingOnTimeout, zeroRewardOnLimit, limits = LIMITS }: TerminationPolicy,
  trajectories: readonly Trajectory[],
): boolean {
  return (
    skipGradingOnTimeout === true &&
    zeroRewardOnLimit === true &&
    limits.includes("rollout_timeout") &&
    trajectories.every(({ end }) => end === "rollout_timeout")
  );
}

/**
 * A group reward that lowers the total to 0 if a limit ended the episode and the total is higher; otherwise undefined.
 */
function clampedReward(
  { zeroRewardOnLimit, limits = LIMITS }: TerminationPolicy,
  { turns, end }: Trajectory,
  reward: number,
): number | undefined {
  if (zeroRewardOnLimit !== true || end === undefined || !limits.includes(end)) return undefined;
  const ofTurns = turns.reduce((sum, turn) => sum + turn.reward, 0);
  return ofTurns + reward > 0 ? 0 - ofTurns : undefined;
}
