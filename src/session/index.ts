/** A client's relation with the server over time: its settings, its session and heartbeat, and what it reports and measures. */
export { BillingPause } from "./billing-pause.js";
export type { SessionOptions } from "./create-session.js";
export type { HistogramSummary } from "./histogram.js";
export { Metrics, type MetricsSnapshot } from "./metrics.js";
export { type AttachOptions, Session } from "./session.js";
export { Telemetry } from "./telemetry.js";
