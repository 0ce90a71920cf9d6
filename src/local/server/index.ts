/** The Tinker API over HTTP: keys, sessions, futures, models that train in the order of their requests, sampling, checkpoints, chat. */
export type { RunActivity, RunStatus, ServerActivity, ServerStatus } from "./activity.js";
export type { ImportAdapterOptions } from "./checkpoints/import.js";
export { refuseForeignHost } from "./http/cross-site.js";
export { defaultLimits, type Limits } from "./http/limits.js";
export { createServer, type Server, type ServerOptions } from "./server.js";
