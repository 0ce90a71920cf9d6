import { APIConnectionError, APIError, APIUserAbortError, RateLimitError } from "../errors.js";
import {
  type ApiRequest,
  BACK_OFF,
  isRetryableError,
  newIdempotencyKey,
  OutageError,
  type RequestOptions,
} from "../transport/index.js";
import type { EncodedRequest } from "../wire/index.js";
import type { FutureContext } from "./context.js";

const MAX_TOTAL_MS = 5 * 60_000;
const MAX_UNREADABLE_ANSWERS = 3;

/** What has become of a request, after one attempt or after all of them. */
export type Fate<T> =
  | { readonly type: "accepted"; readonly value: T }
  /** The server has not taken it: it said no, or nothing was sent. */
  | { readonly type: "refused"; readonly error: unknown }
  /** The server may have taken it: no answer came, or one that does not tell. */
  | { readonly type: "unknown"; readonly error: unknown };

/** How one attempt must be sent. */
export type AttemptSettings = RequestOptions &
  Pick<ApiRequest, "idempotencyKey" | "earlierAttempts" | "patienceMs">;

/** One attempt at a request; written out, because thousands are made at once and spreading is slow. */
export function attemptOf(request: EncodedRequest, settings: AttemptSettings): ApiRequest {
  return {
    method: request.method,
    path: request.path,
    pool: request.pool,
    query: request.query,
    json: request.json,
    signal: settings.signal,
    timeout: settings.timeout,
    headers: settings.headers,
    maxRetries: settings.maxRetries,
    idempotencyKey: settings.idempotencyKey,
    earlierAttempts: settings.earlierAttempts,
    patienceMs: settings.patienceMs,
  };
}

/** How a request is delivered, besides what its caller may set. */
export interface DeliveryOptions extends RequestOptions {
  readonly signal: AbortSignal;
  /** Statuses that this request wants to see at once, whatever the general rule. */
  readonly finalStatuses?: readonly number[] | undefined;
  /** What to do about a 429, in place of the usual wait. */
  readonly onRateLimit?: (() => Promise<void>) | undefined;
  /** The server has accepted the same request before. */
  readonly sentBefore?: boolean | undefined;
}

/**
 * Sends a request until the server takes or refuses it: `maxRetries` quick retries, then patient ones until five
 * minutes have passed. Every attempt is seen here, so that it is known whether any of them may have arrived.
 */
export async function deliver<T>(
  context: FutureContext,
  send: (settings: AttemptSettings) => Promise<T>,
  options: DeliveryOptions,
): Promise<Fate<T>> {
  const { clock, http, billing } = context;
  const { signal, timeout, headers, finalStatuses = [], onRateLimit } = options;
  const quickRetries = http.maxRetriesOf(options);
  const idempotencyKey = newIdempotencyKey();
  let endsAt = clock.now() + MAX_TOTAL_MS;
  let mayHaveArrived = options.sentBefore ?? false;
  let retries = 0;
  let unreadableAnswers = 0;
  for (;;) {
    const patienceMs = endsAt - clock.now();
    let error: unknown;
    try {
      const earlierAttempts = retries;
      const value = await send({
        signal,
        timeout,
        headers,
        idempotencyKey,
        earlierAttempts,
        patienceMs,
        maxRetries: 0,
      });
      return { type: "accepted", value };
    } catch (caught) {
      error = caught;
    }
    mayHaveArrived ||= !isRefusal(error);
    const type = mayHaveArrived ? "unknown" : "refused";
    let pause: Promise<void>;
    if (billing.shouldPause(error)) {
      pause = billing.wait(signal);
    } else if (onRateLimit !== undefined && error instanceof RateLimitError) {
      pause = onRateLimit();
      endsAt = clock.now() + MAX_TOTAL_MS;
    } else {
      if (isUnreadable(error)) unreadableAnswers += 1;
      const isQuick = retries < quickRetries && !(error instanceof OutageError);
      const leftMs = isQuick ? Number.POSITIVE_INFINITY : endsAt - clock.now();
      const isFinal = error instanceof APIError && finalStatuses.includes(error.status);
      const isRetryable =
        !isFinal &&
        (isUnreadable(error) ? unreadableAnswers <= MAX_UNREADABLE_ANSWERS : isRetryableError(error));
      if (!isQuick || !isRetryable) reportFailure(context, error, isRetryable, retries);
      if (!isRetryable || leftMs <= 0) return { type, error };
      const delayMs = isQuick
        ? http.backOffMs(BACK_OFF.request, retries, error)
        : Math.min(http.backOffMs(BACK_OFF.patient, retries - quickRetries, error), leftMs);
      retries += 1;
      if (error instanceof Error) {
        context.logger.info(`${error.message} Retry ${retries} in ${(delayMs / 1000).toFixed(1)} s.`);
        http.retryWarnings.failed(retries, error);
      }
      pause = clock.sleep(delayMs, signal);
    }
    try {
      await pause;
    } catch (aborted) {
      return { type, error: aborted };
    }
  }
}

/** The value of what was accepted; throws the error of what was not. */
export function valueOrThrow<T>(fate: Fate<T>): T {
  if (fate.type === "accepted") return fate.value;
  throw fate.error;
}

/** Whether it is certain, from the error of one attempt, that the server has not taken the request. */
function isRefusal(error: unknown): boolean {
  if (error instanceof APIError) return error.status >= 400 && error.status < 500 && error.status !== 408;
  return !(error instanceof APIConnectionError || error instanceof APIUserAbortError);
}

/** A success whose body is not what it should be: the page of some proxy. */
function isUnreadable(error: unknown): boolean {
  return error instanceof APIError && error.status < 400;
}

function reportFailure(context: FutureContext, error: unknown, retryable: boolean, attempt: number): void {
  context.telemetry.log("submit.exception", {
    errorType: error instanceof Error ? error.name : typeof error,
    message: error instanceof Error ? error.message : String(error),
    retryable,
    attempt,
  });
}
