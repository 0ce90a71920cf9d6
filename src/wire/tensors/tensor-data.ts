import { ValidationError } from "../../errors.js";
import { subfield, wrongValue } from "../fields/check-keys.js";
import { describe } from "../fields/describe.js";
import { customField, type Field, message, nullable, oneOf, opaque, optional } from "../fields/fields.js";
import { checkCsr, compressRows, expandRows } from "./sparse-csr.js";
import {
  flattenValues,
  type NestedNumbers,
  type TensorDtype,
  type TensorValues,
  type TypedBigInts,
  type TypedNumbers,
} from "./tensor-values.js";

/** The parts of a tensor, as they may be given. */
export interface TensorDataLike {
  readonly data: ArrayLike<number> | TypedBigInts;
  readonly dtype?: TensorDtype | undefined;
  readonly shape?: readonly number[] | null | undefined;
  readonly sparseCrowIndices?: ArrayLike<number> | null | undefined;
  readonly sparseColIndices?: ArrayLike<number> | null | undefined;
}

/** Whatever a tensor can be made from. */
export type TensorLike = TensorData | TensorDataLike | TypedNumbers | TypedBigInts | NestedNumbers | number;

/** What a tensor is to be made like. */
export interface TensorFromOptions {
  /** Without it floating-point arrays become float32, integer arrays int64, and lists what their numbers are. */
  readonly dtype?: TensorDtype | undefined;
  readonly shape?: readonly number[] | undefined;
  /** The name errors give the value. */
  readonly field?: string | undefined;
}

/** The parts of a tensor, ready to be used. */
export interface TensorParts {
  readonly dtype: TensorDtype;
  readonly data: TensorValues;
  readonly shape: readonly number[];
  readonly sparseCrowIndices?: Int32Array | undefined;
  readonly sparseColIndices?: Int32Array | undefined;
}

/** A number, or lists of numbers as deep as the tensor's shape. */
export type NestedArray = number | NestedArray[];

/** Numbers with a shape, dense or sparse (CSR), over one typed array. Arrays of the right kind are not copied. */
export class TensorData {
  readonly dtype: TensorDtype;
  /** All values row by row; of a sparse tensor the stored ones only. */
  readonly data: TensorValues;
  readonly shape: readonly number[];
  readonly sparseCrowIndices: Int32Array | undefined;
  readonly sparseColIndices: Int32Array | undefined;

  constructor(parts: TensorParts, field = "tensor") {
    this.dtype = parts.dtype;
    this.data = parts.data;
    this.shape = parts.shape;
    this.sparseCrowIndices = parts.sparseCrowIndices;
    this.sparseColIndices = parts.sparseColIndices;
    checkParts(this, field);
  }

  static from(value: TensorLike, options: TensorFromOptions = {}): TensorData {
    const { dtype, shape, field = "tensor" } = options;
    const tensor = value instanceof TensorData ? value : convert(value, dtype, field);
    if (dtype !== undefined && dtype !== tensor.dtype)
      throw new ValidationError(field, `${field} must be ${dtype}, got a ${tensor.dtype} tensor`);
    if (tensor instanceof TensorData && shape === undefined) return tensor;
    return new TensorData({ ...tensor, shape: shape ?? tensor.shape }, field);
  }

  /** Stores a matrix as CSR where that is smaller; entries equal to `padValue` are left out. */
  static sparse(
    value: TensorLike,
    options: TensorFromOptions & { readonly padValue?: number } = {},
  ): TensorData {
    const { padValue = 0, field = "tensor" } = options;
    checkPadValue(padValue, field);
    const tensor = TensorData.from(value, options);
    if (tensor.isSparse || tensor.shape.length !== 2) return tensor;
    const sparse = compressRows(tensor, padValue);
    return sparse === undefined ? tensor : new TensorData(sparse);
  }

  get isSparse(): boolean {
    return this.sparseCrowIndices !== undefined;
  }

