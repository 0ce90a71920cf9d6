import { APIConnectionError } from "../../errors.js";
import { type Clock, type Interruption, linkSignals } from "../../transport/index.js";

const STUCK_AFTER_MS = 2 * 3600_000;

/** Ends all requests in flight when none of them has made progress for two hours. */
export class ProgressWatch {
  readonly #clock: Clock;
  readonly #enabled: boolean;
  readonly #inFlight = new Set<Interruption>();
  #lastProgressAt = 0;
  #cancelTimer: (() => void) | undefined;

  constructor(clock: Clock, enabled: boolean) {
    this.#clock = clock;
    this.#enabled = enabled;
  }

  /** Registers a request; its signal aborts with the caller's, or when all requests are stuck. */
  begin(signal: AbortSignal | undefined): { signal: AbortSignal; end: () => void } {
    const link = linkSignals(signal);
    if (this.#inFlight.size === 0) this.noteProgress();
    this.#inFlight.add(link.signal);
    this.#watch();
    return {
      signal: link.signal,
      end: () => {
        link.release();
        this.#inFlight.delete(link.signal);
        if (this.#inFlight.size > 0) return;
        this.#cancelTimer?.();
        this.#cancelTimer = undefined;
      },
    };
  }

  noteProgress(): void {
    this.#lastProgressAt = this.#clock.now();
  }

  #watch(): void {
    if (!this.#enabled || this.#cancelTimer !== undefined) return;
    const waitMs = Math.max(this.#lastProgressAt + STUCK_AFTER_MS - this.#clock.now(), 0);
    this.#cancelTimer = this.#clock.setTimer(
      () => {
        this.#cancelTimer = undefined;
        if (this.#clock.now() - this.#lastProgressAt < STUCK_AFTER_MS) return this.#watch();
        const stuck = new APIConnectionError(
          "No sampling request made progress for two hours: giving up on all of them.",
        );
        for (const request of this.#inFlight) request.abort(stuck);
      },
      waitMs,
      { background: true },
    );
  }
}
