import { APIConnectionError, APIError } from "../errors.js";

const RETRYABLE_STATUSES: ReadonlySet<number> = new Set([408, 409, 425, 429]);

/** Statuses after which the same request may be sent again. */
export function isRetryableStatus(status: number): boolean {
  return RETRYABLE_STATUSES.has(status) || status >= 500;
}

/** Whether an answer is worth another attempt; the server's own word decides over the status. */
export function shouldRetry(answer: { status: number; headers: Headers }): boolean {
  const word = answer.headers.get("x-should-retry");
  if (word === "true") return true;
  if (word === "false") return false;
  return isRetryableStatus(answer.status);
}

/** The same question about the error of a finished call; for loops that send again what the transport gave up. */
export function isRetryableError(error: unknown): boolean {
  if (error instanceof APIConnectionError) return true;
  return error instanceof APIError && shouldRetry(error);
}

const INITIAL_DELAY_MS = 500;
const LONGEST_DELAY_MS = 10_000;
const LONGEST_COMMANDED_DELAY_MS = 60_000;

/** How long to wait before attempt `attempt + 1`, counting attempts from 0. */
export function retryDelayMs(failure: {
  attempt: number;
  headers?: Headers | undefined;
  random: () => number;
  wallNow: () => number;
}): number {
  const commandedMs =
    failure.headers === undefined ? undefined : retryAfterMs(failure.headers, failure.wallNow);
  // A server may not park us for longer than a minute, nor make us spin.
  if (commandedMs !== undefined && commandedMs > 0 && commandedMs <= LONGEST_COMMANDED_DELAY_MS)
    return commandedMs;
  const delayMs = Math.min(INITIAL_DELAY_MS * 2 ** failure.attempt, LONGEST_DELAY_MS);
  return delayMs * (1 - 0.25 * failure.random());
}

/** The wait a server asks for: `retry-after-ms`, else `retry-after` as seconds or as an HTTP date. */
export function retryAfterMs(headers: Headers, wallNow: () => number): number | undefined {
  const milliseconds = decimal(headers.get("retry-after-ms"));
  if (milliseconds !== undefined) return milliseconds;
  const retryAfter = headers.get("retry-after");
  if (retryAfter === null) return undefined;
  const seconds = decimal(retryAfter);
  if (seconds !== undefined) return seconds * 1000;
  const dateMs = Date.parse(retryAfter);
  return Number.isNaN(dateMs) ? undefined : dateMs - wallNow();
}

function decimal(text: string | null): number | undefined {
  if (text === null || text.trim() === "") return undefined;
  const value = Number(text);
  return Number.isFinite(value) ? value : undefined;
}
