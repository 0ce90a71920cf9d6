import type { Clock } from "../../../transport/clock.js";
import { tooBusy } from "../http/http-error.js";

/** Shortest key that cannot be guessed by trying. */
export const MIN_KEY_LENGTH = 20;

/** Wrong keys that an address may send in `FORGET_MS` before it is slowed: enough to correct a setting. */
const FREE_TRIES = 10;
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 5_000;
const MAX_WAITING = 8;
const FORGET_MS = 60_000;
const MAX_ADDRESSES = 1_000;

interface Tries {
  count: number;
  waiting: number;
  lastAt: number;
}

/**
 * Slows those who try keys: the answer to each wrong one from an address comes later than the one before. A right key is
 * recognised before this, so that a user is not locked out by others at the same address.
 */
export class WrongKeys {
  readonly #clock: Clock;
  /** In the order of their last try. */
  readonly #addresses = new Map<string, Tries>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Resolves when a wrong key may be answered; a 429 at once where too many of its address wait for that. */
  async slow(address: string): Promise<void> {
    const tries = this.#note(address);
    const surplus = tries.count - FREE_TRIES;
    if (surplus <= 0) return;
    if (tries.waiting >= MAX_WAITING)
      throw tooBusy("Too many wrong API keys came from this address.", MAX_DELAY_MS / 1000);
    tries.waiting += 1;
    const delayMs = Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** Math.min(surplus - 1, 16));
    await new Promise<void>((resolve) => {
      this.#clock.setTimer(resolve, delayMs, { background: true });
    });
    tries.waiting -= 1;
  }

  #note(address: string): Tries {
    const now = this.#clock.now();
    let tries = this.#addresses.get(address);
    if (tries === undefined || now - tries.lastAt >= FORGET_MS) tries = { count: 0, waiting: 0, lastAt: now };
    tries.count += 1;
    tries.lastAt = now;
    this.#addresses.delete(address);
    this.#addresses.set(address, tries);
    if (this.#addresses.size > MAX_ADDRESSES) this.#addresses.delete(this.#addresses.keys().next().value!);
    return tries;
  }
}
