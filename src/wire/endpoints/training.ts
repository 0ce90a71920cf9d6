import { ValidationError } from "../../errors.js";
import * as f from "../fields/index.js";
import { isRecord } from "../reading.js";
import type { ModelInfo } from "../records/session-types.js";
import { customLossGraph, customLossInputs } from "../training/custom-loss-graph.js";
import { datumField, passFuture } from "../training/forward-backward-json.js";
import { encodeForwardBackwardRequest } from "../training/forward-backward-request-writer.js";
import { lossConfigField } from "../training/losses.js";
import type * as Training from "../training/training-types.js";
import { metadata, seqId, sessionSeqId, shortText, ttlSeconds, wireJson } from "./common.js";
import { endpoint, future, json, operation } from "./endpoint.js";

const ADAM_FIELDS = {
  learningRate: f.withDefault(f.nonNegative, 1e-4),
  beta1: f.withDefault(f.fraction, 0.9),
  beta2: f.withDefault(f.fraction, 0.95),
  eps: f.withDefault(f.nonNegative, 1e-12),
  weightDecay: f.withDefault(f.nonNegative, 0),
  gradClipNorm: f.withDefault(f.nonNegative, 0),
} satisfies f.FieldsOf<Training.AdamParams>;

const plainAdam = f.message(ADAM_FIELDS, { closed: true });
const typedAdam = f.message({ type: f.optional(f.oneOf("adamw")), ...ADAM_FIELDS }, { closed: true });
/** One Adam step. All six values are sent: servers differ in what they assume for one that is left out. Servers take a `type` of `adamw` too. */
export const adamParams: typeof plainAdam = { ...plainAdam, read: typedAdam.read };

/** Whether a sampler keeps the weights it was made with, or follows those that are published after it. */
export const samplerKind = f.oneOf("snapshot", "inflight");

const anyOptimizer = wireJson<Training.OtherOptimParams>("an object");

/** An unlisted family passes unchanged. */
function otherOptimizer(given: Readonly<Record<string, unknown>>, path: string) {
  f.text.check(given["type"], f.subfield(path, "type"));
  return anyOptimizer;
}

/** Parameters of one step of any optimizer; without `type` they are Adam's. */
export const optimParams = f.byType<Training.OptimParams>(
  {
    adamw: f.message({ type: f.oneOf("adamw"), ...ADAM_FIELDS }, { closed: true }),
    dimuon: f.message({
      type: f.oneOf("dimuon"),
      learningRate: f.nonNegative,
      gradClipNorm: f.withDefault(f.number, 0),
      beta1: f.withDefault(f.fraction, 0.9),
    } satisfies f.FieldsOf<Training.DimuonParams>),
  },
  (given, path) => (given["type"] === undefined ? adamParams : otherOptimizer(given, path)),
);

const typedOptimizerConfig = f.byType<Training.OptimizerConfig>(
  {
    adamw: f.message({ type: f.oneOf("adamw") } satisfies f.FieldsOf<Training.AdamOptimizerConfig>),
    dimuon: f.message({
      type: f.oneOf("dimuon"),
      version: f.optional(f.value<1>("1", (given) => given === 1)),
    } satisfies f.FieldsOf<Training.DimuonOptimizerConfig>),
  },
  otherOptimizer,
);

/** The optimizer a model is created with; servers read one without `type` as Adam's. */
export const optimizerConfig = f.tolerant(typedOptimizerConfig, {
  read: (json, path) => typedOptimizerConfig.read(isRecord(json) ? { type: "adamw", ...json } : json, path),
});

/** Shape of an adapter; at least one kind of layer must be trained. */
export const loraConfig = f.message(
  {
    rank: f.positiveInteger,
    seed: f.optional(f.integer),
    trainUnembed: f.withDefault(f.boolean, true),
    trainMlp: f.withDefault(f.boolean, true),
    trainAttn: f.withDefault(f.boolean, true),
  } satisfies f.FieldsOf<Training.LoraConfig>,
  {
    rule(config, path) {
      if (config.trainUnembed || config.trainMlp || config.trainAttn) return;
      const what = path || "the adapter";
      throw new ValidationError(
        path || "trainUnembed",
        `${what} trains nothing: set one of trainUnembed, trainMlp and trainAttn`,
      );
    },
  },
);

/** Clients that number their requests are served in that order, others in the order of arrival. */
const numbered = { modelId: f.text, seqId: f.optional(seqId) };

const requestNumber = f.message({ modelId: f.text, seqId });

/** The model and the number of a request of which nothing else is known to be right. */
export function readRequestNumber(json: unknown): { modelId?: string; seqId?: number } {
  try {
    return requestNumber.read(json, "");
  } catch {
    return {};
  }
}

const passMessage = f.message({
  data: f.list(datumField),
  lossFn: f.text,
  lossFnConfig: f.optional(lossConfigField),
});

/** Errors name `data[3]` as they do for protobuf, where nothing is around it. */
const pass: typeof passMessage = {
  ...passMessage,
  read: (json, path) => passMessage.read(json, isRecord(json) ? "" : path),
  write: (given) => passMessage.write(given),
};

/** As protobuf, passes with and without gradients are one message to one address. */
const PASS_AS_PROTOBUF = "/api/v1/forward_backward";

