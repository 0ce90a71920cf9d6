import { abortError, onAbort } from "./abort.js";

/** Gives back what was acquired; calling it twice is harmless. */
export type Release = () => void;

function once(action: () => void): Release {
  let done = false;
  return () => {
    if (done) return;
    done = true;
    action();
  };
}

interface Waiter {
  readonly cost: number;
  readonly admit: () => void;
  hasLeft: boolean;
}

/** Callers in the order they came; one whose signal aborts leaves the line. */
class WaitingLine {
  #waiters: Waiter[] = [];
  #first = 0;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  join(cost: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const unsubscribe = onAbort(signal, () => {
        waiter.hasLeft = true;
        this.#size -= 1;
        if (signal !== undefined) reject(abortError(signal));
      });
      const admit = () => {
        unsubscribe();
        resolve();
      };
      const waiter: Waiter = { cost, admit, hasLeft: false };
      this.#waiters.push(waiter);
      this.#size += 1;
    });
  }

  /** Admits the first in line and returns its cost; undefined if the line is empty. */
  admitFirst(): number | undefined {
    while (this.#first < this.#waiters.length) {
      const waiter = this.#waiters[this.#first]!;
      this.#first += 1;
      // Once in a while, so that each caller is moved once at most, on average.
      if (this.#first * 2 > this.#waiters.length) {
        this.#waiters = this.#waiters.slice(this.#first);
        this.#first = 0;
      }
      if (waiter.hasLeft) continue;
      this.#size -= 1;
      waiter.admit();
      return waiter.cost;
    }
    return undefined;
  }
}

/** At most `limit` holders at a time, first come, first served. */
export class Semaphore {
  readonly limit: number;
  readonly #line = new WaitingLine();
  #held = 0;

  constructor(limit: number) {
    if (!(limit >= 1)) throw new RangeError(`The limit of a Semaphore must be at least 1, got ${limit}`);
    this.limit = limit;
  }

  get held(): number {
    return this.#held;
  }

  get waiting(): number {
    return this.#line.size;
  }

  async acquire(signal?: AbortSignal): Promise<Release> {
    if (signal?.aborted) throw abortError(signal);
    // One who leaves hands the place over, so `held` already counts a waiter that wakes.
    if (this.#held >= this.limit) await this.#line.join(1, signal);
    else this.#held += 1;
    return once(() => {
      if (this.#line.admitFirst() === undefined) this.#held -= 1;
    });
  }
}

/** A budget of bytes in flight. It may be overdrawn once, so that a request larger than the budget still passes. */
export class ByteBudget {
  readonly limitBytes: number;
  readonly #line = new WaitingLine();
  #balanceBytes: number;

  constructor(limitBytes: number) {
    this.limitBytes = limitBytes;
    this.#balanceBytes = limitBytes;
  }

  /** Negative while overdrawn. */
  get balanceBytes(): number {
    return this.#balanceBytes;
  }

  get waiting(): number {
    return this.#line.size;
  }

  /** Waits only while the balance is negative, then takes `bytes`. */
  async acquire(bytes: number, signal?: AbortSignal): Promise<Release> {
    if (signal?.aborted) throw abortError(signal);
    if (this.#balanceBytes < 0) await this.#line.join(bytes, signal);
    else this.#balanceBytes -= bytes;
    return once(() => {
      this.#balanceBytes += bytes;
      while (this.#balanceBytes >= 0) {
        const admittedBytes = this.#line.admitFirst();
        if (admittedBytes === undefined) return;
        this.#balanceBytes -= admittedBytes;
      }
    });
  }
}
