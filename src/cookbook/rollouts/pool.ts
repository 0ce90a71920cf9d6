import { Semaphore } from "../../transport/index.js";
import * as f from "../../wire/fields/index.js";

const MAX_ROLLOUTS = 1024;

/** Size of a pool of episodes. */
export interface PoolOptions {
  /** Episodes that run at the same time. Default: 1024. */
  readonly maxRollouts?: number | undefined;
}

/** The option table of `RolloutPool`. */
export const POOL_OPTIONS = f.optionTable({
  maxRollouts: f.option(f.withDefault(f.positiveInteger, MAX_ROLLOUTS), "episodes that run at the same time"),
} satisfies f.OptionsOf<PoolOptions>);

/**
 * Limits the number of episodes that run at the same time, over all groups that share it; first come, first served. An
 * environment waits for its place before `start`, not before it is made.
 */
export class RolloutPool {
  readonly #places: Semaphore;

  constructor(options: PoolOptions = {}) {
    this.#places = new Semaphore(POOL_OPTIONS.check(options, "RolloutPool").maxRollouts);
  }

  /** Number of episodes that run. */
  get running(): number {
    return this.#places.held;
  }

  /** Number of episodes that wait for a place. */
  get waiting(): number {
    return this.#places.waiting;
  }

  /** Runs the work once there is a place. */
  async run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const release = await this.#places.acquire(signal);
    try {
      return await work();
    } finally {
      release();
    }
  }
}
