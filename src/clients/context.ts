import { TinkerError } from "../errors.js";
import {
  CancelQueue,
  type FutureContext,
  QueueStateLogger,
  type QueueStateObserver,
  type SendLimit,
} from "../futures/index.js";
import { BillingPause, type ClientSessionOptions, type Session } from "../session/index.js";
import type { CustomLossHandle } from "../training/custom-loss-handle.js";
import { ByteBudget, HTTP_CLIENT_FIELDS, type HttpClientOptions } from "../transport/index.js";
import {
  anyText,
  boolean,
  type FieldsOf,
  functionOf,
  list,
  metadata,
  optional,
  optionTable,
  withDefault,
} from "../wire/index.js";
import { TokenObservers } from "./observers.js";
import { SamplingLimits } from "./sampling/sampling-limits.js";

/** State that all clients of one session share. */
export interface ClientContext extends FutureContext {
  /** Limits the bytes of training data in flight to the server. */
  trainingLimit: SendLimit;
  samplingLimits: SamplingLimits;
  cancelQueue: CancelQueue;
  /** The custom losses of the session by what they compute, so that each is created once. */
  customLosses: Map<string, Promise<CustomLossHandle>>;
  observer: QueueStateObserver | undefined;
  tokenObservers: TokenObservers;
  close(): void;
}

/** Settings of a `ServiceClient` and of every client made from it. */
export interface ServiceClientOptions extends HttpClientOptions, ClientSessionOptions {
  /** Called whenever the server reports why a request waits. Pauses are also logged, at most once a minute. */
  onQueueState?: QueueStateObserver | undefined;
  /** Waits a little between polls if a server answers them at once instead of holding them. Default: true. */
  pollBackoff?: boolean | undefined;
}

/** A client's options as part of an object that may hold more, such as a backend in this process. */
export const CLIENT_OPTIONS = optionTable(
  {
    ...HTTP_CLIENT_FIELDS,
    tags: optional(list(anyText)),
    userMetadata: optional(metadata),
    projectId: optional(anyText),
    displayName: optional(anyText),
    onQueueState: optional(functionOf<QueueStateObserver>()),
    pollBackoff: withDefault(boolean, true),
  } satisfies FieldsOf<ServiceClientOptions>,
  { open: true },
);

/** Makes the state that the clients of one session share. */
export function createContext(
  session: Session,
  options: ServiceClientOptions,
  tokenObservers = new TokenObservers(),
): ClientContext {
  const { http, config } = session;
  const { clock, logger } = http;
  const closing = new AbortController();
  const trainingBudget = new ByteBudget(config.fwdbwdDispatchBytesSemaphoreSize);
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
    trainingLimit: {
      enter: async (bytes, signal) => ({ leave: await trainingBudget.acquire(bytes, signal) }),
    },
    samplingLimits: samplingLimits.value,
    cancelQueue: new CancelQueue({
      http,
      logger,
      maxParallel: () => session.dynamicConfig.sampleCancelMaxBatchSize,
    }),
    customLosses: new Map(),
    trainingFormat: "unknown",
    observer: options.onQueueState,
    tokenObservers,
    pollBackoff: options.pollBackoff ?? true,
    closed: closing.signal,
    close() {
      closing.abort(new TinkerError("The client was closed before the request was finished."));
      samplingLimits.release();
    },
  };
}

/** Reports the queue state of one model or sampler. */
export function queueLogger(context: ClientContext, target: string): QueueStateLogger {
  return new QueueStateLogger(target, {
    clock: context.clock,
    logger: context.logger,
    observer: context.observer,
  });
}