const save = {
  ...numbered,
  path: f.optional(f.anyText),
  ttlSeconds: f.optional(ttlSeconds),
  userMetadata: f.optional(metadata),
};

/** Models, what trains them, and their weights in and out. */
export const trainingEndpoints = {
  createModel: operation("/api/v1/create_model", {
    tag: "create_model",
    fields: {
      sessionId: f.text,
      modelSeqId: sessionSeqId,
      baseModel: f.text,
      userMetadata: f.optional(metadata),
      loraConfig: f.optional(loraConfig),
      optimizerConfig: f.optional(optimizerConfig),
    },
    future: future<{ readonly modelId: string }>("CreateModel"),
  }),
  getInfo: endpoint("POST", "/api/v1/get_info", {
    tag: "get_info",
    fields: { modelId: f.text },
    answer: json<ModelInfo>(),
  }),
  unloadModel: operation("/api/v1/unload_model", {
    tag: "unload_model",
    fields: { modelId: f.text },
    future: future<{ readonly modelId: string }>("UnloadModel"),
  }),
  forwardBackward: operation("/api/v1/forward_backward", {
    fields: { ...numbered, forwardBackwardInput: pass },
    future: passFuture("ForwardBackward"),
    protobuf: {
      path: PASS_AS_PROTOBUF,
      write: ({ modelId, seqId = 0, forwardBackwardInput }) =>
        encodeForwardBackwardRequest({ ...forwardBackwardInput, modelId, seqId, forwardOnly: false }),
    },
  }),
  forward: operation("/api/v1/forward", {
    fields: { ...numbered, forwardInput: pass },
    future: passFuture("Forward"),
    protobuf: {
      path: PASS_AS_PROTOBUF,
      write: ({ modelId, seqId = 0, forwardInput }) =>
        encodeForwardBackwardRequest({ ...forwardInput, modelId, seqId, forwardOnly: true }),
    },
  }),
  optimStep: operation("/api/v1/optim_step", {
    tag: "optim_step",
    fields: {
      ...numbered,
      adamParams: f.optional(adamParams),
      optimizerParams: f.optional(optimParams),
      /** Another name of it, used by some clients. */
      optimParams: f.optional(optimParams),
    },
    future: future<Training.OptimStepResponse>("OptimStep"),
  }),
  saveWeights: operation("/api/v1/save_weights", {
    tag: "save_weights",
    fields: { ...save, overwrite: f.withDefault(f.boolean, false) },
    future: future<{ readonly path: string }>("SaveWeights"),
  }),
  saveWeightsForSampler: operation("/api/v1/save_weights_for_sampler", {
    tag: "save_weights_for_sampler",
    fields: {
      ...save,
      samplingSessionSeqId: f.optional(sessionSeqId),
      kind: f.optional(samplerKind),
    },
    rule({ path, samplingSessionSeqId }) {
      if (path === undefined || samplingSessionSeqId === undefined) return;
      const field = "samplingSessionSeqId";
      throw new ValidationError(field, `${field} cannot be given together with path`);
    },
    /** A path for a named save, a session for a save that goes straight into one. */
    future: future<{ readonly path?: string | null; readonly samplingSessionId?: string | null }>(
      "SaveWeightsForSampler",
    ),
  }),
  saveWeightsExternal: operation("/api/v1/save_weights_external", {
    tag: "save_weights_external",
    fields: {
      ...numbered,
      path: f.anyText,
      ttlSeconds: f.optional(ttlSeconds),
      ageEncryptionRecipients: f.optional(f.list(f.anyText)),
    },
    future: future<{ readonly path?: string | null; readonly sizeBytes?: number | null }>(
      "SaveWeightsExternal",
    ),
  }),
  /** Into an existing model (`modelId`, `seqId`), or into one that it creates (`sessionId`, `modelSeqId`). */
  loadWeights: operation("/api/v1/load_weights", {
    tag: "load_weights",
    fields: {
      modelId: f.optional(f.text),
      seqId: f.optional(seqId),
      sessionId: f.optional(f.text),
      modelSeqId: f.optional(sessionSeqId),
      baseModel: f.optional(f.text),
      userMetadata: f.optional(metadata),
      path: f.text,
      optimizer: f.withDefault(f.boolean, false),
      optimizerConfig: f.optional(optimizerConfig),
      weightsAccessToken: f.optional(f.anyText),
    },
    future: future<Training.LoadWeightsResponse>("LoadWeights"),
  }),
  copyWeights: endpoint("POST", "/api/v1/copy_weights", {
    fields: {
      sourcePath: f.text,
      sessionId: f.optional(f.text),
      modelSeqId: f.optional(sessionSeqId),
      destinationProjectId: f.optional(shortText),
      ttlSeconds: f.optional(ttlSeconds),
      weightsAccessToken: f.optional(f.anyText),
    },
    answer: json<{ readonly tinkerPath: string }>(),
  }),
  createCustomLoss: operation("/api/v1/create_custom_loss", {
    tag: "create_custom_loss",
    fields: {
      sessionId: f.text,
      customLossSeqId: sessionSeqId,
      name: f.text,
      inputs: customLossInputs,
      graph: customLossGraph,
    },
    future: future<{ readonly lossId: string }>("CreateCustomLoss"),
  }),
} as const;
