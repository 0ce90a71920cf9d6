import { ByteBudget, type Clock, Semaphore, SharedByServer } from "../../transport/index.js";

const MAX_DISPATCHES = 400;
const MAX_DISPATCHES_AFTER_BACKOFF = 10;
const CAREFUL_FOR_MS = 10_000;
const CAREFUL_BYTE_FACTOR = 20;
const LARGE_REQUEST_BYTES = 128 * 1024;

/**
 * How many sampling requests may be on their way to one server with one credential. A place is held only until
 * the server has accepted the request. A 429 stops all of them for a moment and makes them careful for a while.
 */
export class SamplingLimits {
  static readonly shared = new SharedByServer<SamplingLimits>();

  readonly #clock: Clock;
  readonly #dispatches = new Semaphore(MAX_DISPATCHES);
  readonly #carefulDispatches = new Semaphore(MAX_DISPATCHES_AFTER_BACKOFF);
  readonly #bytes: ByteBudget;
  #backOffUntil = Number.NEGATIVE_INFINITY;

  constructor(budgetBytes: number, clock: Clock) {
    this.#bytes = new ByteBudget(budgetBytes);
    this.#clock = clock;
  }

  /** Waits for a place to send a request of about this size; the returned function gives it back. */
  async acquire(requestBytes: number, signal: AbortSignal): Promise<() => void> {
    const releases: (() => void)[] = [];
    const release = () => {
      for (const each of releases.splice(0).reverse()) each();
    };
    try {
      releases.push(await this.#dispatches.acquire(signal));
      if (this.#isCareful()) releases.push(await this.#carefulDispatches.acquire(signal));
      const cost = this.#isCareful() ? requestBytes * CAREFUL_BYTE_FACTOR : requestBytes;
      releases.push(await this.#bytes.acquire(cost, signal));
      return release;
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Waits while the server asked everybody to back off. */
  async waitForBackOff(signal: AbortSignal): Promise<void> {
    for (;;) {
      const waitMs = this.#backOffUntil - this.#clock.now();
      if (waitMs <= 0) return;
      await this.#clock.sleep(waitMs, signal);
    }
  }

  /** The server answered 429 to a request of this size. */
  backOff(requestBytes: number): void {
    const durationMs = requestBytes <= LARGE_REQUEST_BYTES ? 1_000 : 5_000;
    this.#backOffUntil = Math.max(this.#backOffUntil, this.#clock.now() + durationMs);
  }

  #isCareful(): boolean {
    return this.#clock.now() - this.#backOffUntil < CAREFUL_FOR_MS;
  }
}
