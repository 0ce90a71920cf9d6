/** One HTTP exchange with a Tinker server: connections, credentials, retries, limits and logging. */
export { platform } from "#platform";
export { abortError, onAbort, throwIfAborted, untilAborted } from "./abort.js";
export { type AnswerSource, APIPromise, type ParsedAnswer } from "./api-promise.js";
export { toResponse } from "./api-response.js";
export { networkReason } from "./attempt.js";
export {
  type ApiKeyOption,
  type AuthProvider,
  type CredentialSource,
  HOSTED_BASE_URL,
  noAuth,
  resolveAuth,
  StaticKeyAuth,
} from "./auth.js";
export { type CallOptions, callEndpoint, requestTo } from "./call-endpoint.js";
export { OutageError } from "./circuit-breaker.js";
export { type Clock, systemClock, type TimerOptions } from "./clock.js";
export { HttpClient } from "./http-client.js";
export { newIdempotencyKey, randomUuid } from "./ids.js";
export { Interruption } from "./interruption.js";
export { JwtAuthProvider, jwtClaims } from "./jwt-auth.js";
export { linkSignals } from "./link-signals.js";
export { createLogger, type Logger, type LogLevel } from "./logger.js";
export type { Connections, Platform } from "./platform-types.js";
export {
  BACK_OFF,
  type BackOffPolicy,
  backOffMs,
  isRetryableError,
  isRetryableStatus,
  retryAfterMs,
  shouldRetry,
} from "./retry-policy.js";
export { ByteBudget, type Release, Semaphore } from "./semaphore.js";
export { SharedByServer } from "./shared-by-server.js";
export { type TimeLimit, timeLimit } from "./time-limit.js";
export type {
  ApiRequest,
  ApiResponse,
  EndpointOptions,
  ExchangeEvent,
  ExchangeHook,
  HeaderValues,
  HttpClientOptions,
  HttpMethod,
  PoolName,
  Query,
  QueryValue,
  RequestBody,
  RequestOptions,
} from "./types.js";
