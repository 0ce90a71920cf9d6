/**
 * Makers of every JSON type of the package, under its Python name and typed by ours: the compiler asks for each field
 * of our types here, and a test asks for each field of the package's.
 */
import type { RequestErrorCategory } from "../../src/errors.js";
import type * as Wire from "../../src/wire/index.js";
import { endpoints } from "../../src/wire/index.js";
import {
  always,
  anything,
  boolean,
  count,
  either,
  finite,
  integer,
  listOf,
  type Make,
  mapOf,
  moment,
  nonEmptyText,
  nullable,
  oneOf,
  optional,
  type Random,
  record,
  text,
} from "./random.js";

type Table = typeof endpoints;
type Answer<Name extends keyof Table> = ReturnType<Table[Name]["answer"]["fromJson"]>;
type Operation = {
  [Name in keyof Table]: Table[Name] extends { future: unknown } ? Name : never;
}[keyof Table];
type Result<Name extends Operation> = ReturnType<Table[Name]["future"]["fromJson"]>;
type Event<Name extends string> = Extract<Wire.TelemetryEvent, { event: Name }>;
type Completion<State extends string> = Extract<Wire.FutureCompletion, { state: State }>;
type Status<Type extends string> = Extract<Wire.SessionStatus, { type: Type }>;
type FailedReason<Type extends string> = Extract<Wire.SessionFailedReason, { type: Type }>;
type Request<Name extends keyof Table> = Wire.GivenMessage<Table[Name]["request"]["shape"]>;

/** The package's name of each request in the table of endpoints. */
export const requests = {
  ClientConfigRequest: endpoints.clientConfig,
  CopyWeightsRequest: endpoints.copyWeights,
  CreateCustomLossRequest: endpoints.createCustomLoss,
  CreateModelRequest: endpoints.createModel,
  CreateSamplingSessionRequest: endpoints.createSamplingSession,
  CreateSessionRequest: endpoints.createSession,
  FutureRetrieveRequest: endpoints.retrieveFuture,
  FuturesRetrieveRequest: endpoints.retrieveFutures,
  GetInfoRequest: endpoints.getInfo,
  JoinSamplingSessionRequest: endpoints.joinSamplingSession,
  LoadWeightsRequest: endpoints.loadWeights,
  OptimStepRequest: endpoints.optimStep,
  SampleRequest: endpoints.sample,
  SaveWeightsExternalRequest: endpoints.saveWeightsExternal,
  SaveWeightsForSamplerRequest: endpoints.saveWeightsForSampler,
  SaveWeightsRequest: endpoints.saveWeights,
  SessionHeartbeatRequest: endpoints.sessionHeartbeat,
  SessionSearchRequest: endpoints.searchSessions,
  TelemetrySendRequest: endpoints.telemetry,
  UnloadModelRequest: endpoints.unloadModel,
} as const;

/** Endpoints that the package has no type for, and why. */
export const UNTYPED_ENDPOINTS: Readonly<Partial<Record<keyof Table, string>>> = {
  health: "takes nothing",
  getServerCapabilities: "takes nothing",
  authToken: "takes nothing",
  revokeTokens: "takes nothing",
  describeKey: "takes nothing",
  deleteKey: "takes nothing",
  dynamicConfig: "takes what clientConfig takes",
  forwardBackward: "protobuf; its JSON form is ForwardBackwardInputModel, judged on its own",
  forward: "the JSON form of a forward pass",
  streamSample: "takes what sample takes; the package has no streams",
  finishSession: "written by hand in the package",
  cancelFuture: "written by hand in the package",
  getWeightsInfo: "written by hand in the package",
  assignSessionProject: "written by hand in the package",
  setCheckpointTtl: "written by hand in the package",
  getBillingUsage: "a query; judged on its own",
  getCurrentCheckpointStorageUsage: "a query; judged on its own",
  getAuditLog: "a query",
  listTrainingRuns: "a query",
  listUserCheckpoints: "a query",
  listSessions: "a query",
  getTrainingRun: "a path and a query",
  getSession: "a path and a query",
  getSampler: "a path",
  listCheckpoints: "a path",
  deleteCheckpoint: "a path",
  publishCheckpoint: "a path",
  unpublishCheckpoint: "a path",
  getCheckpointArchiveUrl: "a path",
  getExternalWeightsUrls: "a path",
  exportSessionTrace: "a path",
};

