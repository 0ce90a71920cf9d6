import { createHash } from "node:crypto";
import { checkKeys } from "../../../wire/fields/check-keys.js";
import { snakeToCamel } from "../../../wire/json-keys.js";
import { elementCount } from "../../../wire/tensors/element-count.js";
import type { TensorData } from "../../../wire/tensors/tensor-data.js";
import type { CustomLossInput } from "../../../wire/training/custom-loss-graph.js";
import type { Datum } from "../../../wire/training/datum.js";
import {
  checkLossFnConfig,
  LOSS_INPUT_DTYPES,
  LOSSES,
  type LossInputName,
  PUBLISHED_LOSSES,
} from "../../../wire/training/losses.js";
import type { BaseModelInfo, CustomInput, CustomLoss, EngineDatum, LossName } from "../../engine/engine.js";
import { HttpError, invalid } from "../http/http-error.js";
import type { Limits } from "../http/limits.js";
import { checkTokens, textTokens } from "../sessions/base-models.js";

/** The losses of this server that have a name of their own. */
const NAMED_LOSSES = [...PUBLISHED_LOSSES, "gspo"] as const;

/** The loss of a pass: its name, its settings, which are numbers, and its graph if it is a stored one. */
export interface PassLoss {
  readonly lossFn: LossName;
  readonly lossFnConfig: Readonly<Record<string, number>>;
  readonly customLoss?: CustomLoss | undefined;
}

/** The loss of a pass, which this server must have. */
export function checkLoss(
  lossFn: string,
  config: Readonly<Record<string, number | string>> | undefined,
  stored: ReadonlyMap<string, CustomLoss>,
): PassLoss {
  if (lossFn === "custom") return { lossFn, lossFnConfig: {}, customLoss: storedLoss(config, stored) };
  const known = NAMED_LOSSES.find((name) => name === lossFn);
  if (known === undefined)
    throw invalid(
      "lossFn",
      `must be one of ${NAMED_LOSSES.join(", ")} or custom, got ${JSON.stringify(lossFn)}`,
    );
  const lossFnConfig: Record<string, number> = {};
  for (const [key, value] of Object.entries(checkLossFnConfig(known, config, "lossFnConfig") ?? {})) {
    if (typeof value !== "number")
      throw invalid(`lossFnConfig.${key}`, `must be a finite number, got ${JSON.stringify(value)}`);
    checkKeys({ [key]: value }, new Set(Object.keys(LOSSES[known].config)), "lossFnConfig");
    lossFnConfig[key] = value;
  }
  return { lossFn: known, lossFnConfig };
}

function storedLoss(
  config: Readonly<Record<string, number | string>> = {},
  stored: ReadonlyMap<string, CustomLoss>,
): CustomLoss {
  const { lossId } = config;
  checkKeys(config, new Set(["lossId"]), "lossFnConfig");
  if (typeof lossId !== "string")
    throw invalid(
      "lossFnConfig.lossId",
      "is missing: custom names a loss that create_custom_loss has stored",
    );
  const found = stored.get(lossId);
  if (found !== undefined) return found;
  throw invalid("lossFnConfig.lossId", `${JSON.stringify(lossId)} is not a custom loss of this session`);
}

/** A batch in the engine's form, and what it weighs. */
export interface TrainingBatch {
  readonly data: EngineDatum[];
  readonly tokens: number;
  readonly bytes: number;
}

/** The loss, model and limits that the data of a pass are checked against. */
export interface PassRules {
  readonly loss: PassLoss;
  readonly model: BaseModelInfo;
  readonly limits: Limits;
}

/** Checks a whole batch and brings it into the engine's form. */
export function toEngineBatch(data: readonly Datum[], rules: PassRules): TrainingBatch {
  const { limits } = rules;
  if (data.length === 0) throw invalid("data", "must hold at least one datum");
  if (data.length > limits.datumsPerRequest) {
    throw invalid("data", `has ${data.length} datums; at most ${limits.datumsPerRequest} fit one request`);
  }
  let tokens = 0;
  let bytes = 0;
  let targetsLeft = limits.targetsPerRequest;
  const converted = data.map((datum, index) => {
    const one = toEngineDatum(datum, `data[${index}]`, rules, targetsLeft);
    targetsLeft -= one.targetTokens.length;
    tokens += one.tokens.length;
    if (tokens > limits.tokensPerRequest) {
      throw new HttpError(
        413,
        `The batch has more than ${limits.tokensPerRequest} tokens; send it in several requests.`,
      );
    }
    bytes += 4 * (one.tokens.length + 3 * one.targetTokens.length);
    for (const { values } of one.customInputs ?? []) bytes += values.byteLength;
    return one;
  });
  return { data: converted, tokens, bytes };
}

