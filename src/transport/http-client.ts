import { platform } from "#platform";
import { AnswerTooLargeError, APIConnectionError, APIError, TinkerError } from "../errors.js";
import { encodeRequest, endpoints, inUsersWords } from "../wire/index.js";
import { throwIfAborted } from "./abort.js";
import { APIPromise } from "./api-promise.js";
import { createApiResponse, errorBody, parseByContentType, toResponse } from "./api-response.js";
import { HttpAttempt } from "./attempt.js";
import { type AuthProvider, HOSTED_BASE_URL, noAuth, resolveAuth } from "./auth.js";
import { CallScope } from "./call-scope.js";
import { CircuitBreaker, FAILURES_UNTIL_OPEN, HeldBack } from "./circuit-breaker.js";
import { type Clock, systemClock } from "./clock.js";
import { connectionsOver } from "./fetch-sender.js";
import { newIdempotencyKey } from "./ids.js";
import { createLogger, DeprecationNotices, type Logger, logLevelOf, RetryWarnings } from "./logger.js";
import { HTTP_CLIENT_OPTIONS } from "./options.js";
import type { Connections } from "./platform-types.js";
import { ReconnectBudget } from "./reconnect-budget.js";
import { followingRedirects } from "./redirects.js";
import { buildURL, type EncodedBody, encodeBody, isRawBody, normalizeBaseURL } from "./request-encoding.js";
import { RequestHeaders } from "./request-headers.js";
import {
  BACK_OFF,
  type BackOffPolicy,
  backOffMs,
  MAX_UNREADABLE_ANSWERS,
  shouldRetry,
} from "./retry-policy.js";
import type { HttpAnswer } from "./sender.js";
import type {
  APIRequest,
  APIResponse,
  EndpointOptions,
  ExchangeHook,
  HeaderValues,
  HttpClientOptions,
  HttpMethod,
  PoolName,
} from "./types.js";

const PROBE_TIMEOUT_MS = 10_000;
/** Most bytes that are read of an answer: a list or a receipt, a result, an error. */
const MAX_JSON_BYTES = 64 * 2 ** 20;
const MAX_RESULT_BYTES = 512 * 2 ** 20;
const MAX_ERROR_BYTES = 2 ** 20;

/** An answer below 400, with the attempt that can still read its body. */
interface Answered {
  readonly answer: HttpAnswer;
  readonly attempt: HttpAttempt;
  readonly scope: CallScope;
}

/** `keepOpen` means that the body is still being read and the call ends with it. */
type Finish<T> = (answered: Answered) => Promise<{ value: T; keepOpen?: boolean }>;

/** Everything about one call that stays the same over its attempts. */
interface Call {
  readonly request: APIRequest;
  readonly scope: CallScope;
  readonly url: string;
  readonly body: EncodedBody;
  readonly pool: PoolName;
  readonly timeoutMs: number;
  readonly maxRetries: number;
  readonly idempotencyKey: string | undefined;
  readonly startedMs: number;
}

/** The address of the server that these options name: the given one, that of the environment, or the hosted service. */
export function serverAddress({ baseURL }: Pick<HttpClientOptions, "baseURL">): string {
  return normalizeBaseURL(baseURL || platform.env("TINKER_BASE_URL") || HOSTED_BASE_URL);
}

/** Speaks HTTP with one server: credentials, connections, retries, timeouts, logging. */
export class HttpClient {
  readonly baseURL: string;
  readonly timeoutMs: number;
  readonly maxRetries: number;
  readonly logger: Logger;
  readonly clock: Clock;
  /** Reports failures that are retried, here and in the layers above. */
  readonly retryWarnings: RetryWarnings;
  readonly random: () => number;
  /** True when the caller gave a `fetch`, through which every request must then go. */
  readonly hasCustomFetch: boolean;
  /** Called for every attempt of every request. */
  readonly hooks: ExchangeHook[] = [];
  /** Where the credential comes from; a session replaces it if the server needs JWTs. */
  auth: AuthProvider;
  readonly #options: HttpClientOptions;
  readonly #connections: Connections;
  readonly #fixedHeaders: RequestHeaders;
  readonly #openCalls = new Set<CallScope>();
  readonly #reconnects = new ReconnectBudget();
  readonly #deprecations: DeprecationNotices;
  readonly #breaker: ReturnType<typeof CircuitBreaker.shared.acquire>;
  #closed = false;

