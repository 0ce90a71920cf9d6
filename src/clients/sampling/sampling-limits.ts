import { type DeliveryOptions, type Fate, valueOrThrow } from "../../futures/index.js";
import {
  ByteBudget,
  type Clock,
  type RequestOptions,
  Semaphore,
  SharedByServer,
} from "../../transport/index.js";
import { type EncodedRequest, estimateModelInputBytes, type SampleRequest } from "../../wire/index.js";

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

  /** Sends a request when there is a place for it, and backs off where the server says so. */
  async send<T>(
    { prompt }: SampleRequest,
    options: RequestOptions & { signal: AbortSignal },
    encode: () => EncodedRequest,
    send: (encoded: EncodedRequest, options: DeliveryOptions) => Promise<Fate<T>>,
  ): Promise<T> {
    const { signal } = options;
    const requestBytes = estimateModelInputBytes(prompt);
    const release = await this.#acquire(requestBytes, signal);
    try {
      const encoded = encode();
      await this.#waitForBackOff(signal);
      return valueOrThrow(
        await send(encoded, {
          ...options,
          headers: { "X-Tinker-Sampling-Backpressure": "1", ...options.headers },
          maxRetries: options.maxRetries ?? 0,
          onRateLimit: () => {
            this.#backOff(requestBytes);
            return this.#waitForBackOff(signal);
          },
        }),
      );
    } finally {
      release();
    }
  }

  /** Waits while the server asked everybody to back off. */
  async #waitForBackOff(signal: AbortSignal): Promise<void> {
    for (;;) {
      const waitMs = this.#backOffUntil - this.#clock.now();
      if (waitMs <= 0) return;
      await this.#clock.sleep(waitMs, signal);
    }
  }

  /** The server answered 429 to a request of this size. */
  #backOff(requestBytes: number): void {
    const durationMs = requestBytes <= LARGE_REQUEST_BYTES ? 1_000 : 5_000;
    this.#backOffUntil = Math.max(this.#backOffUntil, this.#clock.now() + durationMs);
  }

  #isCareful(): boolean {
    return this.#clock.now() - this.#backOffUntil < CAREFUL_FOR_MS;
  }
}