function toEngineDatum(datum: Datum, field: string, rules: PassRules, targetsLeft: number): EngineDatum {
  const { loss, model, limits } = rules;
  const { lossFn, customLoss } = loss;
  // A stored loss reads its own inputs, and data may have more for other uses.
  if (customLoss === undefined)
    checkKeys(datum.lossFnInputs, new Set(Object.keys(LOSSES[lossFn].inputs)), `${field}.lossFnInputs`);
  const tokens = textTokens(datum.modelInput, `${field}.modelInput`, model);
  const input = (name: LossInputName, isRequired: boolean) => {
    const path = `${field}.lossFnInputs.${name}`;
    const tensor = datum.lossFnInputs[name];
    if (tensor === undefined && isRequired) throw invalid(path, `is missing: ${lossFn} needs it`);
    // Integers are taken for numbers, but not the other way round.
    if (tensor !== undefined && LOSS_INPUT_DTYPES[name] === "int64" && tensor.dtype !== "int64")
      throw invalid(path, `must be int64, got ${tensor.dtype}`);
    return { path, tensor, columns: tensor && columnsOf(tensor, tokens.length, path, limits) };
  };
  const targets = input("targetTokens", true);
  const columns = targets.columns!;
  if (columns !== 1 && lossFn !== "cross_entropy" && lossFn !== "custom")
    throw invalid(targets.path, `must have one target for each token with ${lossFn}, got ${columns}`);
  // Before anything sparse is written out: a few bytes stand for a row of many zeros.
  if (tokens.length * columns > targetsLeft) {
    throw new HttpError(
      413,
      `The batch has more than ${limits.targetsPerRequest} targets; send it in several requests.`,
    );
  }
  const targetTokens = toInt32(targets.tensor!, targets.path);
  checkTokens(targetTokens, targets.path, model);
  const result: EngineDatum = { tokens, targetTokens, targetsPerToken: columns };
  if (customLoss !== undefined)
    return { ...result, customInputs: customInputsOf(datum, field, customLoss, targetsLeft) };
  for (const [key, presence] of Object.entries(LOSSES[lossFn].inputs)) {
    if (key === "targetTokens") continue;
    const name = key as Exclude<LossInputName, "targetTokens">;
    const { path, tensor, columns: width } = input(name, presence === "required");
    if (tensor === undefined) continue;
    if (width !== columns) {
      const shape = columns === 1 ? tokens.length : `${tokens.length}, ${columns}`;
      const got = tensor.shape.join(", ");
      throw invalid(path, `must have the shape of targetTokens, [${shape}], got [${got}]`);
    }
    result[name] = toFloat32(tensor, path);
  }
  return result;
}

/** The values of a stored loss's inputs after the logprobs, each of the rank that it was declared with. */
function customInputsOf(
  datum: Datum,
  field: string,
  { inputs }: CustomLoss,
  valuesLeft: number,
): CustomInput[] {
  const [logprobs, ...others] = inputs;
  const tensorOf = (name: string, { rank }: CustomLossInput) => {
    const path = `${field}.lossFnInputs.${name}`;
    const tensor = datum.lossFnInputs[name];
    if (tensor === undefined) throw invalid(path, "is missing: the custom loss reads it");
    if (tensor.shape.length !== rank)
      throw invalid(
        path,
        `must have rank ${rank}, as the custom loss declares, got the shape [${tensor.shape.join(", ")}]`,
      );
    return tensor;
  };
  // The logprobs have the shape of the targets.
  tensorOf("targetTokens", logprobs!);
  let left = valuesLeft;
  return others.map((input) => {
    const tensor = tensorOf(snakeToCamel(input.name), input);
    left -= elementCount(tensor.shape);
    if (left < 0)
      throw new HttpError(413, "The batch has more values than targets may be; send it in several requests.");
    const { data, shape, dtype } = tensor.toDense();
    return { values: Float64Array.from(data as ArrayLike<number>), shape, dtype };
  });
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

function toInt32(tensor: TensorData, field: string): Int32Array {
  const { data } = tensor.toDense();
  if (data instanceof Int32Array) return data;
  throw invalid(field, "has a value of more than 32 bits, which cannot be a token id");
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

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView) =>
  new Uint8Array(buffer, byteOffset, byteLength);

/** A fingerprint that is equal for equal batches, however they were encoded. */
export function fingerprintBatch(header: readonly unknown[], data: readonly EngineDatum[]): string {
  const hash = createHash("sha256").update(JSON.stringify(header));
  for (const datum of data) {
    hash.update(`|${datum.tokens.length},${datum.targetsPerToken}`);
    for (const [key, values] of Object.entries(datum))
      if (ArrayBuffer.isView(values)) hash.update(key).update(bytesOf(values));
    for (const { values, shape, dtype } of datum.customInputs ?? [])
      hash.update(`${dtype}[${shape}]`).update(bytesOf(values));
  }
  return hash.digest("base64");
}
