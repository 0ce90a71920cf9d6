/** Long operations: delivering them, polling their answers, telling queue state, combining chunked results. */
export * from "./api-future.js";
export * from "./cancel-queue.js";
export * from "./combine.js";
export type * from "./context.js";
export * from "./delivery.js";
export * from "./operation.js";
export * from "./queue-state.js";
export * from "./session-poller.js";
