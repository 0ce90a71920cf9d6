import type { Clock, Logger } from "../transport/index.js";

/** Whether the server works on a request, or why it does not yet. */
export type QueueState = "active" | "paused_capacity" | "paused_rate_limit" | "unknown";

/** State of a waiting request, as the server reports it. */
export interface QueueStateEvent {
  state: QueueState;
  /** The server's own words, when it gave any. */
  reason: string | undefined;
  /** The model, sampler or base model that waits. */
  target: string;
  requestId: string;
  requestType: string;
}

/** Called with every queue state that the server reports while a request waits, `active` included. */
export type QueueStateObserver = (event: QueueStateEvent) => void;

const LOG_INTERVAL_MS = 60_000;

const DEFAULT_REASON: Record<QueueState, string> = {
  active: "",
  paused_capacity: "the server is short of capacity",
  paused_rate_limit: "a rate limit was reached",
  unknown: "the server gave no reason",
};

/** An unlisted state is `unknown`. */
export function parseQueueState(value: unknown): QueueState {
  return value === "active" || value === "paused_capacity" || value === "paused_rate_limit"
    ? value
    : "unknown";
}

/** Logs a paused queue at most once a minute for one target, and hands every event to the user's observer. */
export class QueueStateLogger {
  readonly target: string;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #observer: QueueStateObserver | undefined;
  #lastLoggedAt = Number.NEGATIVE_INFINITY;

  constructor(
    target: string,
    options: { clock: Clock; logger: Logger; observer?: QueueStateObserver | undefined },
  ) {
    this.target = target;
    this.#clock = options.clock;
    this.#logger = options.logger;
    this.#observer = options.observer;
  }

  report(event: Omit<QueueStateEvent, "target">): void {
    try {
      this.#observer?.({ ...event, target: this.target });
    } catch (error) {
      this.#logger.warn(`The queue state observer threw: ${String(error)}`);
    }
    if (event.state === "active") return;
    const now = this.#clock.now();
    if (now - this.#lastLoggedAt < LOG_INTERVAL_MS) return;
    this.#lastLoggedAt = now;
    this.#logger.warn(
      `${event.requestType} for ${this.target} is waiting: ${event.reason ?? DEFAULT_REASON[event.state]}`,
    );
  }
}
