/** One HTTP exchange with a Tinker server: connections, credentials, retries, limits and logging. */
export type { AuthProvider } from "./auth.js";
export { abortError, type Clock, systemClock, type TimerOptions, throwIfAborted } from "./clock.js";
export { HttpClient } from "./http-client.js";
export type { Logger, LogLevel } from "./logger.js";
export type { Platform, PooledFetch } from "./platform-types.js";
export { isRetryableStatus, retryAfterMs, retryDelayMs, shouldRetry } from "./retry-policy.js";
export { ByteBudget, type Release, Semaphore } from "./semaphore.js";
export type {
  ApiRequest,
  ApiResponse,
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
