import type { SendLimit, SendPlace } from "../../futures/index.js";
import { ByteBudget, type Clock, Semaphore, SharedByServer } from "../../transport/index.js";

const MAX_DISPATCHES = 400;
const MAX_DISPATCHES_AFTER_BACKOFF = 10;
const CAREFUL_FOR_MS = 10_000;
const CAREFUL_BYTE_FACTOR = 20;
const LARGE_REQUEST_BYTES = 128 * 1024;

/**
 * Limits the sampling requests in flight to one server with one credential. A request holds a place only until the
 * server has accepted it. A 429 pauses all of them and then slows them for a while.
 */
export class SamplingLimits implements SendLimit {
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

  /** Waits for a place for a request of about this size; the returned function frees the place. */
  async #acquire(requestBytes: number, signal: AbortSignal): Promise<() => void> {
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

  /** Waits for a place, and backs off together with all others if the server asks for it. */
  async enter(bytes: number, signal: AbortSignal): Promise<SendPlace> {
    const leave = await this.#acquire(bytes, signal);
    try {
      await this.#waitForBackOff(signal);
    } catch (error) {
      leave();
      throw error;
    }
    const backOff = () => {
      this.#backOff(bytes);
      return this.#waitForBackOff(signal);
    };
    return { leave, backOff };
  }

  /** Waits while the server has asked all clients to back off. */
  async #waitForBackOff(signal: AbortSignal): Promise<void> {
    for (;;) {
      const waitMs = this.#backOffUntil - this.#clock.now();
      if (waitMs <= 0) return;
      await this.#clock.sleep(waitMs, signal);
    }
  }

  /** Records that the server answered 429 to a request of this size. */
  #backOff(requestBytes: number): void {
    const durationMs = requestBytes <= LARGE_REQUEST_BYTES ? 1_000 : 5_000;
    this.#backOffUntil = Math.max(this.#backOffUntil, this.#clock.now() + durationMs);
  }

  #isCareful(): boolean {
    return this.#clock.now() - this.#backOffUntil < CAREFUL_FOR_MS;
  }
}
