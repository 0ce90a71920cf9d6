/// <reference lib="esnext.disposable" preserve="true" />
/** tinkerts: the TypeScript SDK for the Tinker API. */
export * from "./clients/index.js";
export * from "./errors.js";
export {
  APIFuture,
  type QueueState,
  type QueueStateEvent,
  type QueueStateObserver,
  type ResultOptions,
} from "./futures/index.js";
export {
  type AttachOptions,
  type HistogramSummary,
  Metrics,
  type MetricsSnapshot,
  type SessionFinishStatus,
  type SessionOptions,
  Telemetry,
} from "./session/index.js";
export * from "./training/index.js";
export {
  APIPromise,
  type ApiRequest,
  type ApiResponse,
  type Clock,
  type EndpointOptions,
  type ExchangeEvent,
  type HeaderValues,
  HttpClient,
  type HttpClientOptions,
  type Logger,
  type LogLevel,
  type RequestOptions,
} from "./transport/index.js";
export { SDK_VERSION } from "./version.js";
export * from "./wire/index.js";
