import type { OptimizerConfig } from "../training/training-types.js";

// Times are the server's ISO 8601 texts; `new Date(run.lastRequestTime)` makes a Date.

/** Which part of a list an answer holds. */
export interface Cursor {
  readonly offset: number;
  readonly limit: number;
  readonly totalCount: number;
}

/** Owner of the records in a list. */
export type AccessScope = "owned" | "accessible";

/** Purpose of a checkpoint: resuming training, sampling, or use in other tools. */
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
  /** When the checkpoint expires; null or absent means never. */
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

/** Base model and adapter settings that loading a checkpoint needs. */
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

/** Reason why a session failed. */
export type SessionFailedReason =
  | { readonly type: "request"; readonly requestId: string; readonly requestType: string }
  | { readonly type: "training_run"; readonly trainingRunId: string }
  | { readonly type: "sampling_session"; readonly samplingSessionId: string };

/** Outcome of a session's work, as the client reports it to the server. */
export type SessionFinishStatus = "success" | "errored" | "interrupted";

/** State of a session: active, cancelled, finished or failed. */
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
  /** Ids of 1 to 10 owners. */
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

/** Conditions that a search of sessions filters by. */
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

/** Filter for the events of the audit log. */
export type AuditEventType = "all" | "checkpoints" | "projects" | "teams" | "organizations";

/** One audited action: user, time, and the model or checkpoint it changed. */
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

/** One kind of billed usage and its amount. */
export type BillingEventInfo =
  | { readonly type: "training"; readonly tokenCount: number }
  | { readonly type: "sampling_prefill"; readonly cached: boolean; readonly tokenCount: number }
  | { readonly type: "sampling_sample"; readonly tokenCount: number }
  | { readonly type: "checkpoint"; readonly count: number }
  | {
      readonly type: "storage";
      /** Absent from servers that do not tell free storage from paid storage. */
      readonly free?: boolean | undefined;
      readonly gigabyteHours: number;
    };

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
  /** Sessions that the usage belongs to, by session id. */
  readonly sessions?: Readonly<Record<string, BillingUsageSession>> | undefined;
  /** Costs before this time follow invoices, later ones the published rates. */
  readonly costDataThrough?: string | null;
}

/** Range of hours to report usage for. */
export interface BillingUsageRequest {
  /** First UTC hour of the range, inclusive. */
  readonly startingOn: string | Date;
  /** End of the range as a UTC hour, exclusive, at most 14 days after `startingOn`. */
  readonly endingBefore: string | Date;
}

/** Storage that the checkpoints of one project and user take. */
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

/** Storage that the checkpoints of each project take. */
export interface CheckpointStorageUsage {
  readonly data: readonly CheckpointStorageUsageItem[];
  readonly effectiveRateUsdPerGigabyteMonth?: number | null;
}
