import { ValidationError } from "../../errors.js";
import * as f from "../fields/index.js";
import { isRecord } from "../reading.js";
import type * as Rest from "../records/rest-types.js";
import { accessScope, finishReason, page, shortText, ttlSeconds } from "./common.js";
import { endpoint, json } from "./endpoint.js";

const RUN = "/api/v1/training_runs/:trainingRunId";
const CHECKPOINT = `${RUN}/checkpoints/:folder/:name` as const;
const SESSION = "/api/v1/sessions/:sessionId";

/** The folder names the kind: `weights`, `sampler_weights`, `external_weights`. */
const checkpoint = { trainingRunId: f.text, folder: f.text, name: f.text };

const searchOwner = f.message(
  {
    type: f.oneOf("own", "accessible", "user"),
    ownerUrns: f.optional(f.list(f.anyText, { least: 1, most: 10 })),
  },
  {
    rule({ type, ownerUrns }, path) {
      if (type === "user") f.list(f.anyText, { least: 1, most: 10 }).check(ownerUrns, `${path}.ownerUrns`);
    },
  },
) as unknown as f.Field<Rest.SearchOwner>;

const searchStatus = f.message({
  type: f.oneOf("active", "cancelled", "failed", "client_finished"),
  reasons: f.optional(f.list(finishReason, { least: 1 })),
}) as unknown as f.Field<Rest.SessionStatusQuery>;

/** Each value is matched as a text. */
const textMetadata = f.value<Readonly<Record<string, string>>>(
  "an object of strings",
  (given) => isRecord(given) && Object.values(given).every((item) => typeof item === "string"),
);

const time = f.value<string>(
  "a time such as 2026-01-31T10:00:00Z",
  (given) => typeof given === "string" && !Number.isNaN(Date.parse(given)),
);

const HOUR_MS = 3_600_000;
const MAX_BILLING_MS = 14 * 24 * HOUR_MS;

/** A UTC hour as a text or a Date; a text without a zone is UTC, as all times here are. */
const utcHour: f.Field<string, "required", string | Date> = {
  ...f.customField(toUtcHour),
  write: (given) => (given instanceof Date ? given.toISOString() : given),
};

function toUtcHour(given: unknown, path: string): string {
  const text = typeof given === "string" && /T[^Z+-]*$/i.test(given) ? `${given}Z` : given;
  const isTime = typeof text === "string" || text instanceof Date;
  const time = isTime ? new Date(text).getTime() : Number.NaN;
  if (time % HOUR_MS === 0) return new Date(time).toISOString().replace(".000Z", "Z");
  const got = isTime ? String(given) : f.describe(given);
  throw new ValidationError(path, `${path} must be a time on a full UTC hour, got ${got}`);
}

/** Checkpoints of one run, or of all with a cursor. */
const checkpointList = json<{
  readonly checkpoints: readonly Rest.Checkpoint[];
  readonly cursor?: Rest.Cursor | null;
}>();

