import { ValidationError } from "../../errors.js";
import { checkKeys, checkObject, subfield } from "../fields/check-keys.js";
import { describe } from "../fields/describe.js";
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

const LIKE_KEYS: ReadonlySet<string> = new Set([
  "data",
  "dtype",
  "shape",
  "sparseCrowIndices",
  "sparseColIndices",
] satisfies (keyof TensorDataLike)[]);

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
    const field = options.field ?? "tensor";
    if (value instanceof TensorData) return fromTensor(value, options, field);
    if (typeof value === "object" && value !== null && !Array.isArray(value) && !ArrayBuffer.isView(value)) {
      return fromLike(value as TensorDataLike, options, field);
    }
    const flat = flattenValues(
      value as Exclude<TensorLike, TensorData | TensorDataLike>,
      options.dtype,
      field,
    );
    return new TensorData(options.shape === undefined ? flat : { ...flat, shape: options.shape }, field);
  }

  /** Stores a matrix as CSR where that is smaller; entries equal to `padValue` are left out. */
  static sparse(
    value: TensorLike,
    options: TensorFromOptions & { readonly padValue?: number } = {},
  ): TensorData {
    const { padValue = 0 } = options;
    const field = options.field ?? "tensor";
    checkPadValue(padValue, field);
    const tensor = TensorData.from(value, options);
    if (tensor.isSparse || tensor.shape.length !== 2) return tensor;
    const [rows, columns] = tensor.shape as [number, number];
    const csr = compressRows(tensor.data, rows, columns, padValue);
    if (csr === undefined) return tensor;
    return new TensorData({
      dtype: tensor.dtype,
      data: csr.data,
      shape: tensor.shape,
      sparseCrowIndices: csr.crowIndices,
      sparseColIndices: csr.colIndices,
    });
  }

  get isSparse(): boolean {
    return this.sparseCrowIndices !== undefined;
  }

  /** The same values without CSR; a dense tensor is returned as it is. */
  toDense(options: { readonly padValue?: number } = {}): TensorData {
    const { sparseCrowIndices: crowIndices, sparseColIndices: colIndices } = this;
    if (crowIndices === undefined || colIndices === undefined) return this;
    const padValue = options.padValue ?? 0;
    checkPadValue(padValue, "padValue");
    const [rows, columns] = this.shape as [number, number];
    const data = expandRows({ data: this.data, crowIndices, colIndices }, rows, columns, padValue);
    return new TensorData({ dtype: this.dtype, data, shape: this.shape });
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
  if (dtype !== "float32" && dtype !== "int64") {
    throw new ValidationError(
      subfield(field, "dtype"),
      `${field} must be float32 or int64, got ${describe(dtype)}`,
    );
  }
  const fits =
    dtype === "float32"
      ? data instanceof Float32Array
      : data instanceof Int32Array || data instanceof Float64Array;
  if (!fits) {
    const kinds = dtype === "float32" ? "a Float32Array" : "an Int32Array or Float64Array";
    throw new ValidationError(field, `${field} of dtype ${dtype} must hold ${kinds}, got ${describe(data)}`);
  }
  if (!Array.isArray(shape)) {
    throw new ValidationError(
      subfield(field, "shape"),
      `${field} must have a list of sizes as its shape, got ${describe(shape)}`,
    );
  }
  for (const size of shape) {
    if (!Number.isSafeInteger(size) || size < 0) {
      throw new ValidationError(
        subfield(field, "shape"),
        `${field} has the invalid shape [${shape.join(", ")}]`,
      );
    }
  }
  const { sparseCrowIndices: crowIndices, sparseColIndices: colIndices } = tensor;
  if (crowIndices !== undefined || colIndices !== undefined) {
    if (crowIndices === undefined || colIndices === undefined) {
      throw new ValidationError(
        field,
        `${field} needs both sparseCrowIndices and sparseColIndices, or neither`,
      );
    }
    checkCsr({ data, crowIndices, colIndices }, shape, field);
    return;
  }
  if (elementCount(shape) !== data.length) {
    throw new ValidationError(
      field,
      `${field} has ${data.length} values, which do not fill the shape [${shape.join(", ")}]`,
    );
  }
}

function checkPadValue(padValue: number, field: string): void {
  if (!Number.isSafeInteger(padValue)) {
    throw new ValidationError(field, `padValue must be an integer, got ${describe(padValue)}`);
  }
}

function fromTensor(tensor: TensorData, options: TensorFromOptions, field: string): TensorData {
  if (options.dtype !== undefined && options.dtype !== tensor.dtype) {
    throw new ValidationError(field, `${field} must be ${options.dtype}, got a ${tensor.dtype} tensor`);
  }
  return options.shape === undefined ? tensor : new TensorData({ ...tensor, shape: options.shape }, field);
}

function fromLike(value: TensorDataLike, options: TensorFromOptions, field: string): TensorData {
  checkObject(value, field);
  checkKeys(value, LIKE_KEYS, field);
  const declared = value.dtype ?? undefined;
  if (declared !== undefined && declared !== "float32" && declared !== "int64") {
    const path = subfield(field, "dtype");
    throw new ValidationError(path, `${path} must be "float32" or "int64", got ${describe(declared)}`);
  }
  if (options.dtype !== undefined && declared !== undefined && options.dtype !== declared) {
    throw new ValidationError(field, `${field} must be ${options.dtype}, got a ${declared} tensor`);
  }
  const data = Array.isArray(value.data) || ArrayBuffer.isView(value.data) ? value.data : undefined;
  if (data === undefined) {
    const path = subfield(field, "data");
    throw new ValidationError(path, `${path} must be a list of numbers, got ${describe(value.data)}`);
  }
  const flat = flattenValues(
    data as TypedNumbers | TypedBigInts | NestedNumbers,
    declared ?? options.dtype,
    subfield(field, "data"),
  );
  return new TensorData(
    {
      dtype: flat.dtype,
      data: flat.data,
      shape: options.shape ?? value.shape ?? flat.shape,
      sparseCrowIndices: toIndices(value.sparseCrowIndices, subfield(field, "sparseCrowIndices")),
      sparseColIndices: toIndices(value.sparseColIndices, subfield(field, "sparseColIndices")),
    },
    field,
  );
}

function toIndices(value: ArrayLike<number> | null | undefined, field: string): Int32Array | undefined {
  if (value === undefined || value === null) return undefined;
  const flat = flattenValues(value as TypedNumbers | NestedNumbers, "int64", field);
  if (flat.data instanceof Int32Array) return flat.data;
  throw new ValidationError(field, `${field} has an index beyond 2147483647`);
}
