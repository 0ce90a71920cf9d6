import type { OptimizerConfig } from "../training/training-types.js";

const CLIENT_CONFIG = {
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
};

/** Flags a server resolves for its caller once, when a client starts. */
export type ClientConfig = Readonly<typeof CLIENT_CONFIG>;

/** Values for a server that does not send them. */
export const DEFAULT_CLIENT_CONFIG: ClientConfig = Object.freeze(CLIENT_CONFIG);

const CLIENT_DYNAMIC_CONFIG = {
  refreshIntervalSec: 300,
  sampleCancelEnabled: false,
  sampleCancelMaxBatchSize: 64,
};

/** Flags that a client asks for again and again. */
export type ClientDynamicConfig = Readonly<typeof CLIENT_DYNAMIC_CONFIG>;

/** Values for a server that does not send them. */
export const DEFAULT_CLIENT_DYNAMIC_CONFIG: ClientDynamicConfig = Object.freeze(CLIENT_DYNAMIC_CONFIG);

/** Owner of an API key. */
export interface KeyDescription {
  readonly keyId: number | string;
  readonly name: string;
  readonly note: string;
  readonly details: {
    readonly orgDetails: { readonly name: string };
    readonly userDetails: { readonly email: string };
  };
}

/** A base model that a server offers. */
export interface SupportedModel {
  readonly modelName?: string | null;
  readonly maxContextLength?: number | null;
  readonly trainable?: boolean | null;
  readonly sampleable?: boolean | null;
}

/** Base models that a server offers. */
export interface ServerCapabilities {
  readonly supportedModels: readonly SupportedModel[];
}

/** Architecture, name and tokenizer of a model. */
export interface ModelData {
  readonly arch?: string | null;
  readonly modelName?: string | null;
  readonly tokenizerId?: string | null;
}

/** Facts about a model in training, as the server reports them. */
export interface ModelInfo {
  readonly modelId: string;
  readonly modelData: ModelData;
  readonly optimizerConfig?: OptimizerConfig | null;
  readonly isLora?: boolean | null;
  readonly loraRank?: number | null;
  readonly modelName?: string | null;
}

/** Facts about a sampler, as the server reports them. */
export interface SamplerInfo {
  readonly samplerId: string;
  readonly baseModel: string;
  readonly modelPath?: string | null;
  /** Whether streams keep their samples to a constraint; the built-in backend says so. */
  readonly takesConstraints?: boolean | undefined;
}

/** Severity of a telemetry event. */
export type TelemetrySeverity = "DEBUG" | "INFO" | "WARNING" | "ERROR" | "CRITICAL";

/** Fields of one kind of telemetry event. */
export type TelemetryEventBody = { readonly severity: TelemetrySeverity } & (
  | { readonly event: "SESSION_START" }
  /** `H:MM:SS.ffffff` */
  | { readonly event: "SESSION_END"; readonly duration: string }
  | {
      readonly event: "GENERIC_EVENT";
      readonly eventName: string;
      readonly eventData?: Readonly<Record<string, unknown>> | undefined;
    }
  | {
      readonly event: "UNHANDLED_EXCEPTION";
      readonly errorType: string;
      readonly errorMessage: string;
      readonly traceback?: string | undefined;
    }
);

/** An event as it is sent; the timestamp is ISO 8601. */
export type TelemetryEvent = TelemetryEventBody & {
  readonly eventId: string;
  readonly eventSessionIndex: number;
  readonly timestamp: string;
};
