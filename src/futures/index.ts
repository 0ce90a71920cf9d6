/** Long operations: submitting them, polling their answers, telling queue state, combining chunked results. */
export { readAcceptance } from "./acceptance.js";
export { APIFuture, type ResultOptions } from "./api-future.js";
export { CancelQueue } from "./cancel-queue.js";
export { combineForwardBackwardOutputs } from "./combine.js";
export { type FutureContext, type FutureKind, futureKinds } from "./context.js";
export { linkSignals } from "./link-signals.js";
export { type Accepted, startOperation } from "./operation.js";
export {
  type QueueState,
  type QueueStateEvent,
  QueueStateLogger,
  type QueueStateObserver,
} from "./queue-state.js";
export { SessionFuturesPoller } from "./session-poller.js";
export { submitWithRetries } from "./submit.js";
