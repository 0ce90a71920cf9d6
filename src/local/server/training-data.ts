import { createHash } from "node:crypto";
import type { Datum } from "../../wire/datum.js";
import type { ModelInput } from "../../wire/model-input.js";
import type { TensorData } from "../../wire/tensor-data.js";
import type { BaseModelInfo, EngineDatum, LossConfig, LossName } from "../engine/engine.js";
import { HttpError, invalid } from "./http-error.js";
import type { Limits } from "./limits.js";

const LOSS_CONFIG_KEYS: Readonly<Record<LossName, readonly string[]>> = {
  cross_entropy: [],
  importance_sampling: [],
  ppo: ["clip_low_threshold", "clip_high_threshold"],
  cispo: ["clip_low_threshold", "clip_high_threshold"],
  dro: ["beta"],
};

export function checkLoss(
  lossFn: string,
  config: Readonly<Record<string, number | string>> | undefined,
): { lossFn: LossName; lossFnConfig: LossConfig } {
  if (lossFn === "custom") {
    throw invalid(
      "loss_fn",
      "'custom' names a loss stored on the server, but this server stores none: custom losses run in the client",
    );
  }
  if (!Object.hasOwn(LOSS_CONFIG_KEYS, lossFn)) {
    throw invalid(
      "loss_fn",
      `must be one of ${Object.keys(LOSS_CONFIG_KEYS).join(", ")}, got ${JSON.stringify(lossFn)}`,
    );
  }
  const name = lossFn as LossName;
  const keys = LOSS_CONFIG_KEYS[name];
  const lossFnConfig: Record<string, number> = {};
  for (const [camelKey, value] of Object.entries(config ?? {})) {
    const key = camelKey.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    if (!keys.includes(key)) {
      const known = keys.length === 0 ? "takes no settings" : `takes ${keys.join(" and ")}`;
      throw invalid(`loss_fn_config.${key}`, `is unknown: ${name} ${known}`);
    }
    if (typeof value !== "number" || !Number.isFinite(value)) {
      throw invalid(`loss_fn_config.${key}`, `must be a finite number, got ${JSON.stringify(value)}`);
    }
    lossFnConfig[camelKey] = value;
  }
  return { lossFn: name, lossFnConfig };
}

/** The tokens of a text input, checked against the model; other kinds of chunks are refused. */
export function textTokens(input: ModelInput, field: string, model: BaseModelInfo): Int32Array {
  for (const [index, chunk] of input.chunks.entries()) {
    if (chunk.type === "encoded_text") continue;
    const kind = chunk.type === "dmel" ? "audio" : "image";
    throw invalid(
      `${field}.chunks[${index}]`,
      `is an ${kind} chunk (${chunk.type}); this server's models read text only`,
    );
  }
  const chunks = input.chunks as readonly { readonly tokens: Int32Array }[];
  const tokens = chunks.length === 1 ? chunks[0]!.tokens : concatenate(chunks.map((chunk) => chunk.tokens));
  if (tokens.length === 0) throw invalid(field, "has no tokens");
  if (tokens.length > model.maxContextLength) {
    throw invalid(
      field,
      `has ${tokens.length} tokens; ${model.name} reads at most ${model.maxContextLength}`,
    );
  }
  checkTokens(tokens, field, model);
  return tokens;
}

function concatenate(parts: readonly Int32Array[]): Int32Array {
  const whole = new Int32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}

function checkTokens(tokens: Int32Array, field: string, model: BaseModelInfo): void {
  for (let index = 0; index < tokens.length; index += 1) {
    const token = tokens[index]!;
    if (token < 0 || token >= model.vocabSize) {
      throw invalid(
        field,
        `has token ${token} at position ${index}; ${model.name} has tokens 0 to ${model.vocabSize - 1}`,
      );
    }
  }
}

export interface TrainingBatch {
  readonly data: EngineDatum[];
  readonly tokens: number;
  readonly bytes: number;
}

/** Checks a whole batch and brings it into the engine's form. */
export function toEngineData(
  data: readonly Datum[],
  lossFn: LossName,
  forwardOnly: boolean,
  model: BaseModelInfo,
  limits: Limits,
): TrainingBatch {
  if (data.length === 0) throw invalid("data", "must hold at least one datum");
  if (data.length > limits.datumsPerRequest) {
    throw invalid("data", `has ${data.length} datums; at most ${limits.datumsPerRequest} fit one request`);
  }
  let tokens = 0;
  let bytes = 0;
  const converted = data.map((datum, index) => {
    const one = toEngineDatum(datum, `data[${index}]`, lossFn, forwardOnly, model, limits);
    tokens += one.tokens.length;
    if (tokens > limits.tokensPerRequest) {
      throw new HttpError(
        413,
        `The batch has more than ${limits.tokensPerRequest} tokens; send it in several requests.`,
      );
    }
    bytes += 4 * (one.tokens.length + 3 * one.targetTokens.length);
    return one;
  });
  return { data: converted, tokens, bytes };
}

