import { create } from "@bufbuild/protobuf";
import { TinkerError } from "../../errors.js";
import { DType, type Tensor, TensorSchema } from "../gen/tinker_public_pb.js";
import {
  float32sInPlace,
  packInt64s,
  packTensorValues,
  unpackBfloat16s,
  unpackFloat32s,
  unpackInt32s,
  unpackInt64s,
} from "./packed.js";
import { TensorData } from "./tensor-data.js";
import type { TensorDtype, TensorValues } from "./tensor-values.js";

/** Numbers of a dtype on the wire, widened to the two kinds a TensorData knows; `inPlace` uses the message up. */
export function unpackValues(
  bytes: Uint8Array,
  dtype: DType,
  inPlace = false,
): { dtype: TensorDtype; data: TensorValues } {
  switch (dtype) {
    case DType.DTYPE_FLOAT32:
      return { dtype: "float32", data: inPlace ? float32sInPlace(bytes) : unpackFloat32s(bytes) };
    case DType.DTYPE_BFLOAT16:
      return { dtype: "float32", data: unpackBfloat16s(bytes) };
    case DType.DTYPE_INT64:
      return { dtype: "int64", data: unpackInt64s(bytes) };
    case DType.DTYPE_INT32:
      return { dtype: "int64", data: unpackInt32s(bytes) };
    default:
      throw new TinkerError(`unknown tensor dtype ${dtype}`);
  }
}

export function bytesPerElement(dtype: DType): number {
  if (dtype === DType.DTYPE_INT64) return 8;
  return dtype === DType.DTYPE_BFLOAT16 ? 2 : 4;
}

export function protoDtype(dtype: TensorDtype): DType {
  return dtype === "float32" ? DType.DTYPE_FLOAT32 : DType.DTYPE_INT64;
}

/** A tensor as a message. */
export function tensorToProto(tensor: TensorData): Tensor {
  const { data, sparseCrowIndices: crow, sparseColIndices: col } = tensor;
  const values = packTensorValues(data);
  const isDense = crow === undefined || col === undefined;
  return create(TensorSchema, {
    dtype: protoDtype(tensor.dtype),
    shape: tensor.shape.map(BigInt),
    layout: isDense
      ? { case: "dense", value: values }
      : { case: "sparseCsr", value: { values, crowIndices: packInt64s(crow), colIndices: packInt64s(col) } },
  });
}

/** A tensor of a message; `field` is the name errors give it. */
export function tensorFromProto(tensor: Tensor, field: string): TensorData {
  const { layout, dtype } = tensor;
  const shape = tensor.shape.map(toSafeInteger);
  if (layout.case === "sparseCsr") {
    const sparseCrowIndices = toIndices(layout.value.crowIndices);
    const sparseColIndices = toIndices(layout.value.colIndices);
    const values = unpackValues(layout.value.values, dtype);
    return new TensorData({ ...values, shape, sparseCrowIndices, sparseColIndices }, field);
  }
  const values = unpackValues(layout.value ?? new Uint8Array(0), dtype);
  // A writer that leaves the shape out means a plain list, but for the one value of a scalar.
  const isList = shape.length === 0 && values.data.length !== 1;
  return new TensorData({ ...values, shape: isList ? [values.data.length] : shape }, field);
}

/** An int64 as a number; one that no number holds is an error. */
export function toSafeInteger(value: bigint): number {
  const integer = Number(value);
  if (!Number.isSafeInteger(integer)) throw new TinkerError(`int64 value ${value} is beyond 2^53`);
  return integer;
}

function toIndices(bytes: Uint8Array): Int32Array {
  const indices = unpackInt64s(bytes);
  if (indices instanceof Int32Array) return indices;
  throw new TinkerError("a sparse tensor has an index beyond 2147483647");
}
