import { APIConnectionError, APIError, APIUserAbortError, RateLimitError } from "../errors.js";
import {
  type APIRequest,
  BACK_OFF,
  isRetryableError,
  MAX_UNREADABLE_ANSWERS,
  newIdempotencyKey,
  OutageError,
  platform,
  type RequestOptions,
} from "../transport/index.js";
import { type Endpoint, encodeRequest, type OperationEndpoint } from "../wire/index.js";
import type { FutureContext } from "./context.js";
import { RequestFormat } from "./request-format.js";

const MAX_TOTAL_MS = 5 * 60_000;

/** A request as data: where it goes and what it says. It is written for each attempt, in the format its server takes. */
export interface Outgoing {
  readonly endpoint: Endpoint & Pick<OperationEndpoint, "protobuf">;
  readonly message: Readonly<Record<string, unknown>>;
  /** Where it waits for its place among others; absent: it is sent at once. */
  readonly limit?: SendLimit | undefined;
  /** About how many bytes it takes on its way, for `limit`. */
  readonly bytes?: number | undefined;
}

/** Bounds what may be on its way to a server at once. */
export interface SendLimit {
  /** Waits for a place for a request of about this size. */
  enter(bytes: number, signal: AbortSignal): Promise<SendPlace>;
}

/** A request's place among those on their way. */
export interface SendPlace {
  leave(): void;
  /** Waits after a 429; absent: the usual back-off. */
  backOff?(): Promise<void>;
}

/** Where a request stands, after one attempt or after all of them. */
export type DeliveryOutcome<T> =
  | { readonly type: "accepted"; readonly value: T }
  /** The server has not taken it: it said no, or nothing was sent. */
  | { readonly type: "refused"; readonly error: unknown }
  /** The server may have taken it: no answer came, or one that does not tell. */
  | { readonly type: "unknown"; readonly error: unknown };

/** How a request is delivered, besides what its caller may set. */
export interface DeliveryOptions extends RequestOptions {
  readonly signal: AbortSignal;
  /** Statuses that are returned at once, without retries. */
  readonly finalStatuses?: readonly number[] | undefined;
  /** The server has accepted the same request before. */
  readonly sentBefore?: boolean | undefined;
}

/**
 * Sends a request until the server takes or refuses it: `maxRetries` quick retries, then patient ones until five
 * minutes have passed. Every attempt is seen here, so that it is known whether any of them may have arrived.
 */
export async function deliver<T>(
  context: FutureContext,
  request: Outgoing,
  options: DeliveryOptions,
  exchange: (attempt: APIRequest) => Promise<T>,
): Promise<DeliveryOutcome<T>> {
  let place: SendPlace | undefined;
  try {
    place = await request.limit?.enter(request.bytes ?? 0, options.signal);
  } catch (error) {
    return { type: options.sentBefore ? "unknown" : "refused", error };
  }
  try {
    return await attemptUntilTaken(context, request, options, exchange, place);
  } finally {
    place?.leave();
  }
}

async function attemptUntilTaken<T>(
  context: FutureContext,
  request: Outgoing,
  options: DeliveryOptions,
  exchange: (attempt: APIRequest) => Promise<T>,
  place: SendPlace | undefined,
): Promise<DeliveryOutcome<T>> {
  const { clock, http, billing } = context;
  const { signal, finalStatuses = [] } = options;
  const quickRetries = http.maxRetriesOf(options);
  const format = new RequestFormat(context, request.endpoint);
  const idempotencyKey = newIdempotencyKey();
  let endsAt = clock.now() + MAX_TOTAL_MS;
  let mayHaveArrived = options.sentBefore ?? false;
  let retries = 0;
  let unreadableAnswers = 0;
  for (;;) {
    let error: unknown;
    try {
      const attempt = await writeAttempt(context, request, options, format, {
        idempotencyKey: format.isFallback ? `${idempotencyKey}-json` : idempotencyKey,
        earlierAttempts: retries,
        patienceMs: endsAt - clock.now(),
      });
      const value = await exchange(attempt);
      format.worked();
      return { type: "accepted", value };
    } catch (caught) {
      error = format.failed(caught);
      if (error === undefined) continue;
    }
    mayHaveArrived ||= !isRefusal(error);
    const type = mayHaveArrived ? "unknown" : "refused";
    let pause: Promise<void>;
    if (billing.shouldPause(error)) {
      pause = billing.wait(signal);
    } else if (place?.backOff !== undefined && error instanceof RateLimitError) {
      pause = place.backOff();
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

/** One attempt as HTTP carries it; written out, because thousands are made at once and spreading is slow. */
async function writeAttempt(
  { session }: FutureContext,
  { endpoint, message }: Outgoing,
  { signal, timeout, headers }: DeliveryOptions,
  format: RequestFormat,
  attempt: Required<Pick<APIRequest, "idempotencyKey" | "earlierAttempts" | "patienceMs">>,
): Promise<APIRequest> {
  const { idempotencyKey, earlierAttempts, patienceMs } = attempt;
  const common = { signal, timeout, idempotencyKey, earlierAttempts, patienceMs, maxRetries: 0 };
  if (!format.isProtobuf) {
    const { method, path, pool, query, json } = encodeRequest(endpoint, message);
    return { method, path, pool, query, json, headers, ...common };
  }
  const { path, write } = endpoint.protobuf!;
  const bytes = write(message);
  const compress = session.config.protoCompressFwdbwd ? platform.zstdCompress : undefined;
  return {
    method: endpoint.method,
    path,
    pool: endpoint.pool,
    body: compress === undefined ? bytes : await compress(bytes),
    contentType: "application/x-protobuf",
    headers: compress === undefined ? headers : { ...headers, "Content-Encoding": "zstd" },
    ...common,
  };
}

/** The value of what was accepted; throws the error of what was not. */
export function valueOrThrow<T>(outcome: DeliveryOutcome<T>): T {
  if (outcome.type === "accepted") return outcome.value;
  throw outcome.error;
}

/** True if the error of one attempt shows for certain that the server has not taken the request. */
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
