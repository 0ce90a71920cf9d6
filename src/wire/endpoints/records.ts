import { ValidationError } from "../../errors.js";
import { describe } from "../fields/describe.js";
import {
  anyText,
  customField,
  type Field,
  integerFrom,
  list,
  message,
  nullable,
  oneOf,
  optional,
  text,
  value,
  withDefault,
} from "../fields/fields.js";
import { isRecord } from "../reading.js";
import type * as Rest from "../records/rest-types.js";
import { accessScope, finishReason, page, shortText, ttlSeconds } from "./common.js";
import { endpoint, json } from "./endpoint.js";

const RUN = "/api/v1/training_runs/:trainingRunId";
const CHECKPOINT = `${RUN}/checkpoints/:folder/:name` as const;
const SESSION = "/api/v1/sessions/:sessionId";

/** The folder tells the kind: `weights`, `sampler_weights`, `external_weights`. */
const checkpoint = { trainingRunId: text, folder: text, name: text };

const searchOwner = message(
  {
    type: oneOf("own", "accessible", "user"),
    ownerUrns: optional(list(anyText, { least: 1, most: 10 })),
  },
  {
    rule({ type, ownerUrns }, path) {
      if (type === "user") list(anyText, { least: 1, most: 10 }).check(ownerUrns, `${path}.ownerUrns`);
    },
  },
) as unknown as Field<Rest.SearchOwner>;

const searchStatus = message({
  type: oneOf("active", "cancelled", "failed", "client_finished"),
  reasons: optional(list(finishReason, { least: 1 })),
}) as unknown as Field<Rest.SessionStatusQuery>;

/** Each value is matched as a text. */
const textMetadata = value<Readonly<Record<string, string>>>(
  "an object of strings",
  (given) => isRecord(given) && Object.values(given).every((item) => typeof item === "string"),
);

const time = value<string>(
  "a time such as 2026-01-31T10:00:00Z",
  (given) => typeof given === "string" && !Number.isNaN(Date.parse(given)),
);

const HOUR_MS = 3_600_000;
const MAX_BILLING_MS = 14 * 24 * HOUR_MS;

/** A UTC hour as a text or a Date; a text without a zone is UTC, as all times here are. */
const utcHour: Field<string, "required", string | Date> = {
  ...customField(toUtcHour),
  write: (given) => (given instanceof Date ? given.toISOString() : given),
};

function toUtcHour(given: unknown, path: string): string {
  const text = typeof given === "string" && /T[^Z+-]*$/i.test(given) ? `${given}Z` : given;
  const isTime = typeof text === "string" || text instanceof Date;
  const time = isTime ? new Date(text).getTime() : Number.NaN;
  if (time % HOUR_MS === 0) return new Date(time).toISOString().replace(".000Z", "Z");
  const got = isTime ? String(given) : describe(given);
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
    fields: { ...page(20), accessScope, projectId: optional(text) },
    answer: json<{ readonly trainingRuns: readonly Rest.TrainingRun[]; readonly cursor: Rest.Cursor }>(),
  }),
  getTrainingRun: endpoint("GET", RUN, {
    fields: { trainingRunId: text, accessScope },
    answer: json<Rest.TrainingRun>(),
  }),
  listCheckpoints: endpoint("GET", `${RUN}/checkpoints`, {
    fields: { trainingRunId: text },
    answer: checkpointList,
  }),
  listUserCheckpoints: endpoint("GET", "/api/v1/checkpoints", {
    fields: page(100),
    answer: checkpointList,
  }),
  getWeightsInfo: endpoint("POST", "/api/v1/weights_info", {
    fields: { tinkerPath: text },
    answer: json<Rest.WeightsInfo>(),
  }),
  deleteCheckpoint: endpoint("DELETE", CHECKPOINT, { fields: checkpoint, answer: json<void>() }),
  publishCheckpoint: endpoint("POST", `${CHECKPOINT}/publish`, { fields: checkpoint, answer: json<void>() }),
  unpublishCheckpoint: endpoint("DELETE", `${CHECKPOINT}/publish`, {
    fields: checkpoint,
    answer: json<void>(),
  }),
  setCheckpointTtl: endpoint("PUT", `${CHECKPOINT}/ttl`, {
    fields: { ...checkpoint, ttlSeconds: nullable(ttlSeconds) },
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
  }),
  getSession: endpoint("GET", SESSION, {
    fields: { sessionId: text, accessScope },
    answer: json<Rest.SessionInfo>(),
  }),
  searchSessions: endpoint("POST", "/api/v1/sessions/search", {
    fields: {
      sessionId: optional(text),
      projectIds: optional(list(anyText, { least: 1 })),
      userMetadata: optional(textMetadata),
      displayName: optional(text),
      owner: optional(searchOwner),
      statuses: optional(list(searchStatus, { least: 1 })),
      limit: withDefault(integerFrom(1, 200), 50),
      cursor: optional(message({ lastCreatedAt: time, lastSessionId: text })),
    },
    answer: json<{
      readonly sessions: readonly Rest.SessionSummary[];
      readonly nextCursor?: Rest.SessionSearchCursor | null;
    }>(),
  }),
  assignSessionProject: endpoint("PUT", `${SESSION}/project`, {
    fields: { sessionId: text, projectId: shortText },
    answer: json<void>(),
  }),
  exportSessionTrace: endpoint("GET", `${SESSION}/trace_export`, {
    fields: { sessionId: text },
    answer: json<{
      readonly status: "ready" | "pending" | "failed" | (string & {});
      readonly url?: string | null;
      readonly error?: string | null;
    }>(),
  }),
  getAuditLog: endpoint("GET", "/api/v1/audit", {
    fields: {
      eventType: withDefault(oneOf("all", "checkpoints", "projects", "teams", "organizations"), "all"),
      day: optional(
        value<string>(
          "a date such as 2026-01-31",
          (given) => typeof given === "string" && /^\d{4}-\d{2}-\d{2}$/.test(given),
        ),
      ),
    },
    answer: json<Rest.AuditLog>(),
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
  }),
  getCurrentCheckpointStorageUsage: endpoint("GET", "/api/v1/billing/usage/checkpoints/current", {
    fields: { projectId: optional(text) },
    answer: json<Rest.CheckpointStorageUsage>(),
  }),
} as const;