  constructor(given: HttpClientOptions = {}) {
    const options = HTTP_CLIENT_OPTIONS.check(given, "HttpClient");
    this.#options = options;
    this.baseURL = serverAddress(options);
    this.timeoutMs = options.timeout;
    this.maxRetries = options.maxRetries;
    this.logger = createLogger(
      options.logger ?? console,
      options.logLevel ?? logLevelOf(platform.env("TINKER_LOG")),
    );
    this.#deprecations = new DeprecationNotices(this.logger);
    this.clock = options.clock ?? systemClock;
    this.retryWarnings = new RetryWarnings(this.clock, this.logger);
    this.random = options.random ?? Math.random;
    this.hasCustomFetch = options.fetch !== undefined;
    this.auth = this.resolveAuth();
    this.#breaker = CircuitBreaker.shared.acquire(this.baseURL, this.credential, () => new CircuitBreaker());
    this.#connections =
      options.fetch === undefined ? platform.createConnections() : connectionsOver(options.fetch);
    this.#fixedHeaders = new RequestHeaders().apply({
      Accept: "application/json",
      ...platform.userAgentHeaders(),
      ...cloudflareHeaders(),
    });
  }

  /** The credential that this client was given; clients with the same one share limits. */
  get credential(): unknown {
    return this.#options.apiKey ?? platform.env("TINKER_API_KEY");
  }

  /** Tells servers apart: the address, or the caller's `fetch`, behind which any server may be. */
  get server(): string | typeof fetch {
    return this.#options.fetch ?? this.baseURL;
  }

  /** The credential this client was given or finds around it; before any exchange for a JWT. */
  resolveAuth(options: { enforceCommand?: boolean } = {}): AuthProvider {
    return resolveAuth({ apiKey: this.#options.apiKey, baseURL: this.baseURL, platform, ...options });
  }

  /** The headers this client puts on every request, credential included. */
  async requestHeaders(): Promise<RequestHeaders> {
    return new RequestHeaders(this.#fixedHeaders)
      .apply({ "X-API-Key": await this.auth.token() })
      .apply(this.#options.defaultHeaders);
  }

  /** Sends a request, retries it by the rules, and reads the answer to its end. */
  exchange(request: APIRequest): Promise<APIResponse> {
    return this.#call(request, async ({ answer, attempt, scope }) => {
      const limit = request.expect === "json" ? MAX_JSON_BYTES : MAX_RESULT_BYTES;
      const bytes = await attempt.read(answer, limit);
      const response = createApiResponse(answer, bytes, scope.what);
      if (request.expect === "json") response.json();
      return { value: response };
    });
  }

  /** Sends a request and retries it by the rules; the answer's body comes piece by piece, at the reader's pace. */
  open(request: APIRequest): Promise<Response> {
    return this.#call(request, async ({ answer, attempt, scope }) => ({
      value: attempt.stream(answer, () => scope.end()),
      keepOpen: true,
    }));
  }

  /** Any answer will do; the breaker counts it like any other. */
  readonly #probe = async (signal: AbortSignal): Promise<void> => {
    try {
      await this.exchange({
        ...encodeRequest(endpoints.health, {}),
        timeout: PROBE_TIMEOUT_MS,
        maxRetries: 0,
        auth: noAuth,
        signal,
      });
    } catch (error) {
      if (!(error instanceof APIConnectionError)) return;
      this.#breaker.value.failed(error);
      this.retryWarnings.failed(FAILURES_UNTIL_OPEN, error);
    }
  };

  /** Calls any endpoint, also one this SDK does not know. The path goes behind the base URL. */
  get<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#endpoint("GET", path, options);
  }

  post<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#endpoint("POST", path, options);
  }

  put<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#endpoint("PUT", path, options);
  }

  delete<T = unknown>(path: string, options?: EndpointOptions): APIPromise<T> {
    return this.#endpoint("DELETE", path, options);
  }

  /** Cancels all requests and closes every connection. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.auth.close?.();
    this.#breaker.release();
    for (const scope of [...this.#openCalls]) scope.interrupt();
    await this.#connections.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #endpoint<T>(method: HttpMethod, path: string, options: EndpointOptions = {}): APIPromise<T> {
    const { body, ...rest } = options;
    const request: APIRequest = {
      ...rest,
      method,
      path,
      ...(isRawBody(body) ? { body } : { json: body }),
    };
    return new APIPromise<T>({
      parsed: async () => {
        const answer = await this.exchange(request);
        return { data: parseByContentType(answer) as T, response: toResponse(answer) };
      },
      raw: () => this.open(request),
    });
  }

  async #call<T>(request: APIRequest, finish: Finish<T>): Promise<T> {
    const what = `${request.method} ${request.path}`;
    if (this.#closed) throw new TinkerError(`${what} was not sent: the client is closed.`);
    throwIfAborted(request.signal, what);
    const timeoutMs = request.timeout ?? this.timeoutMs;
    const maxRetries = this.maxRetriesOf(request);
    const url = buildURL(this.baseURL, request.path, request.query);
    const { patienceMs } = request;
    const deadlineMs = patienceMs === undefined ? undefined : this.clock.now() + patienceMs;
    const scope = new CallScope(what, request.signal, this.#openCalls);
    let keepOpen = false;
    try {
      await this.#untilReachable(scope, deadlineMs);
      const body = await scope.orInterrupted(encodeBody(request));
      const call: Call = {
        request,
        scope,
        url,
        body,
        pool: request.pool ?? "train",
        timeoutMs,
        maxRetries: body.replayable ? maxRetries : 0,
        idempotencyKey:
          request.method === "GET" ? undefined : (request.idempotencyKey ?? newIdempotencyKey()),
        startedMs: this.clock.now(),
      };
      let unreadableAnswers = 0;
      for (let attempt = 0; ; ) {
        const outcome = await this.#try(call, (request.earlierAttempts ?? 0) + attempt, finish);
        if (outcome.ok) {
          keepOpen = outcome.keepOpen;
          return outcome.value;
        }
        scope.throwIfInterrupted();
        if (!(outcome.error instanceof HeldBack)) {
          if (patienceMs !== undefined && outcome.error instanceof APIConnectionError)
            this.#breaker.value.failed(outcome.error);
          if (outcome.unreadable) unreadableAnswers += 1;
          const isOver = attempt >= call.maxRetries || unreadableAnswers > MAX_UNREADABLE_ANSWERS;
          if (!outcome.retryable || isOver) throw outcome.error;
          await this.#backOff(call, attempt, outcome.error);
          attempt += 1;
        }
        await this.#untilReachable(scope, deadlineMs);
      }
    } finally {
      if (!keepOpen) scope.end();
    }
  }

  /** A patient call waits, until its deadline, while the server does not answer. */
  async #untilReachable(scope: CallScope, deadlineMs: number | undefined): Promise<void> {
    const breaker = this.#breaker.value;
    if (deadlineMs === undefined || !breaker.isOpen) return;
    const { clock, random } = this;
    const waiter = { clock, random, signal: scope.signal, deadlineMs, probe: this.#probe };
    await breaker.untilAnswered(waiter).catch((reason: unknown) => {
      scope.throwIfInterrupted();
      throw reason;
    });
  }

  /** How often a call is tried again: as its caller wishes, else as the client does. */
  maxRetriesOf(options: Pick<APIRequest, "maxRetries">): number {
    return options.maxRetries ?? this.maxRetries;
  }

  /** How long to wait after this error, with this client's clock and random source. */
  backOffMs(policy: BackOffPolicy, retries: number, error: unknown): number {
    return backOffMs(policy, retries, {
      headers: error instanceof APIError ? error.headers : undefined,
      random: this.random,
      wallNow: () => this.clock.wallNow(),
    });
  }

  async #backOff(call: Call, attempt: number, error: TinkerError): Promise<void> {
    const delayMs = this.backOffMs(BACK_OFF.request, attempt, error);
    this.logger.info(
      `${error.message} Retry ${attempt + 1} of ${call.maxRetries} in ${(delayMs / 1000).toFixed(1)} s.`,
    );
    // Telemetry is never awaited.
    if (call.pool !== "telemetry") {
      const isSilent = error instanceof APIConnectionError;
      this.retryWarnings.failed(attempt + 1, error, isSilent ? this.clock.now() - call.startedMs : 0);
    }
    await this.clock.sleep(delayMs, call.scope.signal).catch((reason: unknown) => {
      call.scope.throwIfInterrupted();
      throw reason;
    });
  }

  async #try<T>(call: Call, attemptNumber: number, finish: Finish<T>): Promise<Outcome<T>> {
    const { request, scope, pool } = call;
    // An error of the caller's credential function is passed on as it is, without a retry.
    const headers = await this.#headersFor(call, attemptNumber);
    for (const hook of this.hooks) hook.beforeSend?.(headers, { method: request.method, path: request.path });
    this.logger.debug(`-> ${scope.what} (attempt ${attemptNumber + 1})`, headers);
    const startedMs = this.clock.now();
    const attempt = new HttpAttempt(scope, this.clock, call.timeoutMs);
    let status: number | null = null;
    let failure: TinkerError | undefined;
    let keepOpen = false;
    try {
      const redirect = request.redirect ?? "follow";
      const pooled = this.#connections.senderFor(pool);
      const send = redirect === "manual" ? pooled : followingRedirects(pooled);
      const { url, body } = call;
      const beforeConnecting = request.patienceMs === undefined ? undefined : this.#holdBack;
      const answer = await attempt.send((signal) =>
        send({
          url,
          method: request.method,
          headers,
          body: body.content,
          signal,
          redirect,
          beforeConnecting,
        }),
      );
      status = answer.status;
      this.#breaker.value.answered();
      this.#deprecations.check(answer);
      if (status >= 400) {
        const rejected = this.#rejected(call, answer, await readError(attempt, answer));
        failure = rejected.error;
        return rejected;
      }
      const finished = await finish({ answer, attempt, scope });
      keepOpen = finished.keepOpen ?? false;
      this.#reconnects.giveBack(pool);
      return { ok: true, value: finished.value, keepOpen };
    } catch (error) {
      if (!(error instanceof TinkerError)) throw error;
      failure = error;
      // Refusals were dealt with above: what is left is a success whose body is not what it should be.
      const unreadable = error instanceof APIError;
      return { ok: false, error, retryable: unreadable || error instanceof APIConnectionError, unreadable };
    } finally {
      if (!keepOpen) attempt.release();
      const durationMs = this.clock.now() - startedMs;
      this.logger.debug(
        `<- ${scope.what} ${status ?? failure?.name ?? "failed"} in ${Math.round(durationMs)} ms`,
      );
      for (const hook of failure instanceof HeldBack ? [] : this.hooks) {
        hook.afterExchange?.({
          pool,
          method: request.method,
          path: request.path,
          status,
          durationMs,
          attempt: attemptNumber,
          requestBytes: call.body.byteLength,
          responseBytes: attempt.responseBytes,
          ...(failure === undefined ? {} : { error: failure }),
        });
      }
    }
  }

  readonly #holdBack = () => {
    if (this.#breaker.value.isOpen)
      throw new HeldBack("The request was not sent: the server is not answering.");
  };

  /** Decides whether a call with a status of 400 or more is retried. */
  #rejected(call: Call, answer: HttpAnswer, bytes: Uint8Array): Failed {
    const { status, headers } = answer;
    const isProxyError =
      status === 400 && bytes.byteLength === 0 && headers.get("x-should-retry") !== "false";
    if (isProxyError && this.#reconnects.take(call.pool)) {
      this.#connections.renew(call.pool);
      const message = `${call.scope.what} answered 400 without a body: a proxy dropped the connection.`;
      return { ok: false, error: new APIConnectionError(message), retryable: true };
    }
    const error = APIError.from(status, headers, errorBody(headers, bytes), call.request, inUsersWords);
    return { ok: false, error, retryable: shouldRetry(answer) };
  }

  async #headersFor(call: Call, attemptNumber: number): Promise<RequestHeaders> {
    const { request, scope } = call;
    const token = await scope.orInterrupted((request.auth ?? this.auth).token());
    return new RequestHeaders(this.#fixedHeaders)
      .apply({
        Accept: request.accept,
        "Content-Type": call.body.contentType,
        "X-API-Key": token,
        "X-Idempotency-Key": call.idempotencyKey,
        "X-Stainless-Retry-Count": String(attemptNumber),
        "X-Stainless-Read-Timeout": Number.isFinite(call.timeoutMs)
          ? String(call.timeoutMs / 1000)
          : undefined,
      })
      .apply(this.#options.defaultHeaders)
      .apply(request.headers);
  }
}

/** The body of an error. An error with a body that is too long keeps its status. */
async function readError(attempt: HttpAttempt, answer: HttpAnswer): Promise<Uint8Array> {
  try {
    return await attempt.read(answer, MAX_ERROR_BYTES);
  } catch (error) {
    if (!(error instanceof AnswerTooLargeError)) throw error;
    return new TextEncoder().encode(`(more than ${MAX_ERROR_BYTES} bytes)`);
  }
}

interface Failed {
  readonly ok: false;
  readonly error: TinkerError;
  readonly retryable: boolean;
  readonly unreadable?: boolean;
}

type Outcome<T> = { readonly ok: true; readonly value: T; readonly keepOpen: boolean } | Failed;

function cloudflareHeaders(): HeaderValues {
  return {
    "CF-Access-Client-Id": platform.env("CLOUDFLARE_ACCESS_CLIENT_ID") || undefined,
    "CF-Access-Client-Secret": platform.env("CLOUDFLARE_ACCESS_CLIENT_SECRET") || undefined,
  };
}
