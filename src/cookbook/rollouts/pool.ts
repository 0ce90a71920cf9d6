import { Semaphore } from "../../transport/index.js";
import { checkCount } from "./settings.js";

const MAX_ROLLOUTS = 1024;

/**
 * Keeps the number of episodes that run at a time in bounds, over all groups that share it. First come, first served. An
 * environment waits for its place before it is started, not before it is made.
 */
export class RolloutPool {
  readonly #places: Semaphore;

  constructor({ maxRollouts = MAX_ROLLOUTS }: { readonly maxRollouts?: number | undefined } = {}) {
    checkCount("maxRollouts", maxRollouts, 1);
    this.#places = new Semaphore(maxRollouts);
  }

  /** Episodes that run now. */
  get running(): number {
    return this.#places.held;
  }

  /** Episodes that wait for a place. */
  get waiting(): number {
    return this.#places.waiting;
  }

  /** Does the work once there is a place. */
  async run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const release = await this.#places.acquire(signal);
    try {
      return await work();
    } finally {
      release();
    }
  }
}
