import { redactHeaders, redactText, redactValue, ValidationError } from "../errors.js";
import { RequestHeaders } from "./request-headers.js";

/** Where log lines go; `console` fits. */
export interface Logger {
  error(message: string, ...details: unknown[]): void;
  warn(message: string, ...details: unknown[]): void;
  info(message: string, ...details: unknown[]): void;
  debug(message: string, ...details: unknown[]): void;
}

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
