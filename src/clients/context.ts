import { TinkerError } from "../errors.js";
import {
  CancelQueue,
  type FutureContext,
  QueueStateLogger,
  type QueueStateObserver,
} from "../futures/index.js";
import { BillingPause, type Session, type SessionOptions } from "../session/index.js";
import { ByteBudget, type HttpClientOptions, type RequestOptions } from "../transport/index.js";
import { SamplingLimits } from "./sampling/sampling-limits.js";

/** What all clients of one session share. */
export interface ClientContext extends FutureContext {
  /** Bytes of training data that may be on their way to the server at once. */
  trainingBudget: ByteBudget;
  samplingLimits: SamplingLimits;
  cancelQueue: CancelQueue;
  /** How this server wants its training data; learnt from its first answers. */
  trainingFormat: "protobuf" | "json" | "unknown";
  observer: QueueStateObserver | undefined;
  close(): void;
}

/** The names of the options that every call takes. */
export const REQUEST_OPTIONS = [
  "signal",
  "timeout",
  "maxRetries",
  "headers",
] as const satisfies (keyof RequestOptions)[];

/** The names of the options that a client is made with. */
export const CLIENT_OPTIONS: ReadonlySet<string> = new Set([
  "apiKey",
  "baseURL",
  "timeout",
  "maxRetries",
  "fetch",
  "defaultHeaders",
  "logger",
  "logLevel",
  "clock",
  "random",
  "tags",
  "userMetadata",
  "projectId",
  "displayName",
  "onQueueState",
  "pollBackoff",
] satisfies (keyof HttpClientOptions | keyof SessionOptions | keyof ContextOptions)[]);

/** What a caller may set for all clients of a session. */
export interface ContextOptions {
  onQueueState?: QueueStateObserver | undefined;
  pollBackoff?: boolean | undefined;
}

/** Makes what the clients of one session share. */
export function createContext(session: Session, options: ContextOptions): ClientContext {
  const { http, config } = session;
  const { clock, logger } = http;
  const closing = new AbortController();
  const samplingLimits = SamplingLimits.shared.acquire(
    http.baseURL,
    http.credential,
    () => new SamplingLimits(config.sampleDispatchBytesSemaphoreSize, clock),
  );
  return {
    http,
    session,
    clock,
    logger,
    telemetry: session.telemetry,
    billing: new BillingPause({
      clock,
      logger,
      maxPauseMs: config.billingExceptionMaxPauseDurationSec * 1000,
    }),
    responseBudget: new ByteBudget(config.inflightResponseBytesSemaphoreSize),
    trainingBudget: new ByteBudget(config.fwdbwdDispatchBytesSemaphoreSize),
    samplingLimits: samplingLimits.value,
    cancelQueue: new CancelQueue({
      http,
      logger,
      maxParallel: () => session.dynamicConfig.sampleCancelMaxBatchSize,
    }),
    trainingFormat: "unknown",
    observer: options.onQueueState,
    pollBackoff: options.pollBackoff ?? true,
    closed: closing.signal,
    close() {
      closing.abort(new TinkerError("The client was closed before the request was finished."));
      samplingLimits.release();
    },
  };
}

/** Tells of the queue state of one model or sampler. */
export function queueLogger(context: ClientContext, target: string): QueueStateLogger {
  return new QueueStateLogger(target, {
    clock: context.clock,
    logger: context.logger,
    observer: context.observer,
  });
}
