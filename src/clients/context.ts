import { TinkerError } from "../errors.js";
import {
  CancelQueue,
  type FutureContext,
  QueueStateLogger,
  type QueueStateObserver,
} from "../futures/index.js";
import { BillingPause, type Session } from "../session/index.js";
import { ByteBudget, platform } from "../transport/index.js";
import { SamplingLimits } from "./sampling-limits.js";

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

export interface ContextOptions {
  /** Clients with the same base URL and credential share their sampling limits. */
  apiKey?: unknown;
  onQueueState?: QueueStateObserver | undefined;
  pollBackoff?: boolean | undefined;
}

export function createContext(session: Session, options: ContextOptions): ClientContext {
  const { http, config } = session;
  const { clock, logger } = http;
  const closing = new AbortController();
  const samplingLimits = SamplingLimits.share(
    http.baseURL,
    options.apiKey ?? platform.env("TINKER_API_KEY"),
    config.sampleDispatchBytesSemaphoreSize,
    clock,
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
    samplingLimits,
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
      SamplingLimits.unshare(samplingLimits);
    },
  };
}

export function queueLogger(context: ClientContext, target: string): QueueStateLogger {
  return new QueueStateLogger(target, {
    clock: context.clock,
    logger: context.logger,
    observer: context.observer,
  });
}
