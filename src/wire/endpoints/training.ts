import { ValidationError } from "../../errors.js";
import { subfield } from "../fields/check-keys.js";
import {
  anyText,
  boolean,
  byType,
  type FieldsOf,
  fraction,
  integer,
  list,
  message,
  nonNegative,
  number,
  oneOf,
  optional,
  positiveInteger,
  text,
  tolerant,
  value,
  withDefault,
} from "../fields/fields.js";
import { isRecord } from "../reading.js";
import type { ModelInfo } from "../records/session-types.js";
import { datumField, passFuture } from "../training/forward-backward-json.js";
import { lossConfigField } from "../training/losses.js";
import type * as Training from "../training/training-types.js";
import { metadata, seqId, sessionSeqId, shortText, ttlSeconds, wireJson } from "./common.js";
import { endpoint, future, json, operation } from "./endpoint.js";

const ADAM_FIELDS = {
  learningRate: withDefault(nonNegative, 1e-4),
  beta1: withDefault(fraction, 0.9),
  beta2: withDefault(fraction, 0.95),
  eps: withDefault(nonNegative, 1e-12),
  weightDecay: withDefault(nonNegative, 0),
  gradClipNorm: withDefault(nonNegative, 0),
} satisfies FieldsOf<Training.AdamParams>;

const plainAdam = message(ADAM_FIELDS, { closed: true });
const typedAdam = message({ type: optional(oneOf("adamw")), ...ADAM_FIELDS }, { closed: true });
/** One Adam step. All six values are sent: servers differ in what they assume for one that is left out. Servers take a `type` of `adamw` too. */
export const adamParams: typeof plainAdam = { ...plainAdam, read: typedAdam.read };

const anyOptimizer = wireJson<Training.OtherOptimParams>("an object");

/** A family nobody knows here passes as it is. */
function otherOptimizer(given: Readonly<Record<string, unknown>>, path: string) {
  text.check(given["type"], subfield(path, "type"));
  return anyOptimizer;
}

/** Parameters of one step of any optimizer; without `type` they are Adam's. */
export const optimParams = byType<Training.OptimParams>(
  {
    adamw: message({ type: oneOf("adamw"), ...ADAM_FIELDS }, { closed: true }),
    dimuon: message({
      type: oneOf("dimuon"),
      learningRate: nonNegative,
      gradClipNorm: withDefault(number, 0),
      beta1: withDefault(fraction, 0.9),
    } satisfies FieldsOf<Training.DimuonParams>),
  },
  (given, path) => (given["type"] === undefined ? adamParams : otherOptimizer(given, path)),
);

const typedOptimizerConfig = byType<Training.OptimizerConfig>(
  {
    adamw: message({ type: oneOf("adamw") } satisfies FieldsOf<Training.AdamOptimizerConfig>),
    dimuon: message({
      type: oneOf("dimuon"),
      version: optional(value<1>("1", (given) => given === 1)),
    } satisfies FieldsOf<Training.DimuonOptimizerConfig>),
  },
  otherOptimizer,
);

/** The optimizer a model is created with; servers read one without `type` as Adam's. */
export const optimizerConfig = tolerant(typedOptimizerConfig, {
  read: (json, path) => typedOptimizerConfig.read(isRecord(json) ? { type: "adamw", ...json } : json, path),
});

