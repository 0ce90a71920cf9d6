import { z } from "zod";
import { MAX_TTL_SECONDS } from "./core.js";

const METADATA_ENTRIES = 64;
const SHORT_TEXT = 256;

export const shortText = z.string().min(1).max(SHORT_TEXT);
export const seqId = z
  .number()
  .int()
  .min(1)
  .max(2 ** 31 - 1);
export const ttlSeconds = z.number().int().min(1).max(MAX_TTL_SECONDS);

/** User metadata may hold any JSON values on the way in. */
export const anyMetadata = z
  .record(z.string().max(SHORT_TEXT), z.unknown())
  .refine(
    (metadata) => Object.keys(metadata).length <= METADATA_ENTRIES,
    `has more than ${METADATA_ENTRIES} entries`,
  )
  .refine((metadata) => JSON.stringify(metadata).length <= 64 * 1024, "is larger than 64 KiB");

export const createSession = z.object({
  tags: z.array(z.string().max(SHORT_TEXT)).max(METADATA_ENTRIES).default([]),
  user_metadata: anyMetadata.nullish(),
  sdk_version: z.string().max(SHORT_TEXT).default(""),
  project_id: shortText.nullish(),
  display_name: z.string().max(SHORT_TEXT).nullish(),
});

export const optimizerConfig = z
  .looseObject({ type: z.string().default("adamw") })
  .refine((config) => config.type === "adamw", "type must be adamw: it is the only optimizer of this server");

export const loraConfig = z.object({
  rank: z.number().int().positive(),
  seed: z.number().int().nullish(),
  train_unembed: z.boolean().default(true),
  train_mlp: z.boolean().default(true),
  train_attn: z.boolean().default(true),
});

export const createModel = z.object({
  session_id: z.string(),
  model_seq_id: z.number().int().nonnegative(),
  base_model: z.string(),
  user_metadata: anyMetadata.nullish(),
  lora_config: loraConfig.nullish(),
  optimizer_config: optimizerConfig.nullish(),
});

export const modelOnly = z.object({ model_id: z.string() });

/** A number of its own for each request of a model; clients that send none are served in order of arrival. */
export const numbered = z.object({ seq_id: seqId.nullish() });

/** The outside of a pass in JSON; its data are checked as they are read. */
export const passInput = z.object({ loss_fn_config: z.record(z.string(), z.unknown()).nullish() });

const adam = z
  .object({
    type: z.literal("adamw").optional(),
    learning_rate: z.number().nonnegative().default(1e-4),
    beta1: z.number().min(0).lt(1).default(0.9),
    beta2: z.number().min(0).lt(1).default(0.95),
    eps: z.number().nonnegative().default(1e-12),
    weight_decay: z.number().nonnegative().default(0),
    grad_clip_norm: z.number().nonnegative().default(0),
  })
  .strict();

export const optimStep = z
  .object({
    model_id: z.string(),
    seq_id: seqId.nullish(),
    adam_params: adam.optional(),
    optim_params: adam.optional(),
    optimizer_params: adam.optional(),
  })
  .transform((request) => ({
    ...request,
    adam: request.adam_params ?? request.optim_params ?? request.optimizer_params ?? adam.parse({}),
  }));

const save = {
  model_id: z.string(),
  seq_id: seqId.nullish(),
  path: z.string().nullish(),
  ttl_seconds: ttlSeconds.nullish(),
  user_metadata: anyMetadata.nullish(),
};

export const saveWeights = z.object({ ...save, overwrite: z.boolean().default(false) });

export const saveForSampler = z
  .object({ ...save, sampling_session_seq_id: z.number().int().nonnegative().nullish() })
  .refine(
    (request) => (request.path ?? null) === null || (request.sampling_session_seq_id ?? null) === null,
    { path: ["sampling_session_seq_id"], message: "cannot be given together with path" },
  );

export const saveExternal = z.object({
  ...save,
  path: z.string(),
  age_encryption_recipients: z
    .array(z.string())
    .nullish()
    .refine(
      (recipients) => (recipients ?? []).length === 0,
      "encryption is not supported by this server; leave it out",
    ),
});

