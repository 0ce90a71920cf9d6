import type { OptimizerConfig } from "../training/training-types.js";

// Times are the server's own ISO 8601 texts: `new Date(run.lastRequestTime)` where a Date is wanted.

/** Which part of a list an answer holds. */
export interface Cursor {
  readonly offset: number;
  readonly limit: number;
  readonly totalCount: number;
}

/** Whose records a list holds. */
export type AccessScope = "owned" | "accessible";

/** What a checkpoint is for: training on, sampling from, or other tools. */
export type CheckpointType = "training" | "sampler" | "external";

/** A saved checkpoint, as the server lists it. */
export interface Checkpoint {
  readonly checkpointId: string;
  readonly checkpointType: CheckpointType | (string & {});
  readonly time: string;
  readonly tinkerPath: string;
  readonly sizeBytes?: number | null;
  readonly public?: boolean | undefined;
  readonly userMetadata?: Readonly<Record<string, string>> | null;
  /** Null or absent: never expires. */
  readonly expiresAt?: string | null;
}

/** A training run, as the server lists it. */
export interface TrainingRun {
  readonly trainingRunId: string;
  readonly baseModel: string;
  readonly modelOwner: string;
  readonly isLora: boolean;
  readonly corrupted?: boolean | undefined;
  readonly loraRank?: number | null;
  readonly lastRequestTime: string;
  readonly lastCheckpoint?: Checkpoint | null;
  readonly lastSamplerCheckpoint?: Checkpoint | null;
  readonly userMetadata?: Readonly<Record<string, string>> | null;
}

/** Where a checkpoint's archive can be fetched from, and until when. */
export interface CheckpointArchiveUrl {
  readonly url: string;
  readonly expires: string;
}

/** One signed URL per file of an external checkpoint, by its path below the checkpoint. */
export interface ExternalWeightsUrls {
  readonly urls: Readonly<Record<string, string>>;
  readonly expires: string;
}

/** What is needed to load a checkpoint. */
export interface WeightsInfo {
  readonly baseModel: string;
  readonly isLora: boolean;
  readonly optimizerConfig?: OptimizerConfig | null;
  readonly loraRank?: number | null;
  readonly trainUnembed?: boolean | null;
  readonly trainMlp?: boolean | null;
  readonly trainAttn?: boolean | null;
}

/** The runs and samplers of a session. */
export interface SessionInfo {
  readonly trainingRunIds: readonly string[];
  readonly samplerIds: readonly string[];
  readonly userMetadata?: Readonly<Record<string, string>> | null;
  readonly displayName?: string | null;
}

/** What made a session fail. */
export type SessionFailedReason =
  | { readonly type: "request"; readonly requestId: string; readonly requestType: string }
  | { readonly type: "training_run"; readonly trainingRunId: string }
  | { readonly type: "sampling_session"; readonly samplingSessionId: string };

/** How the work of a session ended, as the server is told. */
export type SessionFinishStatus = "success" | "errored" | "interrupted";

/** How a session stands. */
export type SessionStatus =
  | { readonly type: "active" }
  | { readonly type: "cancelled"; readonly detail?: string | null }
  | {
      readonly type: "client_finished";
      readonly reason: { readonly type: SessionFinishStatus };
      readonly detail?: string | null;
    }
  | {
      readonly type: "failed";
      readonly category: "user" | "internal" | (string & {});
      readonly reason: SessionFailedReason;
      readonly message: string;
    };

/** A session, as a search finds it. */
export interface SessionSummary {
  readonly sessionId: string;
  readonly createdAt: string;
  readonly owner: string;
  readonly projectId: string;
  /** Null when the session neither finished nor is known to be running. */
  readonly status?: SessionStatus | null;
  readonly checkpointsCount: number;
  readonly displayName?: string | null;
  readonly userMetadata?: Readonly<Record<string, string>> | null;
  readonly checkpointStorageBytes?: number | null;
}

/** Whose sessions a search is about. */
export type SearchOwner =
  | { readonly type: "own" }
  | { readonly type: "accessible" }
  /** 1 to 10 owners. */
  | { readonly type: "user"; readonly ownerUrns: readonly string[] };

