/** Long operations: delivering them, polling their answers, telling queue state, combining chunked results. */
export { APIFuture, type ResultOptions } from "./api-future.js";
export { CancelQueue } from "./cancel-queue.js";
export { combineForwardBackwardOutputs } from "./combine.js";
export type { FutureContext } from "./context.js";
export {
  type AttemptSettings,
  attemptOf,
  type DeliveryOptions,
  deliver,
  type Fate,
  valueOrThrow,
} from "./delivery.js";
export {
  type Accepted,
  deliverPlain,
  handIn,
  resultOf,
  startOperation,
  withSignals,
} from "./operation.js";
export {
  type QueueState,
  type QueueStateEvent,
  QueueStateLogger,
  type QueueStateObserver,
} from "./queue-state.js";
export { SessionFuturesPoller } from "./session-poller.js";
