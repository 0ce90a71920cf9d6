import { ValidationError } from "../../errors.js";
import * as f from "../fields/index.js";
import { elementCount } from "./element-count.js";
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

/** Anything that a tensor can be made from. */
export type TensorLike = TensorData | TensorDataLike | TypedNumbers | TypedBigInts | NestedNumbers | number;

/** Options of `TensorData.from`: dtype, shape, and the name that errors use. */
export interface TensorFromOptions {
  /** Without it floating-point arrays become float32, integer arrays int64, and lists what their numbers are. */
  readonly dtype?: TensorDtype | undefined;
  readonly shape?: readonly number[] | undefined;
  /** The name errors give the value. */
  readonly field?: string | undefined;
}

const FROM_FIELDS = {
  dtype: f.optional(f.oneOf("float32", "int64")),
  shape: f.optional(f.list(f.nonNegativeInteger)),
  field: f.withDefault(f.anyText, "tensor"),
} satisfies f.FieldsOf<TensorFromOptions>;
const padValue = f.withDefault(f.integer, 0);
const FROM_OPTIONS = f.optionTable(FROM_FIELDS);
const SPARSE_OPTIONS = f.optionTable({ ...FROM_FIELDS, padValue });
const DENSE_OPTIONS = f.optionTable({ padValue });

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
    return tensorOf(value, FROM_OPTIONS.check(options, "TensorData.from"));
  }

  /** Stores a matrix as CSR where that is smaller; entries equal to `padValue` are left out. */
  static sparse(
    value: TensorLike,
    options: TensorFromOptions & { readonly padValue?: number } = {},
  ): TensorData {
    return sparseTensorOf(value, SPARSE_OPTIONS.check(options, "TensorData.sparse"));
  }

  get isSparse(): boolean {
    return this.sparseCrowIndices !== undefined;
  }

  /** Converts a CSR tensor to a dense one; a dense tensor is returned as it is. */
  toDense(options: { readonly padValue?: number } = {}): TensorData {
    const { padValue } = DENSE_OPTIONS.check(options, "toDense");
    if (!this.isSparse) return this;
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

type CheckedOptions = TensorFromOptions & { readonly field: string };

/** `TensorData.from` with options that are known to be right: a batch has hundreds of tensors. */
export function tensorOf(value: TensorLike, { dtype, shape, field }: CheckedOptions): TensorData {
  const tensor = value instanceof TensorData ? value : convert(value, dtype, field);
  if (dtype !== undefined && dtype !== tensor.dtype)
    throw new ValidationError(field, `${field} must be ${dtype}, got a ${tensor.dtype} tensor`);
  if (tensor instanceof TensorData && shape === undefined) return tensor;
  return new TensorData({ ...tensor, shape: shape ?? tensor.shape }, field);
}

/** `TensorData.sparse` with options that are known to be right. */
export function sparseTensorOf(
  value: TensorLike,
  { padValue = 0, ...options }: CheckedOptions & { readonly padValue?: number },
): TensorData {
  const tensor = tensorOf(value, options);
  if (tensor.isSparse || tensor.shape.length !== 2) return tensor;
  const sparse = compressRows(tensor, padValue);
  return sparse === undefined ? tensor : new TensorData(sparse);
}

function checkParts(tensor: TensorData, field: string): void {
  const { dtype, data, shape } = tensor;
  const fail = (path: string, message: string): never => {
    throw new ValidationError(path, `${field} ${message}`);
  };
  if (dtype !== "float32" && dtype !== "int64")
    fail(f.subfield(field, "dtype"), `must be float32 or int64, got ${f.describe(dtype)}`);
  if (dtype === "float32" && !(data instanceof Float32Array))
    fail(field, `of dtype float32 must hold a Float32Array, got ${f.describe(data)}`);
  if (dtype === "int64" && !(data instanceof Int32Array || data instanceof Float64Array))
    fail(field, `of dtype int64 must hold an Int32Array or Float64Array, got ${f.describe(data)}`);
  const shapePath = f.subfield(field, "shape");
  if (!Array.isArray(shape))
    fail(shapePath, `must have a list of sizes as its shape, got ${f.describe(shape)}`);
  if (!shape.every((size) => Number.isSafeInteger(size) && size >= 0))
    fail(shapePath, `has the invalid shape [${shape.join(", ")}]`);
  if (tensor.sparseCrowIndices !== undefined || tensor.sparseColIndices !== undefined)
    checkCsr(tensor, field);
  else if (elementCount(shape) !== data.length)
    fail(field, `has ${data.length} values, which do not fill the shape [${shape.join(", ")}]`);
}

const indices = f.customField((given, path): Int32Array => {
  const { data } = flattenValues(given, "int64", path);
  if (data instanceof Int32Array) return data;
  throw new ValidationError(path, `${path} has an index beyond 2147483647`);
});

const tensorLike = f.message({
  data: f.customField((given, path): unknown => {
    if (Array.isArray(given) || ArrayBuffer.isView(given)) return given;
    throw f.wrongValue(path, "a list of numbers", given);
  }),
  dtype: f.optional(f.nullable(f.oneOf("float32", "int64"))),
  shape: f.optional(f.opaque as f.Field<readonly number[] | null>),
  sparseCrowIndices: f.optional(f.nullable(indices)),
  sparseColIndices: f.optional(f.nullable(indices)),
});

function convert(
  value: Exclude<TensorLike, TensorData>,
  dtype: TensorDtype | undefined,
  field: string,
): TensorParts {
  if (typeof value !== "object" || value === null || Array.isArray(value) || ArrayBuffer.isView(value))
    return flattenValues(value, dtype, field);
  const like = tensorLike.check(value, field);
  const flat = flattenValues(like.data, like.dtype ?? dtype, f.subfield(field, "data"));
  return {
    ...flat,
    shape: like.shape ?? flat.shape,
    sparseCrowIndices: like.sparseCrowIndices ?? undefined,
    sparseColIndices: like.sparseColIndices ?? undefined,
  };
}
