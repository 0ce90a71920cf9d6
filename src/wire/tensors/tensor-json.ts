import { ValidationError } from "../../errors.js";
import type { Field } from "../fields/fields.js";
import { convertKeys, snakeToCamel, toWireJson } from "../json-keys.js";
import { isRecord } from "../reading.js";
import { type TensorData, type TensorDataLike, type TensorLike, tensorOf } from "./tensor-data.js";

/** A tensor of a request: JSON knows neither NaN nor infinity, which in answers become null. */
export function tensorToJson(tensor: TensorData, path = "tensor"): unknown {
  const wrong = tensor.data.findIndex((value) => !Number.isFinite(value));
  if (wrong < 0) return toWireJson(tensor);
  const place = `${path}[${wrong}]`;
  throw new ValidationError(
    place,
    `${place} is ${tensor.data[wrong]}, which this server's JSON cannot carry`,
  );
}

/** Reads a tensor as Python writes it, or a bare list of numbers; null stands for a value JSON cannot carry. */
export function tensorFromJson(json: unknown, field: string): TensorData {
  if (!isRecord(json)) return tensorOf(nullsToNaN(json) as TensorLike, { dtype: "float32", field });
  const { data, dtype, shape, sparseCrowIndices, sparseColIndices } = convertKeys(json, "camel");
  const isFloat = dtype === undefined || (typeof dtype === "string" && dtype.includes("float"));
  const isInteger = typeof dtype === "string" && dtype.includes("int");
  const like = {
    data: isFloat ? nullsToNaN(data) : data,
    // bfloat16, int32 and the like are widened, as in protobuf.
    dtype: isFloat ? "float32" : isInteger ? "int64" : dtype,
    shape,
    sparseCrowIndices,
    sparseColIndices,
  };
  return tensorOf(like as TensorDataLike, { field });
}

/** A tensor as JSON carries it. */
export function tensorField(dtype: TensorData["dtype"]): Field<TensorData> {
  return {
    presence: "required",
    check: (given, path) => tensorOf(given as TensorLike, { dtype, field: path }),
    read: tensorFromJson,
    write: tensorToJson,
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