export const loadWeights = z.object({
  model_id: z.string().nullish(),
  seq_id: seqId.nullish(),
  session_id: z.string().nullish(),
  model_seq_id: z.number().int().nonnegative().nullish(),
  base_model: z.string().nullish(),
  user_metadata: anyMetadata.nullish(),
  path: z.string(),
  optimizer: z.boolean().default(false),
  optimizer_config: optimizerConfig.nullish(),
  weights_access_token: z.string().nullish(),
});

export const copyWeights = z.object({
  session_id: z.string().nullish(),
  model_seq_id: z.number().int().nonnegative().nullish(),
  destination_project_id: shortText.nullish(),
  source_path: z.string(),
  ttl_seconds: ttlSeconds.nullish(),
  weights_access_token: z.string().nullish(),
});

export const createSamplingSession = z.object({
  session_id: z.string(),
  sampling_session_seq_id: z.number().int().nonnegative(),
  base_model: z.string().nullish(),
  model_path: z.string().nullish(),
});

export const retrieveFuture = z.object({
  request_id: z.union([z.string(), z.number()]).transform(String),
  allow_metadata_only: z.boolean().default(false),
});

export const retrieveFutures = z.object({
  target: z.object({
    type: z.literal("sampling_session").default("sampling_session"),
    sampling_session_id: z.string(),
    cloned_sampler_id: z.number().int().nonnegative().default(0),
  }),
  prev_cursor: z.number().int().nonnegative().default(0),
  timeout: z.number().nonnegative().nullish(),
  retrieved_request_ids: z.array(z.string()).max(100_000).default([]),
});

export const finishSession = z.object({
  reason: z.object({ type: z.enum(["success", "errored", "interrupted"]) }).default({ type: "success" }),
  detail: z.string().max(16_384).nullish(),
});

export const assignProject = z.object({ project_id: shortText });
export const setTtl = z.object({ ttl_seconds: ttlSeconds.nullable() });

const page = {
  limit: z.coerce.number().int().min(1).max(1000),
  offset: z.coerce.number().int().nonnegative().default(0),
};
const accessScope = z.enum(["owned", "accessible"]).default("owned");

export const listRuns = z.object({
  ...page,
  limit: page.limit.default(20),
  access_scope: accessScope,
  project_id: z.string().optional(),
});
export const oneRun = z.object({ access_scope: accessScope });
export const listCheckpoints = z.object({ ...page, limit: page.limit.default(100) });
export const listSessions = z.object({ ...page, limit: page.limit.default(20), access_scope: accessScope });

const statusQuery = z.discriminatedUnion("type", [
  z.object({ type: z.literal("active") }),
  z.object({ type: z.literal("cancelled") }),
  z.object({ type: z.literal("failed") }),
  z.object({
    type: z.literal("client_finished"),
    reasons: z
      .array(z.enum(["success", "errored", "interrupted"]))
      .min(1)
      .nullish(),
  }),
]);

export const searchSessions = z.object({
  session_id: z.string().nullish(),
  project_ids: z.array(z.string()).nullish(),
  user_metadata: z.record(z.string(), z.string()).default({}),
  display_name: z.string().min(1).nullish(),
  owner: z
    .discriminatedUnion("type", [
      z.object({ type: z.literal("own") }),
      z.object({ type: z.literal("accessible") }),
      z.object({ type: z.literal("user"), owner_urns: z.array(z.string()).min(1).max(10) }),
    ])
    .default({ type: "own" }),
  statuses: z.array(statusQuery).min(1).nullish(),
  limit: z.number().int().min(1).max(200).default(50),
  cursor: z
    .object({ last_created_at: z.iso.datetime({ offset: true }), last_session_id: z.string() })
    .nullish(),
});

export const auditQuery = z.object({
  event_type: z.enum(["all", "checkpoints", "projects", "teams", "organizations"]).default("all"),
  day: z
    .string()
    .regex(/^\d{4}-\d{2}-\d{2}$/, "must be a date such as 2026-01-31")
    .optional(),
});

export const telemetry = z.looseObject({ events: z.array(z.unknown()).max(10_000) });