const texts = mapOf(text);
const metadata = nullable(texts);

// --- training ---

export const loraConfig = record<Wire.LoraConfig>({
  rank: integer,
  seed: optional(integer),
  trainUnembed: optional(boolean),
  trainMlp: optional(boolean),
  trainAttn: optional(boolean),
});
export const adamParams = record<Wire.AdamParams>({
  learningRate: optional(finite),
  beta1: optional(finite),
  beta2: optional(finite),
  eps: optional(finite),
  weightDecay: optional(finite),
  gradClipNorm: optional(finite),
});
const positive: Make<number> = (random) => Math.abs(finite(random));
const belowOne: Make<number> = (random) => random.next();
export const dimuonParams = record<Wire.DimuonParams>({
  type: always("dimuon"),
  learningRate: positive,
  gradClipNorm: optional(finite),
  beta1: optional(belowOne),
});
const otherFamily = (random: Random): { type: string; [field: string]: unknown } => ({
  type: `family${random.integer(0, 9)}`,
  ...(random.chance(0.5) && { someValue: finite(random) }),
});
const adamOptimizer = record<Wire.AdamOptimizerConfig>({ type: always("adamw") });
const dimuonOptimizer = record<Wire.DimuonOptimizerConfig>({
  type: always("dimuon"),
  version: optional(always<1>(1)),
});
export const optimizerConfig: Make<Wire.OptimizerConfig> = either<Wire.OptimizerConfig>(
  adamOptimizer,
  dimuonOptimizer,
  otherFamily,
);
const customLossInput = record<Wire.CustomLossInput>({
  name: text,
  rank: oneOf<0 | 1 | 2>(0, 1, 2),
});
const customLossNode = record<Wire.CustomLossNode>({
  op: oneOf<Wire.CustomLossNode["op"]>(
    "placeholder",
    "get_attr",
    "call_function",
    "call_method",
    "call_module",
    "output",
  ),
  name: text,
  target: text,
  args: optional(listOf(anything)),
  kwargs: optional(mapOf(anything)),
});
const customLossGraph = record<Wire.CustomLossGraph>({
  format: optional(always<1>(1)),
  nodes: listOf(customLossNode),
});

// --- sessions and futures ---

