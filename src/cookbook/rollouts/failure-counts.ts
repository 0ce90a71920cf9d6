import type { TrajectoryGroup } from "../environments/index.js";

/** Counts what failed in the groups of a run. */
export class FailureCounts {
  readonly #byType = new Map<string, number>();
  #numSkipped = 0;

  add({ trajectories, failures }: TrajectoryGroup): void {
    if (trajectories.length === 0) this.#numSkipped += 1;
    for (const { type } of failures) this.#byType.set(type, (this.#byType.get(type) ?? 0) + 1);
  }

  /** All since the beginning, as `rollout_errors/TYPE`, with `total` and `groups_skipped`; none while nothing has failed. */
  metrics(): Readonly<Record<string, number>> {
    if (this.#byType.size === 0 && this.#numSkipped === 0) return {};
    const total = [...this.#byType.values()].reduce((sum, count) => sum + count, 0);
    const counts = [...this.#byType, ["total", total], ["groups_skipped", this.#numSkipped]] as const;
    return Object.fromEntries(counts.map(([name, count]) => [`rollout_errors/${name}`, count]));
  }
}
