import type { Clock } from "./clock.js";
import type { Logger } from "./logger.js";

const FAILURES_BEFORE = 3;
const LOG_INTERVAL_MS = 60_000;

/** Warns, once a minute at most, of requests that keep failing and are tried again: an outage must not look like a hang. */
export class RetryWarnings {
  readonly #clock: Clock;
  readonly #logger: Logger;
  #lastLoggedAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
  }

  /** A request has failed this many times in a row and will be tried again. */
  failed(failures: number, error: Error): void {
    const now = this.#clock.now();
    if (failures < FAILURES_BEFORE || now - this.#lastLoggedAt < LOG_INTERVAL_MS) return;
    this.#lastLoggedAt = now;
    this.#logger.warn(`${error.message} It failed ${failures} times in a row and is still being tried.`);
  }
}
