import type { TrajectoryGroup } from "../environments/index.js";

/** Failures so far as plain JSON, so that a resumed run continues counting. */
export interface CountedFailures {
  readonly byType: Readonly<Record<string, number>>;
  readonly numSkipped: number;
}

/** Counts failures in the groups of a run. */
export class FailureCounts {
  readonly #byType: Map<string, number>;
  #numSkipped: number;

  constructor({ byType, numSkipped }: CountedFailures = { byType: {}, numSkipped: 0 }) {
    this.#byType = new Map(Object.entries(byType));
    this.#numSkipped = numSkipped;
  }

  /** Undefined while there are no failures. */
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

  /**
   * All failures since the beginning as `rollout_errors/TYPE`, with `total` and `groups_skipped`; empty without
   * failures.
   */
  metrics(): Readonly<Record<string, number>> {
    if (this.#isEmpty) return {};
    const total = [...this.#byType.values()].reduce((sum, count) => sum + count, 0);
    const counts = [...this.#byType, ["total", total], ["groups_skipped", this.#numSkipped]] as const;
    return Object.fromEntries(counts.map(([name, count]) => [`rollout_errors/${name}`, count]));
  }
}
