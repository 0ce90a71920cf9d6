import { redactHeaders, redactText, redactValue } from "../errors.js";
import type { Clock } from "./clock.js";
import { RequestHeaders } from "./request-headers.js";
import type { HttpAnswer } from "./sender.js";

/** Where log lines go; `console` fits. */
export interface Logger {
  error(message: string, ...details: unknown[]): void;
  warn(message: string, ...details: unknown[]): void;
  info(message: string, ...details: unknown[]): void;
  debug(message: string, ...details: unknown[]): void;
}

/** How much is logged: each level includes those before it. */
export type LogLevel = "off" | "error" | "warn" | "info" | "debug";

/** Levels of logging, from none to all. */
export const LOG_LEVELS = ["off", "error", "warn", "info", "debug"] as const satisfies readonly LogLevel[];

const LINE_LEVELS = ["error", "warn", "info", "debug"] as const satisfies readonly (keyof Logger)[];

/** Passes on the lines of `level` and above, with every secret replaced on the way. */
export function createLogger(target: Logger, level: LogLevel): Logger {
  const threshold = LOG_LEVELS.indexOf(level);
  const logger: Partial<Logger> = {};
  for (const lineLevel of LINE_LEVELS) {
    logger[lineLevel] =
      LOG_LEVELS.indexOf(lineLevel) > threshold
        ? () => {}
        : (message, ...details) => target[lineLevel](redactText(message), ...details.map(redactDetail));
  }
  return logger as Logger;
}

function redactDetail(detail: unknown): unknown {
  if (detail instanceof Headers || detail instanceof RequestHeaders) {
    return Object.fromEntries(redactHeaders(new Headers([...detail])));
  }
  if (detail instanceof Error) return redactText(detail.stack ?? String(detail));
  return redactValue(detail);
}

/** The level that an environment variable names; `warn` if it names none. */
export function logLevelOf(environment: string | undefined): LogLevel {
  return LOG_LEVELS.find((known) => known === environment?.trim().toLowerCase()) ?? "warn";
}

const MAX_REMEMBERED_NOTICES = 100;

/** The service announces in headers what will go away; each notice is logged once. */
export class DeprecationNotices {
  readonly #logger: Logger;
  readonly #seen = new Set<string>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  check(answer: HttpAnswer): void {
    const note = answer.header("x-deprecation-note");
    if (note === null || this.#seen.has(note) || this.#seen.size >= MAX_REMEMBERED_NOTICES) return;
    this.#seen.add(note);
    const level = answer.header("x-deprecation-level")?.trim().toLowerCase() === "error" ? "error" : "warn";
    this.#logger[level](`Deprecation notice: ${note}`);
  }
}

const FAILURES_BEFORE_WARNING = 3;
/** An attempt that took this long is reported at once when it fails: three connections that time out take 15 s. */
const SLOW_FAILURE_MS = 1_000;
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

  /** A request has failed this many times in a row, after `tookMs` in all, and will be tried again. */
  failed(failures: number, error: Error, tookMs = 0): void {
    const now = this.#clock.now();
    const isEarly = failures < FAILURES_BEFORE_WARNING && tookMs < SLOW_FAILURE_MS;
    if (isEarly || now - this.#lastLoggedAt < LOG_INTERVAL_MS) return;
    this.#lastLoggedAt = now;
    const times = failures === 1 ? "once" : `${failures} times in a row`;
    this.#logger.warn(`${error.message} It failed ${times} and is still being tried.`);
  }
}