/** The states a search of sessions looks for. */
export type SessionStatusQuery =
  | { readonly type: "active" }
  | { readonly type: "cancelled" }
  | { readonly type: "failed" }
  | { readonly type: "client_finished"; readonly reasons?: readonly SessionFinishStatus[] };

/** Opaque: hand a page's `nextCursor` back unchanged. */
export interface SessionSearchCursor {
  readonly lastCreatedAt: string;
  readonly lastSessionId: string;
}

/** What a search of sessions looks for. */
export interface SessionSearchRequest {
  readonly sessionId?: string | undefined;
  readonly projectIds?: readonly string[] | undefined;
  /** Every pair must match exactly. */
  readonly userMetadata?: Readonly<Record<string, string>> | undefined;
  /** Part of the display name, in any case; of several words each must appear. */
  readonly displayName?: string | undefined;
  /** Whose sessions; the caller's own when absent. */
  readonly owner?: SearchOwner | undefined;
  readonly statuses?: readonly SessionStatusQuery[] | undefined;
  /** Page size, 1 to 200; 50. */
  readonly limit?: number | undefined;
  readonly cursor?: SessionSearchCursor | undefined;
}

/** Which events of the audit log are meant. */
export type AuditEventType = "all" | "checkpoints" | "projects" | "teams" | "organizations";

/** Who did what, and to which model or checkpoint. */
export interface AuditLogEntry {
  readonly timestamp: string;
  /** `<resource>_<action>`, for example `checkpoint_read`. */
  readonly event: string;
  /** Keys are the server's own. */
  readonly eventDetails?: Readonly<Record<string, unknown>> | undefined;
  readonly modelId?: string | null;
  readonly tinkerPath?: string | null;
  readonly purpose?: string | null;
}

/** The events of one day. */
export interface AuditLog {
  readonly entries: readonly AuditLogEntry[];
}

/** What was used, and how much of it. */
export type BillingEventInfo =
  | { readonly type: "training"; readonly tokenCount: number }
  | { readonly type: "sampling_prefill"; readonly cached: boolean; readonly tokenCount: number }
  | { readonly type: "sampling_sample"; readonly tokenCount: number }
  | { readonly type: "checkpoint"; readonly count: number }
  | { readonly type: "storage"; readonly gigabyteHours: number };

/** Usage of one kind within one UTC hour. */
export interface BillingUsageEvent {
  readonly bucketStart: string;
  readonly bucketEnd: string;
  readonly eventInfo: BillingEventInfo;
  readonly baseModel?: string | null;
  readonly userId?: string | null;
  readonly userName?: string | null;
  readonly sessionId?: string | null;
  readonly projectId?: string | null;
  /** An estimate before credits, not an amount due. */
  readonly estimatedCostUsd?: number | null;
  readonly effectiveRateUsdPerMillionTokens?: number | null;
  readonly effectiveRateUsdPerGigabyteMonth?: number | null;
}

/** A session that usage belongs to. */
export interface BillingUsageSession {
  readonly userMetadata?: Readonly<Record<string, string>> | null;
}

/** Usage by the hour. */
export interface BillingUsage {
  readonly data: readonly BillingUsageEvent[];
  /** By session id. */
  readonly sessions?: Readonly<Record<string, BillingUsageSession>> | undefined;
  /** Costs before this time follow invoices, later ones the published rates. */
  readonly costDataThrough?: string | null;
}

/** The hours that are asked about. */
export interface BillingUsageRequest {
  /** UTC hour, inclusive. */
  readonly startingOn: string | Date;
  /** UTC hour, exclusive, at most 14 days after `startingOn`. */
  readonly endingBefore: string | Date;
}

/** What the checkpoints of one project and user take. */
export interface CheckpointStorageUsageItem {
  readonly projectId?: string | null;
  readonly orgUserUrn?: string | null;
  readonly userEmail?: string | null;
  readonly userName?: string | null;
  readonly checkpointCount: number;
  readonly sizeBytes: number;
  readonly sizeGigabytes: number;
  readonly estimatedMonthlyCostUsd?: number | null;
}

/** What the checkpoints of each project take. */
export interface CheckpointStorageUsage {
  readonly data: readonly CheckpointStorageUsageItem[];
  readonly effectiveRateUsdPerGigabyteMonth?: number | null;
}