  /** The same values without CSR; a dense tensor is returned as it is. */
  toDense(options: { readonly padValue?: number } = {}): TensorData {
    if (!this.isSparse) return this;
    const { padValue = 0 } = options;
    checkPadValue(padValue, "padValue");
    return new TensorData({ dtype: this.dtype, data: expandRows(this, padValue), shape: this.shape });
  }

  /** All values, dense, row by row. */
  toArray(): number[] {
    return Array.from(this.toDense().data);
  }

  /** All values as lists in lists, following the shape. */
  toNested(options: { readonly padValue?: number } = {}): NestedArray {
    const { data } = this.toDense(options);
    let offset = 0;
    const build = (depth: number): NestedArray => {
      if (depth === this.shape.length) return data[offset++]!;
      return Array.from({ length: this.shape[depth]! }, () => build(depth + 1));
    };
    return build(0);
  }
}

export function elementCount(shape: readonly number[]): number {
  let count = 1;
  for (const size of shape) count *= size;
  return count;
}

function checkParts(tensor: TensorData, field: string): void {
  const { dtype, data, shape } = tensor;
  const fail = (path: string, message: string): never => {
    throw new ValidationError(path, `${field} ${message}`);
  };
  if (dtype !== "float32" && dtype !== "int64")
    fail(subfield(field, "dtype"), `must be float32 or int64, got ${describe(dtype)}`);
  if (dtype === "float32" && !(data instanceof Float32Array))
    fail(field, `of dtype float32 must hold a Float32Array, got ${describe(data)}`);
  if (dtype === "int64" && !(data instanceof Int32Array || data instanceof Float64Array))
    fail(field, `of dtype int64 must hold an Int32Array or Float64Array, got ${describe(data)}`);
  const shapePath = subfield(field, "shape");
  if (!Array.isArray(shape))
    fail(shapePath, `must have a list of sizes as its shape, got ${describe(shape)}`);
  if (!shape.every((size) => Number.isSafeInteger(size) && size >= 0))
    fail(shapePath, `has the invalid shape [${shape.join(", ")}]`);
  if (tensor.sparseCrowIndices !== undefined || tensor.sparseColIndices !== undefined)
    checkCsr(tensor, field);
  else if (elementCount(shape) !== data.length)
    fail(field, `has ${data.length} values, which do not fill the shape [${shape.join(", ")}]`);
}

function checkPadValue(padValue: number, field: string): void {
  if (!Number.isSafeInteger(padValue))
    throw new ValidationError(field, `padValue must be an integer, got ${describe(padValue)}`);
}

const indices = customField((given, path): Int32Array => {
  const { data } = flattenValues(given, "int64", path);
  if (data instanceof Int32Array) return data;
  throw new ValidationError(path, `${path} has an index beyond 2147483647`);
});

const tensorLike = message({
  data: customField((given, path): unknown => {
    if (Array.isArray(given) || ArrayBuffer.isView(given)) return given;
    throw wrongValue(path, "a list of numbers", given);
  }),
  dtype: optional(nullable(oneOf("float32", "int64"))),
  shape: optional(opaque as Field<readonly number[] | null>),
  sparseCrowIndices: optional(nullable(indices)),
  sparseColIndices: optional(nullable(indices)),
});

function convert(
  value: Exclude<TensorLike, TensorData>,
  dtype: TensorDtype | undefined,
  field: string,
): TensorParts {
  if (typeof value !== "object" || value === null || Array.isArray(value) || ArrayBuffer.isView(value))
    return flattenValues(value, dtype, field);
  const like = tensorLike.check(value, field);
  const flat = flattenValues(like.data, like.dtype ?? dtype, subfield(field, "data"));
  return {
    ...flat,
    shape: like.shape ?? flat.shape,
    sparseCrowIndices: like.sparseCrowIndices ?? undefined,
    sparseColIndices: like.sparseColIndices ?? undefined,
  };
}
