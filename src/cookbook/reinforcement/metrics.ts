import { type Trajectory, type TrajectoryGroup, totalRewards } from "../environments/index.js";
import { meanMetrics, meanOf } from "../evaluation/statistics.js";
import { isConstant } from "./advantages.js";

/** From this reward on, a constant group counts as good. */
const GOOD_REWARD = 0.5;

/**
 * Computes metrics of a step's episodes: `env/all/…`, and `env/TAG/…` for each tag unless every group has the same
 * tags. Metrics of turns and groups are means over those that have them; `stop/REASON` is the share of the episodes.
 * `FailureCounts` counts groups that failed.
 */
export function trajectoryMetrics(all: readonly TrajectoryGroup[]): Record<string, number> {
  const groups = all.filter(({ trajectories }) => trajectories.length > 0);
  const byTag = new Map<string, TrajectoryGroup[]>();
  for (const group of groups)
    for (const tag of group.tags) byTag.set(tag, [...(byTag.get(tag) ?? []), group]);
  const areTagsTelling = [...byTag.values()].some(({ length }) => length < groups.length);
  const parts = [...(areTagsTelling ? byTag : []), ["all", groups] as const];
  return Object.fromEntries(
    parts.flatMap(([name, some]) =>
      Object.entries(metricsOf(some)).map(([key, value]) => [`env/${name}/${key}`, value]),
    ),
  );
}

/** Ages of the weights that sampled a batch, in training steps, and how long sampling took. */
export function samplerMetrics(
  groups: readonly { readonly samplerStep: number; readonly seconds: number }[],
): Record<string, number> {
  return {
    ...spread(
      "sampling_client/step",
      groups.map(({ samplerStep }) => samplerStep),
    ),
    ...spread(
      "time/sampling_time",
      groups.map(({ seconds }) => seconds),
    ),
  };
}

function metricsOf(groups: readonly TrajectoryGroup[]): Record<string, number> {
  const trajectories = groups.flatMap((group) => group.trajectories);
  const turns = trajectories.flatMap((trajectory) => trajectory.turns);
  const sampled = sumOf(turns.map(({ action }) => action.tokens.length));
  const read = sumOf(turns.map(({ observation }) => observation.length));
  const perTurn = (count: number) => (turns.length === 0 ? 0 : count / turns.length);
  return {
    ac_tokens_per_turn: perTurn(sampled),
    ob_tokens_per_turn: perTurn(read),
    turns_per_episode: trajectories.length === 0 ? 0 : turns.length / trajectories.length,
    total_episodes: trajectories.length,
    total_turns: turns.length,
    total_ac_tokens: sampled,
    total_ob_tokens: read,
    "reward/total": trajectories.length === 0 ? 0 : meanOf(groups.flatMap(totalRewards)),
    ...meanMetrics([...turns.map(({ metrics }) => metrics), ...groups.flatMap(({ metrics }) => metrics)]),
    ...stopMetrics(trajectories),
    ...groupMetrics(groups),
  };
}

function stopMetrics(trajectories: readonly Trajectory[]): Record<string, number> {
  const reasons = new Set(trajectories.flatMap(({ end }) => end ?? []));
  const share = (reason: string) =>
    trajectories.filter(({ end }) => end === reason).length / trajectories.length;
  return Object.fromEntries([...reasons].map((reason) => [`stop/${reason}`, share(reason)]));
}

function groupMetrics(groups: readonly TrajectoryGroup[]): Record<string, number> {
  const counts = { mixed: 0, all_good: 0, all_bad: 0 };
  for (const rewards of groups.map(totalRewards)) {
    if (!isConstant(rewards)) counts.mixed++;
    else if (rewards[0]! >= GOOD_REWARD) counts.all_good++;
    else counts.all_bad++;
  }
  return Object.fromEntries(
    Object.entries(counts).map(([kind, count]) => [
      `by_group/frac_${kind}`,
      groups.length === 0 ? 0 : count / groups.length,
    ]),
  );
}

function spread(name: string, values: readonly number[]): Record<string, number> {
  if (values.length === 0) return {};
  return {
    [`${name}_max`]: Math.max(...values),
    [`${name}_min`]: Math.min(...values),
    [`${name}_mean`]: meanOf(values),
  };
}

const sumOf = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0);
