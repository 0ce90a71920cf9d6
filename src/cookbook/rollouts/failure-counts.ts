import type { TrajectoryGroup } from "../environments/index.js";

/** What failed so far, as plain JSON, for a run to go on from. */
export interface CountedFailures {
  readonly byType: Readonly<Record<string, number>>;
  readonly numSkipped: number;
}

/** Counts what failed in the groups of a run. */
export class FailureCounts {
  readonly #byType: Map<string, number>;
  #numSkipped: number;

  constructor({ byType, numSkipped }: CountedFailures = { byType: {}, numSkipped: 0 }) {
    this.#byType = new Map(Object.entries(byType));
    this.#numSkipped = numSkipped;
  }

  /** Undefined while nothing has failed. */
  get counted(): CountedFailures | undefined {
    if (this.#isEmpty) return undefined;
    return { byType: Object.fromEntries(this.#byType), numSkipped: this.#numSkipped };
  }

  add({ trajectories, failures }: TrajectoryGroup): void {
    if (trajectories.length === 0) this.#numSkipped += 1;
    for (const { type } of failures) this.#byType.set(type, (this.#byType.get(type) ?? 0) + 1);
  }

  get #isEmpty(): boolean {
    return this.#byType.size === 0 && this.#numSkipped === 0;
  }

  /** All since the beginning, as `rollout_errors/TYPE`, with `total` and `groups_skipped`; none while nothing has failed. */
  metrics(): Readonly<Record<string, number>> {
    if (this.#isEmpty) return {};
    const total = [...this.#byType.values()].reduce((sum, count) => sum + count, 0);
    const counts = [...this.#byType, ["total", total], ["groups_skipped", this.#numSkipped]] as const;
    return Object.fromEntries(counts.map(([name, count]) => [`rollout_errors/${name}`, count]));
  }
}
