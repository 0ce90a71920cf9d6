/** The agent gateway: programs that speak OpenAI's or Anthropic's API become trainable by changing their base URL. */
export type {
  Gateway,
  GatewayOptions,
  GatewaySampler,
  GatewaySession,
  SessionLimits,
  SessionOptions,
  SessionSampler,
} from "./gateway.js";
export { type Capture, type CaptureOptions, capture, startCapture } from "./recording/capture.js";
export type { CaptureScope } from "./recording/capture-record.js";
export {
  listSessions,
  type RecordedSession,
  type RecordedSummary,
  type Recording,
  readSessions,
} from "./recording/read-sessions.js";
export type { RecordingState } from "./recording/recorder.js";
export {
  type Fork,
  mainThread,
  type PassedTurn,
  type SampledTurn,
  type SessionCounts,
  type SessionEnd,
  type SessionRecord,
  type SessionThread,
} from "./session-record.js";
export { startGateway } from "./start-gateway.js";
