import { APIError, messageOf } from "../errors.js";
import { type HttpClient, randomUuid, requestTo } from "../transport/index.js";
import { PROTOCOL_VERSION } from "../version.js";
import {
  endpoints,
  type TelemetryEvent,
  type TelemetryEventBody,
  type TelemetrySeverity,
} from "../wire/index.js";
import type { ClientMetrics } from "./metrics.js";
import { durationText, exceptionEvent, genericEvent } from "./telemetry-events.js";

export const MAX_BATCH_EVENTS = 100;
export const MAX_QUEUED_EVENTS = 10_000;
export const FLUSH_INTERVAL_MS = 10_000;
export const DRAIN_TIMEOUT_MS = 30_000;
const REQUEST_TIMEOUT_MS = 5_000;
const MAX_RETRIES = 3;

export interface TelemetryOptions {
  http: HttpClient;
  metrics: ClientMetrics;
  enabled: boolean;
  /** Host platform name, as the batches name it. */
  platform: string;
  /** Without one the batches carry a made-up `sessionless-` id. */
  sessionId?: string | undefined;
  /** Whether this client opened the session, and so reports its start and its end. */
  ownsSession: boolean;
}

let processUuid: string | undefined;

/**
 * Reports what happens in this client to the service, at no cost to the caller: events wait in a bounded
 * queue, leave in batches, and are dropped and counted when they cannot leave.
 */
export class Telemetry {
  readonly #options: TelemetryOptions;
  readonly #sessionId: string;
  readonly #startedAtMs: number;
  readonly #abort = new AbortController();
  #enabled: boolean;
  #closed = false;
  #nextIndex = 0;
  #queue: TelemetryEvent[] = [];
  #droppedEvents = 0;
  #cancelTimer: (() => void) | undefined;
  #flushing: Promise<void> | undefined;

  constructor(options: TelemetryOptions) {
    this.#options = options;
    this.#enabled = options.enabled;
    this.#sessionId = options.sessionId ?? `sessionless-${randomUuid()}`;
    this.#startedAtMs = options.http.clock.now();
    if (options.ownsSession) this.#push({ event: "SESSION_START", severity: "INFO" });
  }

  get enabled(): boolean {
    return this.#enabled;
  }

  /** Events that were lost because the queue was full or the server did not take them. */
  get droppedEvents(): number {
    return this.#droppedEvents;
  }

  get queuedEvents(): number {
    return this.#queue.length;
  }

  /** Queues a low-cardinality event; false when it was dropped. */
  log(eventName: string, eventData: object = {}, severity: TelemetrySeverity = "INFO"): boolean {
    return this.#enabled && this.#push(genericEvent(eventName, eventData, severity));
  }

  /** Queues an error and sends it soon, without waiting for it. */
  logException(error: unknown, severity: TelemetrySeverity = "ERROR"): boolean {
    if (!this.#enabled) return false;
    const queued = this.#push(exceptionEvent(error, severity));
    void this.flush();
    return queued;
  }

  /** Runs the function, sync or async; what it throws is reported and reaches the caller unchanged. */
  captureExceptions<T>(fn: () => T, severity: TelemetrySeverity = "ERROR"): T {
    const report = (error: unknown): never => {
      this.logException(error, severity);
      throw error;
    };
    let result: T;
    try {
      result = fn();
    } catch (error) {
      return report(error);
    }
    if (result instanceof Promise) return result.catch(report) as T;
    // A future of our own is handed back as it is: the caller needs more of it than `then`.
    if (isThenable(result)) result.then(undefined, (error) => void this.logException(error, severity));
    return result;
  }

  /** Sends everything queued so far; never rejects. */
  async flush(): Promise<void> {
    while (this.#enabled && this.#queue.length > 0 && !this.#abort.signal.aborted) {
      this.#flushing ??= this.#sendNextBatch().finally(() => {
        this.#flushing = undefined;
      });
      await this.#flushing;
    }
    await this.#flushing;
  }

  /** Sends what is left, for at most the given time; what is still queued then is dropped. */
  async close(drainTimeoutMs = DRAIN_TIMEOUT_MS): Promise<void> {
    if (this.#closed) return;
    this.#endSession();
    this.#closed = true;
    this.#stopTimer();
    const cancelDeadline = this.#options.http.clock.setTimer(() => this.#abort.abort(), drainTimeoutMs, {
      background: true,
    });
    try {
      await this.flush();
    } finally {
      cancelDeadline();
      this.#dropQueue();
    }
  }

  #endSession(): void {
    if (!this.#options.ownsSession) return;
    const durationMs = this.#options.http.clock.now() - this.#startedAtMs;
    this.#push({ event: "SESSION_END", severity: "INFO", duration: durationText(durationMs) });
  }

  #push(body: TelemetryEventBody): boolean {
    const { clock } = this.#options.http;
    if (!this.#enabled || this.#closed) return false;
    if (this.#queue.length >= MAX_QUEUED_EVENTS) {
      this.#drop(1);
      return false;
    }
    this.#queue.push({
      ...body,
      eventId: randomUuid(),
      eventSessionIndex: this.#nextIndex++,
      timestamp: new Date(clock.wallNow()).toISOString(),
    });
    const onTimer = () => {
      this.#stopTimer();
      void this.flush();
    };
    this.#cancelTimer ??= clock.setTimer(onTimer, FLUSH_INTERVAL_MS, { background: true });
    return true;
  }

  #stopTimer(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  async #sendNextBatch(): Promise<void> {
    const { http, platform } = this.#options;
    const events = this.#queue.splice(0, MAX_BATCH_EVENTS);
    processUuid ??= randomUuid();
    const batch = {
      events,
      platform,
      sdkVersion: PROTOCOL_VERSION,
      sessionId: this.#sessionId,
      processUuid,
    };
    const limits = { timeout: REQUEST_TIMEOUT_MS, maxRetries: MAX_RETRIES, signal: this.#abort.signal };
    try {
      await http.exchange(requestTo(endpoints.telemetry, batch, limits));
    } catch (error) {
      this.#drop(events.length);
      if (error instanceof APIError && error.status === 404) {
        this.#turnOff();
        http.logger.debug("telemetry is off: the server takes none");
      } else {
        http.logger.debug(`dropped ${events.length} telemetry events: ${messageOf(error)}`);
      }
    }
  }

  /** A server without the endpoint is not asked again by this client. */
  #turnOff(): void {
    this.#enabled = false;
    this.#dropQueue();
    this.#stopTimer();
  }

  #dropQueue(): void {
    this.#drop(this.#queue.length);
    this.#queue = [];
  }

  #drop(count: number): void {
    if (count === 0) return;
    this.#droppedEvents += count;
    this.#options.metrics.increment("telemetry.dropped", count);
  }
}

/** Telemetry is on unless the environment says `0`, `false`, `no` or `off`. */
export function telemetryEnabled(setting: string | undefined): boolean {
  return !["0", "false", "no", "off"].includes((setting ?? "").trim().toLowerCase());
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && "then" in value && typeof value.then === "function";
}