/** Runs, checkpoints, sessions and usage, as a server keeps them. */
export const recordEndpoints = {
  listTrainingRuns: endpoint("GET", "/api/v1/training_runs", {
    fields: { ...page(20), accessScope, projectId: f.optional(f.text) },
    answer: json<{ readonly trainingRuns: readonly Rest.TrainingRun[]; readonly cursor: Rest.Cursor }>(),
    lists: ["trainingRuns"],
  }),
  getTrainingRun: endpoint("GET", RUN, {
    fields: { trainingRunId: f.text, accessScope },
    answer: json<Rest.TrainingRun>(),
  }),
  listCheckpoints: endpoint("GET", `${RUN}/checkpoints`, {
    fields: { trainingRunId: f.text },
    answer: checkpointList,
    lists: ["checkpoints"],
  }),
  listUserCheckpoints: endpoint("GET", "/api/v1/checkpoints", {
    fields: page(100),
    answer: checkpointList,
    lists: ["checkpoints"],
  }),
  getWeightsInfo: endpoint("POST", "/api/v1/weights_info", {
    fields: { tinkerPath: f.text },
    answer: json<Rest.WeightsInfo>(),
  }),
  deleteCheckpoint: endpoint("DELETE", CHECKPOINT, { fields: checkpoint, answer: json<void>() }),
  publishCheckpoint: endpoint("POST", `${CHECKPOINT}/publish`, { fields: checkpoint, answer: json<void>() }),
  unpublishCheckpoint: endpoint("DELETE", `${CHECKPOINT}/publish`, {
    fields: checkpoint,
    answer: json<void>(),
  }),
  setCheckpointTtl: endpoint("PUT", `${CHECKPOINT}/ttl`, {
    fields: { ...checkpoint, ttlSeconds: f.nullable(ttlSeconds) },
    answer: json<void>(),
  }),
  getCheckpointArchiveUrl: endpoint("GET", `${CHECKPOINT}/archive`, {
    fields: checkpoint,
    answer: json<Rest.CheckpointArchiveUrl>(),
  }),
  getExternalWeightsUrls: endpoint("GET", `${CHECKPOINT}/external_weights_urls`, {
    fields: checkpoint,
    answer: json<Rest.ExternalWeightsUrls>(),
  }),
  listSessions: endpoint("GET", "/api/v1/sessions", {
    fields: { ...page(20), accessScope },
    answer: json<{ readonly sessions: readonly string[] }>(),
    lists: ["sessions"],
  }),
  getSession: endpoint("GET", SESSION, {
    fields: { sessionId: f.text, accessScope },
    answer: json<Rest.SessionInfo>(),
    lists: ["trainingRunIds", "samplerIds"],
  }),
  searchSessions: endpoint("POST", "/api/v1/sessions/search", {
    fields: {
      sessionId: f.optional(f.text),
      projectIds: f.optional(f.list(f.anyText, { least: 1 })),
      userMetadata: f.optional(textMetadata),
      displayName: f.optional(f.text),
      owner: f.optional(searchOwner),
      statuses: f.optional(f.list(searchStatus, { least: 1 })),
      limit: f.withDefault(f.integerFrom(1, 200), 50),
      cursor: f.optional(f.message({ lastCreatedAt: time, lastSessionId: f.text })),
    },
    answer: json<{
      readonly sessions: readonly Rest.SessionSummary[];
      readonly nextCursor?: Rest.SessionSearchCursor | null;
    }>(),
    lists: ["sessions"],
  }),
  assignSessionProject: endpoint("PUT", `${SESSION}/project`, {
    fields: { sessionId: f.text, projectId: shortText },
    answer: json<void>(),
  }),
  exportSessionTrace: endpoint("GET", `${SESSION}/trace_export`, {
    fields: { sessionId: f.text },
    answer: json<{
      readonly status: "ready" | "pending" | "failed" | (string & {});
      readonly url?: string | null;
      readonly error?: string | null;
    }>(),
  }),
  getAuditLog: endpoint("GET", "/api/v1/audit", {
    fields: {
      eventType: f.withDefault(f.oneOf("all", "checkpoints", "projects", "teams", "organizations"), "all"),
      day: f.optional(
        f.value<string>(
          "a date such as 2026-01-31",
          (given) => typeof given === "string" && /^\d{4}-\d{2}-\d{2}$/.test(given),
        ),
      ),
    },
    answer: json<Rest.AuditLog>(),
    lists: ["entries"],
  }),
  getBillingUsage: endpoint("GET", "/api/v1/billing/usage/events", {
    fields: { startingOn: utcHour, endingBefore: utcHour },
    rule({ startingOn, endingBefore }) {
      const lengthMs = Date.parse(endingBefore) - Date.parse(startingOn);
      if (lengthMs > 0 && lengthMs <= MAX_BILLING_MS) return;
      throw new ValidationError(
        "endingBefore",
        `endingBefore must be after startingOn and at most 14 days later, got ${startingOn} to ${endingBefore}`,
      );
    },
    answer: json<Rest.BillingUsage>(),
    lists: ["data"],
  }),
  getCurrentCheckpointStorageUsage: endpoint("GET", "/api/v1/billing/usage/checkpoints/current", {
    fields: { projectId: f.optional(f.text) },
    answer: json<Rest.CheckpointStorageUsage>(),
    lists: ["data"],
  }),
} as const;