function toEngineDatum(
  datum: Datum,
  field: string,
  lossFn: LossName,
  forwardOnly: boolean,
  model: BaseModelInfo,
  limits: Limits,
): EngineDatum {
  const tokens = textTokens(datum.modelInput, `${field}.model_input`, model);
  const rows = tokens.length;
  const inputs = `${field}.loss_fn_inputs`;
  const targets = datum.lossFnInputs["targetTokens"];
  if (targets === undefined) throw invalid(`${inputs}.target_tokens`, "is missing");
  if (targets.dtype !== "int64")
    throw invalid(`${inputs}.target_tokens`, `must be int64, got ${targets.dtype}`);
  const columns = columnsOf(targets, rows, `${inputs}.target_tokens`, limits);
  const targetTokens = toInt32(targets, `${inputs}.target_tokens`);
  checkTokens(targetTokens, `${inputs}.target_tokens`, model);
  const result: EngineDatum = { tokens, targetTokens, targetsPerToken: columns };
  const floats = (key: string, name: string, width: number): Float32Array | undefined => {
    const tensor = datum.lossFnInputs[key];
    if (tensor === undefined) return undefined;
    const path = `${inputs}.${name}`;
    if (columnsOf(tensor, rows, path, limits) !== width) {
      throw invalid(
        path,
        `must have the shape of target_tokens, [${shapeOf(rows, width)}], got [${tensor.shape.join(", ")}]`,
      );
    }
    return toFloat32(tensor, path);
  };
  if (lossFn === "cross_entropy") {
    const weights = floats("weights", "weights", columns);
    if (weights !== undefined) result.weights = weights;
    else if (!forwardOnly)
      throw invalid(`${inputs}.weights`, "is missing: cross_entropy needs a weight for each target token");
    return result;
  }
  if (columns !== 1)
    throw invalid(
      `${inputs}.target_tokens`,
      `must have one target for each token with ${lossFn}, got ${columns}`,
    );
  const logprobs = floats("logprobs", "logprobs", 1);
  const advantages = floats("advantages", "advantages", 1);
  if (logprobs === undefined) throw invalid(`${inputs}.logprobs`, `is missing: ${lossFn} needs it`);
  if (advantages === undefined) throw invalid(`${inputs}.advantages`, `is missing: ${lossFn} needs it`);
  result.logprobs = logprobs;
  result.advantages = advantages;
  const weights = floats("weights", "weights", 1);
  if (weights !== undefined) result.weights = weights;
  if (lossFn === "ppo" || lossFn === "cispo") {
    const low = floats("clipLowThreshold", "clip_low_threshold", 1);
    const high = floats("clipHighThreshold", "clip_high_threshold", 1);
    if (low !== undefined) result.clipLowThreshold = low;
    if (high !== undefined) result.clipHighThreshold = high;
  }
  return result;
}

/** 1 for a plain list, K for a matrix; the shape is checked before anything sparse is expanded. */
function columnsOf(tensor: TensorData, rows: number, field: string, limits: Limits): number {
  const [found, columns = 1, ...rest] = tensor.shape;
  if (found !== rows || rest.length > 0 || columns < 1) {
    throw invalid(
      field,
      `must have ${rows} rows, one for each token of the model input, got the shape [${tensor.shape.join(", ")}]`,
    );
  }
  if (columns > limits.targetsPerToken) {
    throw invalid(
      field,
      `has ${columns} values for each token; at most ${limits.targetsPerToken} are supported`,
    );
  }
  return columns;
}

function shapeOf(rows: number, columns: number): string {
  return columns === 1 ? String(rows) : `${rows}, ${columns}`;
}

function toInt32(tensor: TensorData, field: string): Int32Array {
  const { data } = tensor.toDense();
  if (data instanceof Int32Array) return data;
  throw invalid(field, "has a value that is no 32-bit token id");
}

function toFloat32(tensor: TensorData, field: string): Float32Array {
  const dense = tensor.toDense().data;
  const data = dense instanceof Float32Array ? dense : Float32Array.from(dense);
  for (let index = 0; index < data.length; index += 1) {
    if (!Number.isFinite(data[index]))
      throw invalid(field, `has ${data[index]} at position ${index}; values must be finite`);
  }
  return data;
}

/** The same for equal batches, however they were encoded. */
export function fingerprintBatch(header: readonly unknown[], data: readonly EngineDatum[]): string {
  const hash = createHash("sha256").update(JSON.stringify(header));
  for (const datum of data) {
    hash.update(`|${datum.tokens.length},${datum.targetsPerToken}`);
    for (const key of [
      "tokens",
      "targetTokens",
      "weights",
      "advantages",
      "logprobs",
      "clipLowThreshold",
      "clipHighThreshold",
    ] as const) {
      const values = datum[key];
      if (values === undefined) continue;
      hash.update(key).update(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    }
  }
  return hash.digest("base64");
}

/** The same for equal JSON values, whatever the order of their keys; undefined and null count as absent. */
export function fingerprintJson(value: unknown): string {
  return createHash("sha256")
    .update(JSON.stringify(canonical(value)))
    .digest("base64");
}

function canonical(value: unknown): unknown {
  if (ArrayBuffer.isView(value)) {
    return createHash("sha256")
      .update(new Uint8Array(value.buffer, value.byteOffset, value.byteLength))
      .digest("base64");
  }
  if (Array.isArray(value)) return value.map(canonical);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, item]) => item !== undefined && item !== null)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, item]) => [key, canonical(item)]),
  );
}