/** Shape of an adapter; at least one kind of layer must be trained. */
export const loraConfig = message(
  {
    rank: positiveInteger,
    seed: optional(integer),
    trainUnembed: withDefault(boolean, true),
    trainMlp: withDefault(boolean, true),
    trainAttn: withDefault(boolean, true),
  } satisfies FieldsOf<Training.LoraConfig>,
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
const numbered = { modelId: text, seqId: optional(seqId) };

const requestNumber = message({ modelId: text, seqId });

/** The model and the number of a request of which nothing else is known to be right. */
export function readRequestNumber(json: unknown): { modelId?: string; seqId?: number } {
  try {
    return requestNumber.read(json, "");
  } catch {
    return {};
  }
}

const passMessage = message({
  data: list(datumField),
  lossFn: text,
  lossFnConfig: optional(lossConfigField),
});

/** Errors name `data[3]` as they do for protobuf, where nothing is around it. */
const pass: typeof passMessage = {
  ...passMessage,
  read: (json, path) => passMessage.read(json, isRecord(json) ? "" : path),
  write: (given) => passMessage.write(given),
};

const save = {
  ...numbered,
  path: optional(anyText),
  ttlSeconds: optional(ttlSeconds),
  userMetadata: optional(metadata),
};

/** Models, what trains them, and their weights in and out. */
export const trainingEndpoints = {
  createModel: operation("/api/v1/create_model", {
    tag: "create_model",
    fields: {
      sessionId: text,
      modelSeqId: sessionSeqId,
      baseModel: text,
      userMetadata: optional(metadata),
      loraConfig: optional(loraConfig),
      optimizerConfig: optional(optimizerConfig),
    },
    future: future<{ readonly modelId: string }>("CreateModel"),
  }),
  getInfo: endpoint("POST", "/api/v1/get_info", {
    tag: "get_info",
    fields: { modelId: text },
    answer: json<ModelInfo>(),
  }),
  unloadModel: operation("/api/v1/unload_model", {
    tag: "unload_model",
    fields: { modelId: text },
    future: future<{ readonly modelId: string }>("UnloadModel"),
  }),
  /** Its usual form is protobuf, of which the same request is the flat `ForwardBackwardRequest`. */
  forwardBackward: operation("/api/v1/forward_backward", {
    fields: { ...numbered, forwardBackwardInput: pass },
    future: passFuture("ForwardBackward"),
  }),
  forward: operation("/api/v1/forward", {
    fields: { ...numbered, forwardInput: pass },
    future: passFuture("Forward"),
  }),
  optimStep: operation("/api/v1/optim_step", {
    tag: "optim_step",
    fields: {
      ...numbered,
      adamParams: optional(adamParams),
      optimizerParams: optional(optimParams),
      /** What some clients call it. */
      optimParams: optional(optimParams),
    },
    future: future<Training.OptimStepResponse>("OptimStep"),
  }),
  saveWeights: operation("/api/v1/save_weights", {
    tag: "save_weights",
    fields: { ...save, overwrite: withDefault(boolean, false) },
    future: future<{ readonly path: string }>("SaveWeights"),
  }),
  saveWeightsForSampler: operation("/api/v1/save_weights_for_sampler", {
    tag: "save_weights_for_sampler",
    fields: { ...save, samplingSessionSeqId: optional(sessionSeqId) },
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
      path: anyText,
      ttlSeconds: optional(ttlSeconds),
      ageEncryptionRecipients: optional(list(anyText)),
    },
    future: future<{ readonly path?: string | null; readonly sizeBytes?: number | null }>(
      "SaveWeightsExternal",
    ),
  }),
  /** Into an existing model (`modelId`, `seqId`), or into one that it creates (`sessionId`, `modelSeqId`). */
  loadWeights: operation("/api/v1/load_weights", {
    tag: "load_weights",
    fields: {
      modelId: optional(text),
      seqId: optional(seqId),
      sessionId: optional(text),
      modelSeqId: optional(sessionSeqId),
      baseModel: optional(text),
      userMetadata: optional(metadata),
      path: text,
      optimizer: withDefault(boolean, false),
      optimizerConfig: optional(optimizerConfig),
      weightsAccessToken: optional(anyText),
    },
    future: future<Training.LoadWeightsResponse>("LoadWeights"),
  }),
  copyWeights: endpoint("POST", "/api/v1/copy_weights", {
    fields: {
      sourcePath: text,
      sessionId: optional(text),
      modelSeqId: optional(sessionSeqId),
      destinationProjectId: optional(shortText),
      ttlSeconds: optional(ttlSeconds),
      weightsAccessToken: optional(anyText),
    },
    answer: json<{ readonly tinkerPath: string }>(),
  }),
  createCustomLoss: endpoint("POST", "/api/v1/create_custom_loss", {
    fields: {
      sessionId: text,
      customLossSeqId: sessionSeqId,
      name: text,
      inputs: list(wireJson<object>("an input")),
      graph: wireJson<object>("a graph"),
    },
    answer: json<{ readonly lossId: string }>(),
  }),
} as const;
