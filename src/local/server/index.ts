/** The Tinker API over HTTP: routes, keys, futures, queues in `seq_id` order, sessions that expire. */
export { refuseForeignHost } from "./cross-site.js";
export { defaultLimits, type Limits } from "./limits.js";
export { type ClientConfig, createServer, type Server, type ServerOptions } from "./server.js";
