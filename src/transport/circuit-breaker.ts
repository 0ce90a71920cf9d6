import { APIConnectionError, TinkerError } from "../errors.js";
import { untilAborted } from "./abort.js";
import type { Clock } from "./clock.js";
import { linkSignals } from "./link-signals.js";
import { BACK_OFF, backOffMs } from "./retry-policy.js";
import { SharedByServer } from "./shared-by-server.js";

/** Failures in a row, with no answer to any request between them, after which the server counts as silent. */
export const FAILURES_UNTIL_OPEN = 3;
/** Milliseconds between two waiting requests that continue after an outage. */
const RESUME_MS_PER_WAITER = 1;

/** A patient request was stopped on its way to a connection: it was not sent, and waits like the others. */
export class HeldBack extends TinkerError {}

/** A patient request has waited in vain for the server to answer any request. */
export class OutageError extends APIConnectionError {
  constructor(cause: Error | undefined) {
    super(`The server is not answering: ${cause?.message ?? "no connection."}`, { cause });
  }
}

/** A waiting request, which probes the server for all when it is its turn. */
export interface BreakerWaiter {
  readonly clock: Clock;
  readonly random: () => number;
  readonly signal: AbortSignal | undefined;
  /** By the clock's `now`. */
  readonly deadlineMs: number;
  /** Asks the server for any answer at all; it is up to the caller to report how that ended. */
  probe(signal: AbortSignal): Promise<void>;
}

/** While a server does not answer, one probe is sent for all the requests that wait for it. */
export class CircuitBreaker {
  /** One for all clients of the process with the same base URL and credential. */
  static readonly shared = new SharedByServer<CircuitBreaker>();

  #failures = 0;
  #probes = 0;
  #lastError: Error | undefined;
  #waiting = 0;
  /** The probe under way and the wait before it. */
  #round: { readonly ended: Promise<void>; readonly cancel: () => void } | undefined;

  get isOpen(): boolean {
    return this.#failures >= FAILURES_UNTIL_OPEN;
  }

  /** An HTTP answer came, whatever its status. */
  answered(): void {
    this.#failures = 0;
    this.#probes = 0;
    this.#round?.cancel();
  }

  /** A request got no answer at all. */
  failed(error: Error): void {
    this.#failures += 1;
    this.#lastError = error;
  }

  /** Returns as soon as the server has answered any request; throws at the waiter's deadline. */
  async untilAnswered(waiter: BreakerWaiter): Promise<void> {
    this.#waiting += 1;
    try {
      while (this.isOpen) {
        if (waiter.clock.now() >= waiter.deadlineMs) throw new OutageError(this.#lastError);
        // A waiter that finds no probe under way makes one, also if the maker of the last has given up.
        this.#round ??= this.#startRound(waiter);
        await untilAborted(this.#round.ended, waiter.signal);
        const spreadMs = (this.#waiting - 1) * RESUME_MS_PER_WAITER;
        if (!this.isOpen && spreadMs > 0) await waiter.clock.sleep(waiter.random() * spreadMs, waiter.signal);
      }
    } finally {
      this.#waiting -= 1;
    }
  }

  #startRound(waiter: BreakerWaiter) {
    const link = linkSignals(waiter.signal);
    const ended = this.#probe(waiter, link.signal)
      .catch(() => {})
      .finally(() => {
        link.release();
        this.#round = undefined;
      });
    return { ended, cancel: () => link.signal.abort() };
  }

  async #probe({ clock, random, probe }: BreakerWaiter, signal: AbortSignal): Promise<void> {
    const retries = this.#probes - 1;
    this.#probes += 1;
    if (retries >= 0) await clock.sleep(backOffMs(BACK_OFF.probe, retries, { random }), signal);
    await untilAborted(probe(signal), signal);
  }
}
