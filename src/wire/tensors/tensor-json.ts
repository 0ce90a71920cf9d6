import { ValidationError } from "../../errors.js";
import type { Field } from "../fields/fields.js";
import { snakeToCamel, toNumbers } from "../json-keys.js";
import { isRecord } from "../reading.js";
import { TensorData, type TensorDataLike, type TensorLike } from "./tensor-data.js";

export interface TensorJson {
  readonly data: (number | null)[];
  readonly dtype: TensorData["dtype"];
  readonly shape: readonly number[];
  readonly sparse_crow_indices?: number[];
  readonly sparse_col_indices?: number[];
}

/** JSON knows neither NaN nor infinity: in a request they are an error, in an answer they become null. */
export function tensorToJson(tensor: TensorData, nonFinite: "refuse" | "null", field = "tensor"): TensorJson {
  const { dtype, shape, sparseCrowIndices, sparseColIndices } = tensor;
  const data: (number | null)[] = toNumbers(tensor.data);
  for (let index = 0; dtype === "float32" && index < data.length; index++) {
    if (Number.isFinite(data[index])) continue;
    if (nonFinite === "null") {
      data[index] = null;
      continue;
    }
    const path = `${field}[${index}]`;
    throw new ValidationError(path, `${path} is ${data[index]}, which this server's JSON cannot carry`);
  }
  return {
    data,
    dtype,
    shape,
    ...(sparseCrowIndices && { sparse_crow_indices: Array.from(sparseCrowIndices) }),
    ...(sparseColIndices && { sparse_col_indices: Array.from(sparseColIndices) }),
  };
}

/** Reads a tensor as Python writes it, or a bare list of numbers; null stands for a value JSON cannot carry. */
export function tensorFromJson(json: unknown, field: string): TensorData {
  if (!isRecord(json)) return TensorData.from(nullsToNaN(json) as TensorLike, { dtype: "float32", field });
  const {
    data,
    dtype,
    shape,
    sparse_crow_indices: crow,
    sparse_col_indices: col,
  } = json as Record<string, unknown>;
  const isFloat = dtype === undefined || (typeof dtype === "string" && dtype.includes("float"));
  const isInteger = typeof dtype === "string" && dtype.includes("int");
  const like = {
    data: isFloat ? nullsToNaN(data) : data,
    // bfloat16, int32 and the like are widened, as in protobuf.
    dtype: isFloat ? "float32" : isInteger ? "int64" : dtype,
    shape,
    sparseCrowIndices: crow,
    sparseColIndices: col,
  };
  return TensorData.from(like as TensorDataLike, { field });
}

/** A tensor as JSON carries it. */
export function tensorField(dtype: TensorData["dtype"]): Field<TensorData> {
  return {
    presence: "required",
    check: (given, path) => TensorData.from(given as TensorLike, { dtype, field: path }),
    read: tensorFromJson,
    write: (tensor, path) => tensorToJson(tensor, "refuse", path),
  };
}

/** Tensors by field name, names converted; null fields are left out. */
export function tensorsFromJson(json: unknown, field: string): Record<string, TensorData> {
  const tensors: Record<string, TensorData> = {};
  for (const [key, value] of Object.entries(isRecord(json) ? json : {})) {
    if (value === null || value === undefined) continue;
    const name = snakeToCamel(key);
    tensors[name] = tensorFromJson(value, `${field}.${name}`);
  }
  return tensors;
}

function nullsToNaN(values: unknown): unknown {
  if (!Array.isArray(values) || !values.includes(null)) return values;
  return values.map((value) => value ?? Number.NaN);
}
