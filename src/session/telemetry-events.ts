import { isUserError, messageOf, redactText } from "../errors.js";
import type { TelemetryEventBody, TelemetrySeverity } from "../wire/index.js";

const MAX_TEXT_CHARACTERS = 8_000;
const MAX_DATA_CHARACTERS = 64_000;
const SECRET_KEY = /(token|secret|password|api[-_]?key|authorization|cookie|credential|cf-access-.*)s?$/i;

export function genericEvent(
  eventName: string,
  eventData: object,
  severity: TelemetrySeverity,
): TelemetryEventBody {
  return {
    event: "GENERIC_EVENT",
    severity,
    eventName: scrubText(eventName),
    eventData: scrubData(eventData),
  };
}

/** A failure the caller has to fix is a `user_error`; anything else is an exception of ours or the service's. */
export function exceptionEvent(error: unknown, severity: TelemetrySeverity): TelemetryEventBody {
  if (isUserError(error)) {
    const { status, body } = error as { status?: unknown; body?: unknown };
    return genericEvent(
      "user_error",
      {
        error_type: typeOf(error),
        message: messageOf(error),
        ...(typeof status === "number" && { status_code: status }),
        ...(body !== undefined && body !== null && { body }),
      },
      "WARNING",
    );
  }
  const stack = error instanceof Error ? error.stack : undefined;
  return {
    event: "UNHANDLED_EXCEPTION",
    severity,
    errorType: typeOf(error),
    errorMessage: scrubText(messageOf(error)),
    ...(stack !== undefined && { traceback: scrubText(stack) }),
  };
}

/** `H:MM:SS.ffffff`, the form in which the service receives durations from the official SDK. */
export function durationText(durationMs: number): string {
  const totalSeconds = Math.floor(durationMs / 1000);
  const days = Math.floor(totalSeconds / 86_400);
  const hours = Math.floor((totalSeconds % 86_400) / 3600);
  const minutes = Math.floor((totalSeconds % 3600) / 60);
  const micros = Math.floor((durationMs % 1000) * 1000);
  const clockText = `${hours}:${twoDigits(minutes)}:${twoDigits(totalSeconds % 60)}`;
  const dayText = days === 0 ? "" : `${days} day${days === 1 ? "" : "s"}, `;
  return `${dayText}${clockText}${micros === 0 ? "" : `.${String(micros).padStart(6, "0")}`}`;
}

function twoDigits(value: number): string {
  return String(value).padStart(2, "0");
}

function typeOf(error: unknown): string {
  return error instanceof Error ? error.name : typeof error;
}

function scrubText(text: string): string {
  const redacted = redactText(text);
  return redacted.length > MAX_TEXT_CHARACTERS ? `${redacted.slice(0, MAX_TEXT_CHARACTERS)}…` : redacted;
}

/** A plain JSON copy of the data, without credentials and header collections at any depth. */
function scrubData(data: object): Record<string, unknown> {
  try {
    const text = JSON.stringify(data, scrubField);
    return text.length > MAX_DATA_CHARACTERS
      ? { omitted_characters: text.length }
      : (JSON.parse(text) as Record<string, unknown>);
  } catch {
    return { unserializable: true };
  }
}

function scrubField(key: string, value: unknown): unknown {
  if (/headers$/i.test(key) || value instanceof Headers) return undefined;
  if (typeof value === "number") return Number.isFinite(value) ? value : String(value);
  if (typeof value === "boolean" || value === null) return value;
  if (SECRET_KEY.test(key)) return "[redacted]";
  if (typeof value === "string") return scrubText(value);
  if (typeof value === "bigint") return value.toString();
  if (value instanceof Error) return { error_type: typeOf(value), message: scrubText(messageOf(value)) };
  return value;
}