const modelData = record<Wire.ModelData>({
  arch: nullable(text),
  modelName: nullable(text),
  tokenizerId: nullable(text),
});
const supportedModel = record<Wire.SupportedModel>({
  modelName: nullable(text),
  maxContextLength: nullable(integer),
  trainable: nullable(boolean),
  sampleable: nullable(boolean),
});
const futuresTarget = record<Request<"retrieveFutures">["target"]>({
  type: always("sampling_session"),
  samplingSessionId: text,
  clonedSamplerId: optional(count),
});
const futureFinished = record<Completion<"finished">>({
  state: always("finished"),
  requestId: text,
  responsePayloadUncompressedSize: nullable(count),
});
const futureFailed = record<Completion<"failed">>({ state: always("failed"), requestId: text });
const eventBase = {
  eventId: text,
  eventSessionIndex: integer,
  severity: oneOf<Wire.TelemetrySeverity>("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
  timestamp: moment,
};
const sessionStart = record<Event<"SESSION_START">>({ ...eventBase, event: always("SESSION_START") });
const sessionEnd = record<Event<"SESSION_END">>({
  ...eventBase,
  event: always("SESSION_END"),
  duration: text,
});
const genericEvent = record<Event<"GENERIC_EVENT">>({
  ...eventBase,
  event: always("GENERIC_EVENT"),
  eventName: text,
  eventData: optional(mapOf(anything)),
});
const unhandledException = record<Event<"UNHANDLED_EXCEPTION">>({
  ...eventBase,
  event: always("UNHANDLED_EXCEPTION"),
  errorType: text,
  errorMessage: text,
  traceback: optional(text),
});
const telemetryBatch = record<Request<"telemetry">>({
  events: listOf(
    either<Wire.TelemetryEvent>(sessionStart, sessionEnd, genericEvent, unhandledException),
    0,
    4,
  ),
  platform: text,
  sdkVersion: text,
  sessionId: text,
  processUuid: text,
});

// --- REST ---

const cursor = record<Answer<"listTrainingRuns">["cursor"]>({
  offset: integer,
  limit: integer,
  totalCount: integer,
});
const checkpoint = record<Wire.Checkpoint>({
  checkpointId: text,
  checkpointType: oneOf<Wire.CheckpointType>("training", "sampler", "external"),
  time: moment,
  tinkerPath: text,
  sizeBytes: nullable(count),
  public: optional(boolean),
  userMetadata: metadata,
  expiresAt: nullable(moment),
});
const trainingRun = record<Wire.TrainingRun>({
  trainingRunId: text,
  baseModel: text,
  modelOwner: text,
  isLora: boolean,
  corrupted: optional(boolean),
  loraRank: nullable(integer),
  lastRequestTime: moment,
  lastCheckpoint: nullable(checkpoint),
  lastSamplerCheckpoint: nullable(checkpoint),
  userMetadata: metadata,
});
const requestReason = record<FailedReason<"request">>({
  type: always("request"),
  requestId: text,
  requestType: text,
});
const runReason = record<FailedReason<"training_run">>({
  type: always("training_run"),
  trainingRunId: text,
});
const samplerReason = record<FailedReason<"sampling_session">>({
  type: always("sampling_session"),
  samplingSessionId: text,
});
const failed = record<Status<"failed">>({
  type: always("failed"),
  category: oneOf("user", "internal"),
  reason: either<Wire.SessionFailedReason>(requestReason, runReason, samplerReason),
  message: text,
});
const cancelled = record<Status<"cancelled">>({ type: always("cancelled"), detail: nullable(text) });
const finishReason = record<Status<"client_finished">["reason"]>({
  type: oneOf<Wire.SessionFinishStatus>("success", "errored", "interrupted"),
});
const finished = record<Status<"client_finished">>({
  type: always("client_finished"),
  reason: finishReason,
  detail: nullable(text),
});
const active = record<Status<"active">>({ type: always("active") });
const sessionSummary = record<Wire.SessionSummary>({
  sessionId: text,
  createdAt: moment,
  owner: text,
  projectId: text,
  status: nullable(either<Wire.SessionStatus>(failed, cancelled, finished, active)),
  checkpointsCount: integer,
  displayName: nullable(text),
  userMetadata: metadata,
  checkpointStorageBytes: nullable(count),
});
const searchCursor = record<Wire.SessionSearchCursor>({ lastCreatedAt: moment, lastSessionId: text });
const ownOwner = record<{ type: "own" }>({ type: always("own") });
const accessibleOwner = record<{ type: "accessible" }>({ type: always("accessible") });
const userOwner = record<{ type: "user"; ownerUrns: readonly string[] }>({
  type: always("user"),
  ownerUrns: listOf(text, 1, 10),
});
const clientFinishedQuery = record<Extract<Wire.SessionStatusQuery, { type: "client_finished" }>>({
  type: always("client_finished"),
  reasons: optional(
    listOf(oneOf<Wire.SessionFinishStatus>("success", "errored", "interrupted"), 1, 3),
  ) as Make<readonly Wire.SessionFinishStatus[]>,
});
const statusQueries = {
  active: record<{ type: "active" }>({ type: always("active") }),
  cancelled: record<{ type: "cancelled" }>({ type: always("cancelled") }),
  failed: record<{ type: "failed" }>({ type: always("failed") }),
};
export const sessionSearch = record<Wire.SessionSearchRequest>({
  sessionId: optional(text),
  projectIds: optional(listOf(text, 1)),
  userMetadata: optional(texts),
  displayName: optional(nonEmptyText),
  owner: optional(either<Wire.SearchOwner>(ownOwner, accessibleOwner, userOwner)),
  statuses: optional(
    listOf(
      either<Wire.SessionStatusQuery>(
        statusQueries.active,
        statusQueries.cancelled,
        statusQueries.failed,
        clientFinishedQuery,
      ),
      1,
      4,
    ),
  ),
  limit: optional((random) => random.integer(1, 200)),
  cursor: optional(searchCursor),
});
const auditEntry = record<Wire.AuditLogEntry>({
  timestamp: moment,
  event: text,
  eventDetails: optional(mapOf(anything)),
  modelId: nullable(text),
  tinkerPath: nullable(text),
  purpose: nullable(text),
});
type Billing<K extends string> = Extract<Wire.BillingEventInfo, { type: K }>;
const billing = {
  training: record<Billing<"training">>({ type: always("training"), tokenCount: integer }),
  prefill: record<Billing<"sampling_prefill">>({
    type: always("sampling_prefill"),
    cached: boolean,
    tokenCount: integer,
  }),
  sample: record<Billing<"sampling_sample">>({ type: always("sampling_sample"), tokenCount: integer }),
  checkpoint: record<Billing<"checkpoint">>({ type: always("checkpoint"), count: integer }),
  storage: record<Billing<"storage">>({
    type: always("storage"),
    free: optional(boolean),
    gigabyteHours: finite,
  }),
};
const billingEvent = record<Wire.BillingUsageEvent>({
  bucketStart: moment,
  bucketEnd: moment,
  eventInfo: either<Wire.BillingEventInfo>(
    billing.training,
    billing.prefill,
    billing.sample,
    billing.checkpoint,
    billing.storage,
  ),
  baseModel: nullable(text),
  userId: nullable(text),
  userName: nullable(text),
  sessionId: nullable(text),
  projectId: nullable(text),
  estimatedCostUsd: nullable(finite),
  effectiveRateUsdPerMillionTokens: nullable(finite),
  effectiveRateUsdPerGigabyteMonth: nullable(finite),
});
const billingSession = record<Wire.BillingUsageSession>({ userMetadata: metadata });
const storageItem = record<Wire.CheckpointStorageUsageItem>({
  projectId: nullable(text),
  orgUserUrn: nullable(text),
  userEmail: nullable(text),
  userName: nullable(text),
  checkpointCount: integer,
  sizeBytes: integer,
  sizeGigabytes: finite,
  estimatedMonthlyCostUsd: nullable(finite),
});
const weightsInfo = record<Wire.WeightsInfo>({
  baseModel: text,
  isLora: boolean,
  // The package's reader turns a null into an error.
  optimizerConfig: optional(optimizerConfig) as Make<Wire.OptimizerConfig>,
  loraRank: nullable(integer),
  trainUnembed: nullable(boolean),
  trainMlp: nullable(boolean),
  trainAttn: nullable(boolean),
});

/** By the name the package gives the type. */
export const shapes = {
  AdamOptimizerConfig: adamOptimizer,
  DimuonOptimizerConfig: dimuonOptimizer,
  AdamParams: adamParams,
  DimuonParams: dimuonParams,
  LoraConfig: loraConfig,
  CreateModelRequest: record<Request<"createModel">>({
    sessionId: text,
    modelSeqId: integer,
    baseModel: text,
    userMetadata: optional(mapOf(anything)),
    loraConfig: optional(loraConfig),
    optimizerConfig: optional(optimizerConfig),
  }),
  CreateModelResponse: record<Result<"createModel">>({ modelId: text }),
  UnloadModelRequest: record<Request<"unloadModel">>({ modelId: text }),
  UnloadModelResponse: record<Result<"unloadModel">>({ modelId: text }),
  OptimStepResponse: record<Wire.OptimStepResponse>({ metrics: nullable(mapOf(finite)) }),
  SaveWeightsRequest: record<Request<"saveWeights">>({
    modelId: text,
    seqId: integer,
    path: optional(text),
    ttlSeconds: optional(integer),
    overwrite: optional(boolean),
    userMetadata: optional(texts),
  }),
  SaveWeightsResponse: record<Result<"saveWeights">>({ path: text }),
  SaveWeightsForSamplerRequest: record<Request<"saveWeightsForSampler">>({
    modelId: text,
    seqId: integer,
    path: optional(text),
    samplingSessionSeqId: optional(integer),
    kind: optional(oneOf("snapshot", "inflight")),
    ttlSeconds: optional(integer),
    userMetadata: optional(texts),
  }),
  SaveWeightsForSamplerResponse: record<{ path: string }>({ path: text }),
  SaveWeightsForSamplerResponseInternal: record<Result<"saveWeightsForSampler">>({
    path: nullable(text),
    samplingSessionId: nullable(text),
  }),
  SaveWeightsExternalRequest: record<Request<"saveWeightsExternal">>({
    modelId: text,
    seqId: integer,
    path: text,
    ttlSeconds: optional(integer),
    ageEncryptionRecipients: optional(listOf(text)),
  }),
  SaveWeightsExternalResponse: record<{ path: string }>({ path: text }),
  SaveWeightsExternalResponseInternal: record<Result<"saveWeightsExternal">>({
    path: nullable(text),
    sizeBytes: nullable(count),
  }),
  LoadWeightsRequest: record<Request<"loadWeights">>({
    modelId: optional(text),
    seqId: optional(integer),
    sessionId: optional(text),
    modelSeqId: optional(integer),
    baseModel: optional(text),
    userMetadata: optional(mapOf(anything)),
    path: text,
    optimizer: boolean,
    optimizerConfig: optional(optimizerConfig),
    weightsAccessToken: optional(text),
  }),
  LoadWeightsResponse: record<Wire.LoadWeightsResponse>({ path: nullable(text), modelId: nullable(text) }),
  CopyWeightsRequest: record<Request<"copyWeights">>({
    sourcePath: text,
    sessionId: optional(text),
    modelSeqId: optional(integer),
    destinationProjectId: optional(text),
    ttlSeconds: optional(integer),
    weightsAccessToken: optional(text),
  }),
  CopyWeightsResponse: record<Answer<"copyWeights">>({ tinkerPath: text }),
  CustomLossInput: customLossInput,
  CustomLossNode: customLossNode,
  CustomLossGraph: customLossGraph,
  CreateCustomLossRequest: record<Request<"createCustomLoss">>({
    sessionId: text,
    customLossSeqId: integer,
    name: text,
    inputs: listOf(customLossInput),
    graph: customLossGraph,
  }),
  CreateCustomLossResponse: record<Result<"createCustomLoss">>({ lossId: text }),
  SamplingParams: record<Wire.SamplingParams>({
    maxTokens: optional(integer),
    seed: optional(integer),
    stop: optional(
      either<string | readonly string[] | readonly number[]>(text, listOf(text), listOf(integer)),
    ),
    temperature: optional(finite),
    topK: optional(integer),
    topP: optional(finite),
  }),
  CreateSamplingSessionRequest: record<Request<"createSamplingSession">>({
    sessionId: text,
    samplingSessionSeqId: integer,
    baseModel: optional(text),
    modelPath: optional(text),
  }),
  CreateSamplingSessionResponse: record<Answer<"createSamplingSession">>({ samplingSessionId: text }),
  JoinSamplingSessionRequest: record<Request<"joinSamplingSession">>({ samplingSessionId: text }),
  JoinSamplingSessionResponse: record<Answer<"joinSamplingSession">>({ clientCounter: integer }),
  UntypedAPIFuture: record<Wire.UntypedFuture>({
    requestId: text,
    modelId: nullable(text),
    sampleSequenceIds: nullable(listOf(text)),
  }),
  FutureRetrieveRequest: record<Request<"retrieveFuture">>({
    requestId: text,
    allowMetadataOnly: optional(boolean),
  }),
  RequestFailedResponse: record<{ error: string; category: RequestErrorCategory }>({
    error: text,
    category: oneOf("unknown", "server", "user"),
  }),
  SamplingSessionFuturesTarget: futuresTarget,
  FuturesRetrieveRequest: record<Request<"retrieveFutures">>({
    target: futuresTarget,
    prevCursor: optional(count),
    timeout: optional(finite),
    retrievedRequestIds: optional(listOf(text)),
  }),
  FutureFinished: futureFinished,
  FutureFailed: futureFailed,
  FuturesRetrieveResponse: record<Wire.FuturesRetrieveResponse>({
    completions: listOf(either<Wire.FutureCompletion>(futureFinished, futureFailed)),
    cursor: integer,
  }),
  ClientConfigRequest: record<Request<"clientConfig">>({ sdkVersion: text }),
  ClientConfigResponse: record<Omit<Wire.ClientConfig, "createModelViaLoadWeights">>({
    pjwtAuthEnabled: boolean,
    credentialDefaultSource: text,
    sampleDispatchBytesSemaphoreSize: integer,
    inflightResponseBytesSemaphoreSize: integer,
    parallelFwdbwdChunks: boolean,
    protoCompressFwdbwd: boolean,
    fwdbwdMaxChunkLen: integer,
    fwdbwdMaxChunkBytesCount: integer,
    fwdbwdDispatchBytesSemaphoreSize: integer,
    billingExceptionMaxPauseDurationSec: integer,
    sampleNoRetries: boolean,
    sampleEnableStuckDetection: boolean,
    sampleMaxConcurrentRequests: integer,
    usePyqwestTransport: boolean,
    sampleUseRetrieveFutures: boolean,
    customLossServerSide: boolean,
    sampleJoinSamplingSession: boolean,
  }),
  ClientDynamicConfigResponse: record<Wire.ClientDynamicConfig>({
    refreshIntervalSec: integer,
    sampleCancelEnabled: boolean,
    sampleCancelMaxBatchSize: integer,
  }),
  AuthTokenResponse: record<Answer<"authToken">>({ jwt: text }),
  CreateSessionRequest: record<Request<"createSession">>({
    tags: listOf(text),
    userMetadata: mapOf(anything),
    sdkVersion: text,
    projectId: optional(text),
    displayName: optional(text),
  }),
  CreateSessionResponse: record<Answer<"createSession">>({
    sessionId: text,
    infoMessage: nullable(text),
    warningMessage: nullable(text),
    errorMessage: nullable(text),
  }),
  SessionHeartbeatRequest: record<Request<"sessionHeartbeat">>({ sessionId: text }),
  HealthResponse: record<Answer<"health">>({ status: always("ok") }),
  SupportedModel: supportedModel,
  GetServerCapabilitiesResponse: record<Wire.ServerCapabilities>({ supportedModels: listOf(supportedModel) }),
  GetInfoRequest: record<Request<"getInfo">>({ modelId: text }),
  ModelData: modelData,
  GetInfoResponse: record<Wire.ModelInfo>({
    modelId: text,
    modelData,
    optimizerConfig: optional(optimizerConfig) as Make<Wire.OptimizerConfig>,
    isLora: nullable(boolean),
    loraRank: nullable(integer),
    modelName: nullable(text),
  }),
  GetSamplerResponse: record<Omit<Wire.SamplerInfo, "takesConstraints">>({
    samplerId: text,
    baseModel: text,
    modelPath: nullable(text),
  }),
  WhoamiResponse: record<{ userUrn: string; orgUrn: string; email?: string | null }>({
    userUrn: text,
    orgUrn: text,
    email: nullable(text),
  }),
  SessionStartEvent: sessionStart,
  SessionEndEvent: sessionEnd,
  GenericEvent: genericEvent,
  UnhandledExceptionEvent: unhandledException,
  TelemetryBatch: telemetryBatch,
  TelemetrySendRequest: telemetryBatch,
  TelemetryResponse: record<Answer<"telemetry">>({ status: always("accepted") }),
  Cursor: cursor,
  Checkpoint: checkpoint,
  CheckpointsListResponse: record<Answer<"listUserCheckpoints">>({
    checkpoints: listOf(checkpoint),
    cursor: nullable(cursor),
  }),
  TrainingRun: trainingRun,
  TrainingRunsResponse: record<Answer<"listTrainingRuns">>({
    trainingRuns: listOf(trainingRun, 0, 4),
    cursor,
  }),
  ExternalWeightsUrlsResponse: record<Wire.ExternalWeightsUrls>({ urls: texts, expires: moment }),
  WeightsInfoResponse: weightsInfo,
  ListSessionsResponse: record<Answer<"listSessions">>({ sessions: listOf(text) }),
  GetSessionResponse: record<Wire.SessionInfo>({
    trainingRunIds: listOf(text),
    samplerIds: listOf(text),
    userMetadata: metadata,
    displayName: nullable(text),
  }),
  SessionFailedRequestReason: requestReason,
  SessionFailedTrainingRunReason: runReason,
  SessionFailedSamplingSessionReason: samplerReason,
  SessionFailed: failed,
  SessionCancelled: cancelled,
  ClientSessionFinishSuccess: record<{ type: "success" }>({ type: always("success") }),
  ClientSessionFinishErrored: record<{ type: "errored" }>({ type: always("errored") }),
  ClientSessionFinishInterrupted: record<{ type: "interrupted" }>({ type: always("interrupted") }),
  ClientSessionFinished: finished,
  SessionActive: active,
  SessionSummary: sessionSummary,
  SessionSearchCursor: searchCursor,
  OwnSearchOwner: ownOwner,
  AccessibleSearchOwner: accessibleOwner,
  UserSearchOwner: userOwner,
  ActiveSessionStatusQuery: statusQueries.active,
  CancelledSessionStatusQuery: statusQueries.cancelled,
  FailedSessionStatusQuery: statusQueries.failed,
  ClientFinishedSessionStatusQuery: clientFinishedQuery,
  SessionSearchRequest: sessionSearch,
  SessionSearchResponse: record<Answer<"searchSessions">>({
    sessions: listOf(sessionSummary, 0, 4),
    nextCursor: nullable(searchCursor),
  }),
  AuditLogEntry: auditEntry,
  AuditLogResponse: record<Wire.AuditLog>({ entries: listOf(auditEntry) }),
  TrainingBillingEvent: billing.training,
  SamplingPrefillBillingEvent: billing.prefill,
  SamplingSampleBillingEvent: billing.sample,
  CheckpointBillingEvent: billing.checkpoint,
  StorageBillingEvent: billing.storage,
  BillingUsageEvent: billingEvent,
  BillingUsageSession: billingSession,
  BillingUsageResponse: record<Wire.BillingUsage>({
    data: listOf(billingEvent, 0, 4),
    sessions: optional(mapOf(billingSession)),
    costDataThrough: nullable(moment),
  }),
  CurrentCheckpointStorageUsageItem: storageItem,
  CurrentCheckpointStorageUsageResponse: record<Wire.CheckpointStorageUsage>({
    data: listOf(storageItem),
    effectiveRateUsdPerGigabyteMonth: nullable(finite),
  }),
  TryAgainResponse: record<Omit<Wire.TryAgainResponse, "queueStateReason">>({
    type: always("try_again"),
    requestId: text,
    queueState: oneOf("active", "paused_capacity", "paused_rate_limit"),
  }),
};
