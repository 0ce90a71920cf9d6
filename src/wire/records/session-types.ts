import type { OptimizerConfig } from "../training/training-types.js";

/** Flags a server resolves for its caller once, when a client starts. */
export interface ClientConfig {
  readonly pjwtAuthEnabled: boolean;
  readonly credentialDefaultSource: string;
  readonly sampleDispatchBytesSemaphoreSize: number;
  readonly inflightResponseBytesSemaphoreSize: number;
  readonly parallelFwdbwdChunks: boolean;
  readonly protoCompressFwdbwd: boolean;
  readonly fwdbwdMaxChunkLen: number;
  readonly fwdbwdMaxChunkBytesCount: number;
  readonly fwdbwdDispatchBytesSemaphoreSize: number;
  readonly billingExceptionMaxPauseDurationSec: number;
  readonly sampleNoRetries: boolean;
  readonly sampleEnableStuckDetection: boolean;
  readonly sampleMaxConcurrentRequests: number;
  readonly usePyqwestTransport: boolean;
  readonly createModelViaLoadWeights: boolean;
  readonly sampleUseRetrieveFutures: boolean;
  readonly customLossServerSide: boolean;
  readonly sampleJoinSamplingSession: boolean;
}

/** What holds for a server that does not say. */
export const DEFAULT_CLIENT_CONFIG: ClientConfig = Object.freeze({
  pjwtAuthEnabled: false,
  credentialDefaultSource: "api_key",
  sampleDispatchBytesSemaphoreSize: 10 * 1024 * 1024,
  inflightResponseBytesSemaphoreSize: 50 * 1024 * 1024,
  parallelFwdbwdChunks: true,
  protoCompressFwdbwd: false,
  fwdbwdMaxChunkLen: 1024,
  fwdbwdMaxChunkBytesCount: 5_000_000,
  fwdbwdDispatchBytesSemaphoreSize: 50_000_000,
  billingExceptionMaxPauseDurationSec: 3600,
  sampleNoRetries: false,
  sampleEnableStuckDetection: true,
  sampleMaxConcurrentRequests: 2000,
  usePyqwestTransport: true,
  createModelViaLoadWeights: false,
  sampleUseRetrieveFutures: false,
  customLossServerSide: false,
  sampleJoinSamplingSession: false,
});

/** Flags that are asked for again and again while a client lives. */
export interface ClientDynamicConfig {
  readonly refreshIntervalSec: number;
  readonly sampleCancelEnabled: boolean;
  readonly sampleCancelMaxBatchSize: number;
}

export const DEFAULT_CLIENT_DYNAMIC_CONFIG: ClientDynamicConfig = Object.freeze({
  refreshIntervalSec: 300,
  sampleCancelEnabled: false,
  sampleCancelMaxBatchSize: 64,
});

export interface AuthTokenResponse {
  readonly jwt: string;
}

/** Whose key it is. */
export interface KeyDescription {
  readonly keyId: number | string;
  readonly name: string;
  readonly note: string;
  readonly details: {
    readonly orgDetails: { readonly name: string };
    readonly userDetails: { readonly email: string };
  };
}

export interface CreateSessionResponse {
  readonly sessionId: string;
  readonly infoMessage?: string | null;
  readonly warningMessage?: string | null;
  readonly errorMessage?: string | null;
}

export type SessionHeartbeatResponse = Readonly<Record<string, unknown>>;

export interface HealthResponse {
  readonly status: string;
}

/** A base model that a server offers. */
export interface SupportedModel {
  readonly modelName?: string | null;
  readonly maxContextLength?: number | null;
  readonly trainable?: boolean | null;
  readonly sampleable?: boolean | null;
}

/** What a server offers. */
export interface ServerCapabilities {
  readonly supportedModels: readonly SupportedModel[];
}

/** Architecture, name and tokenizer of a model. */
export interface ModelData {
  readonly arch?: string | null;
  readonly modelName?: string | null;
  readonly tokenizerId?: string | null;
}

/** What a server knows of a model that is being trained. */
export interface ModelInfo {
  readonly modelId: string;
  readonly modelData: ModelData;
  readonly optimizerConfig?: OptimizerConfig | null;
  readonly isLora?: boolean | null;
  readonly loraRank?: number | null;
  readonly modelName?: string | null;
}

/** What a server knows of a sampler. */
export interface SamplerInfo {
  readonly samplerId: string;
  readonly baseModel: string;
  readonly modelPath?: string | null;
}

export interface Whoami {
  readonly userUrn: string;
  readonly orgUrn: string;
  readonly email?: string | null;
}

/** How grave an event is. */
export type TelemetrySeverity = "DEBUG" | "INFO" | "WARNING" | "ERROR" | "CRITICAL";

interface TelemetryEventBase {
  readonly eventId: string;
  readonly eventSessionIndex: number;
  readonly severity: TelemetrySeverity;
  /** ISO 8601. */
  readonly timestamp: string;
}

export interface SessionStartEvent extends TelemetryEventBase {
  readonly event: "SESSION_START";
}

export interface SessionEndEvent extends TelemetryEventBase {
  readonly event: "SESSION_END";
  /** ISO 8601 duration. */
  readonly duration: string;
}

export interface GenericEvent extends TelemetryEventBase {
  readonly event: "GENERIC_EVENT";
  readonly eventName: string;
  readonly eventData?: Readonly<Record<string, unknown>> | undefined;
}

export interface UnhandledExceptionEvent extends TelemetryEventBase {
  readonly event: "UNHANDLED_EXCEPTION";
  readonly errorType: string;
  readonly errorMessage: string;
  readonly traceback?: string | undefined;
}

export type TelemetryEvent = SessionStartEvent | SessionEndEvent | GenericEvent | UnhandledExceptionEvent;

export type TelemetryEventType = TelemetryEvent["event"];

export interface TelemetryResponse {
  readonly status: string;
}
