import { redactHeaders, redactText, redactValue, ValidationError } from "../errors.js";
import type { Clock } from "./clock.js";
import { RequestHeaders } from "./request-headers.js";
import type { Answer } from "./sender.js";

/** Where log lines go; `console` fits. */
export interface Logger {
  error(message: string, ...details: unknown[]): void;
  warn(message: string, ...details: unknown[]): void;
  info(message: string, ...details: unknown[]): void;
  debug(message: string, ...details: unknown[]): void;
}

/** How much is logged: each level includes those before it. */
export type LogLevel = "off" | "error" | "warn" | "info" | "debug";

const LEVELS = ["off", "error", "warn", "info", "debug"] as const satisfies readonly LogLevel[];

const LINE_LEVELS = ["error", "warn", "info", "debug"] as const satisfies readonly (keyof Logger)[];

/** Passes on the lines of `level` and above, with every secret replaced on the way. */
export function createLogger(target: Logger, level: LogLevel): Logger {
  const threshold = LEVELS.indexOf(level);
  const logger: Partial<Logger> = {};
  for (const lineLevel of LINE_LEVELS) {
    logger[lineLevel] =
      LEVELS.indexOf(lineLevel) > threshold
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

/** Reads a level from an option or the environment; a level that does not exist is an error only as an option. */
export function resolveLogLevel(option: string | undefined, environment: string | undefined): LogLevel {
  if (option !== undefined) {
    const level = LEVELS.find((known) => known === option);
    if (level !== undefined) return level;
    throw new ValidationError("logLevel", `logLevel must be one of ${LEVELS.join(", ")}, got "${option}"`);
  }
  return LEVELS.find((known) => known === environment?.trim().toLowerCase()) ?? "warn";
}

const MAX_REMEMBERED_NOTICES = 100;

/** The service announces in headers what will go away; each notice is logged once. */
export class DeprecationNotices {
  readonly #logger: Logger;
  readonly #seen = new Set<string>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  check(answer: Answer): void {
    const note = answer.header("x-deprecation-note");
    if (note === null || this.#seen.has(note) || this.#seen.size >= MAX_REMEMBERED_NOTICES) return;
    this.#seen.add(note);
    const level = answer.header("x-deprecation-level")?.trim().toLowerCase() === "error" ? "error" : "warn";
    this.#logger[level](`Deprecation notice: ${note}`);
  }
}

const FAILURES_BEFORE_WARNING = 3;
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
    if (failures < FAILURES_BEFORE_WARNING || now - this.#lastLoggedAt < LOG_INTERVAL_MS) return;
    this.#lastLoggedAt = now;
    this.#logger.warn(`${error.message} It failed ${failures} times in a row and is still being tried.`);
  }
}
