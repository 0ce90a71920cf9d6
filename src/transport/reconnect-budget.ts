import type { PoolName } from "./types.js";

const MAX_RECONNECTS = 16;

/** How often in a row each pool may answer an empty 400 with a new connection; every success gives one back. */
export class ReconnectBudget {
  readonly #left = new Map<PoolName, number>();

  /** False when the pool has used up its share. */
  take(pool: PoolName): boolean {
    const left = this.#left.get(pool) ?? MAX_RECONNECTS;
    if (left === 0) return false;
    this.#left.set(pool, left - 1);
    return true;
  }

  giveBack(pool: PoolName): void {
    const left = this.#left.get(pool);
    if (left !== undefined && left < MAX_RECONNECTS) this.#left.set(pool, left + 1);
  }
}
