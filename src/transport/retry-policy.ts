import { APIConnectionError, APIError } from "../errors.js";

/** Successes in a row whose body is not what it should be, such as a proxy's page, after which a request is given up. */
export const MAX_UNREADABLE_ANSWERS = 3;

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

/** Whether the error of one attempt is worth a retry. */
export function isRetryableError(error: unknown): boolean {
  if (error instanceof APIConnectionError) return true;
  return error instanceof APIError && shouldRetry(error);
}

/** How the waits between tries grow: they double from the first to the longest, less up to `jitter` of it at random. */
export interface BackOffPolicy {
  readonly firstMs: number;
  readonly maxMs: number;
  readonly jitter?: number;
}

/** Every wait between two tries in the SDK. */
export const BACK_OFF = {
  /** One request. */
  request: { firstMs: 500, maxMs: 10_000, jitter: 0.25 },
  /** Waits of minutes or hours, after a few quick tries have failed. */
  patient: { firstMs: 1_000, maxMs: 30_000 },
  /** Polls that the server answers, but not with a result: soon, but never a tight loop. */
  poll: { firstMs: 50, maxMs: 2_000 },
  /** Probes of a server that does not answer. */
  probe: { firstMs: 500, maxMs: 5_000, jitter: 0.25 },
  /** Waits until the account's billing is in order. */
  billing: { firstMs: 5_000, maxMs: 5_000 },
  /** An archive is being built. */
  archive: { firstMs: 30_000, maxMs: 30_000 },
} as const satisfies Record<string, BackOffPolicy>;

const MAX_COMMANDED_DELAY_MS = 60_000;

/** How long to wait before the next try, after this many retries; a server's own word counts first. */
export function backOffMs(
  policy: BackOffPolicy,
  retries: number,
  circumstances: {
    readonly random?: () => number;
    /** The headers of the answer, if any came, and the date by which to read them. */
    readonly headers?: Headers | undefined;
    readonly wallNow?: () => number;
  } = {},
): number {
  const { headers, random = Math.random, wallNow = Date.now } = circumstances;
  const commandedMs = headers === undefined ? undefined : retryAfterMs(headers, wallNow);
  // A server may not park us for longer than a minute, nor make us spin.
  if (commandedMs !== undefined && commandedMs > 0 && commandedMs <= MAX_COMMANDED_DELAY_MS)
    return commandedMs;
  const delayMs = Math.min(policy.firstMs * 2 ** retries, policy.maxMs);
  return policy.jitter === undefined ? delayMs : delayMs * (1 - policy.jitter * random());
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
