/** A client's relation with the server over time: its settings, its session and heartbeat, and what it reports and measures. */
export * from "./billing-pause.js";
export type * from "./create-session.js";
export type * from "./histogram.js";
export * from "./metrics.js";
export * from "./session.js";
export * from "./spans.js";
export * from "./telemetry.js";
