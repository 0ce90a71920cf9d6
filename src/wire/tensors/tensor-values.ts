import { ValidationError } from "../../errors.js";
import { describe } from "../fields/describe.js";

/** The two kinds of numbers that travel. */
export type TensorDtype = "float32" | "int64";

/** float32 is a Float32Array; int64 an Int32Array where every value fits, else a Float64Array of safe integers. */
export type TensorValues = Float32Array | Int32Array | Float64Array;

/** Typed arrays of numbers. */
export type TypedNumbers =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | Uint8Array
  | Uint8ClampedArray
  | Uint16Array
  | Uint32Array;

/** Typed arrays of 64-bit integers. */
export type TypedBigInts = BigInt64Array | BigUint64Array;

/** Lists of numbers in lists, all of one length at each level. */
export type NestedNumbers = readonly (number | bigint | NestedNumbers | TypedNumbers | TypedBigInts)[];

export interface FlatValues {
  readonly dtype: TensorDtype;
  readonly data: TensorValues;
  readonly shape: readonly number[];
}

/** Flattens numbers in any form into one typed array; without `dtype` integers become int64 and the rest float32. */
export function flattenValues(
  value: number | bigint | TypedNumbers | TypedBigInts | NestedNumbers,
  dtype: TensorDtype | undefined,
  field: string,
): FlatValues {
  if (typeof value === "number" || typeof value === "bigint") {
    return { ...flattenList([value], dtype, field), shape: [] };
  }
  if (ArrayBuffer.isView(value)) return flattenTyped(value as TypedNumbers | TypedBigInts, dtype, field);
  if (!Array.isArray(value)) {
    throw new ValidationError(
      field,
      `${field} must be numbers, a typed array or a TensorData, got ${describe(value)}`,
    );
  }
  if (typeof value[0] === "object" && value[0] !== null) return flattenNested(value, dtype, field);
  return flattenList(value as readonly (number | bigint)[], dtype, field);
}

function flattenTyped(
  value: TypedNumbers | TypedBigInts,
  dtype: TensorDtype | undefined,
  field: string,
): FlatValues {
  if (!isTypedNumbers(value)) {
    throw new ValidationError(field, `${field} must be a numeric typed array, got ${describe(value)}`);
  }
  const shape = [value.length];
  const wanted = dtype ?? (isFloatArray(value) ? "float32" : "int64");
  if (wanted === "float32") {
    if (value instanceof Float32Array) return { dtype: wanted, data: value, shape };
    if (value instanceof BigInt64Array || value instanceof BigUint64Array) {
      return { dtype: wanted, data: Float32Array.from(value, Number), shape };
    }
    return { dtype: wanted, data: new Float32Array(value), shape };
  }
  if (value instanceof Int32Array) return { dtype: wanted, data: value, shape };
  return { dtype: wanted, data: toIntegers(value, field), shape };
}

/** Also true for kinds that this file need not name, such as Float16Array where a runtime has it. */
function isTypedNumbers(value: ArrayBufferView): value is TypedNumbers | TypedBigInts {
  return !(value instanceof DataView) && "length" in value;
}

function isFloatArray(value: ArrayBufferView): boolean {
  return Object.prototype.toString.call(value).startsWith("[object Float");
}

function flattenList(
  value: readonly (number | bigint)[],
  dtype: TensorDtype | undefined,
  field: string,
): FlatValues {
  const shape = [value.length];
  const wanted = dtype ?? (value.length > 0 && value.every(isInteger) ? "int64" : "float32");
  if (wanted === "int64") return { dtype: wanted, data: toIntegers(value, field), shape };
  const data = new Float32Array(value.length);
  fillFloats(data, 0, value, field);
  return { dtype: wanted, data, shape };
}

function isInteger(value: number | bigint): boolean {
  return typeof value === "bigint" || Number.isInteger(value);
}

function fillFloats(
  into: Float32Array,
  offset: number,
  values: ArrayLike<number | bigint>,
  field: string,
): void {
  for (let index = 0; index < values.length; index++) {
    const value = values[index];
    if (typeof value === "number") into[offset + index] = value;
    else if (typeof value === "bigint") into[offset + index] = Number(value);
    else throw notANumber(field, index, value);
  }
}

/** Int32Array as long as every value fits; the first that does not moves all of them to a Float64Array. */
function toIntegers(values: ArrayLike<number | bigint>, field: string): Int32Array | Float64Array {
  const narrow = new Int32Array(values.length);
  for (let index = 0; index < values.length; index++) {
    const value = values[index]!;
    const integer = typeof value === "bigint" ? Number(value) : value;
    if ((integer | 0) !== integer) return toWideIntegers(values, field);
    narrow[index] = integer;
  }
  return narrow;
}

function toWideIntegers(values: ArrayLike<number | bigint>, field: string): Float64Array {
  const wide = new Float64Array(values.length);
  for (let index = 0; index < values.length; index++) {
    const value = values[index];
    const integer = typeof value === "bigint" ? Number(value) : value;
    if (!Number.isSafeInteger(integer)) {
      const path = `${field}[${index}]`;
      throw new ValidationError(
        path,
        `${path} must be an integer that a number holds exactly, got ${describe(value)}`,
      );
    }
    wide[index] = integer as number;
  }
  return wide;
}

function notANumber(field: string, index: number, value: unknown): ValidationError {
  const path = `${field}[${index}]`;
  return new ValidationError(path, `${path} must be a number, got ${describe(value)}`);
}

function flattenNested(value: NestedNumbers, dtype: TensorDtype | undefined, field: string): FlatValues {
  const shape: number[] = [];
  let level: NestedNumbers[number] = value as NestedNumbers;
  while (typeof level === "object" && level !== null) {
    shape.push(level.length);
    if (ArrayBuffer.isView(level) || level.length === 0) break;
    level = level[0]!;
  }
  const rows: ArrayLike<number | bigint>[] = [];
  collectRows(value, shape, 0, field, rows);

  const width = shape.at(-1)!;
  const wanted = dtype ?? (rows.length > 0 && width > 0 && rows.every(isIntegerRow) ? "int64" : "float32");
  if (wanted === "float32") {
    const data = new Float32Array(rows.length * width);
    for (const [index, row] of rows.entries()) fillFloats(data, index * width, row, `${field}[${index}]`);
    return { dtype: wanted, data, shape };
  }
  const narrow = new Int32Array(rows.length * width);
  for (let index = 0; index < rows.length; index++) {
    const integers = toIntegers(rows[index]!, `${field}[${index}]`);
    if (integers instanceof Float64Array)
      return { dtype: wanted, data: widenRows(rows, width, field), shape };
    narrow.set(integers, index * width);
  }
  return { dtype: wanted, data: narrow, shape };
}

function widenRows(rows: readonly ArrayLike<number | bigint>[], width: number, field: string): Float64Array {
  const wide = new Float64Array(rows.length * width);
  for (const [index, row] of rows.entries())
    wide.set(toWideIntegers(row, `${field}[${index}]`), index * width);
  return wide;
}

function isIntegerRow(row: ArrayLike<number | bigint>): boolean {
  if (ArrayBuffer.isView(row)) return !isFloatArray(row);
  return (row as readonly (number | bigint)[]).every(isInteger);
}

/** Lists the innermost rows in order and refuses ragged nesting on the way. */
function collectRows(
  value: unknown,
  shape: readonly number[],
  depth: number,
  field: string,
  rows: ArrayLike<number | bigint>[],
): void {
  const isList = Array.isArray(value) || (ArrayBuffer.isView(value) && isTypedNumbers(value));
  if (!isList || value.length !== shape[depth]) {
    const got = isList ? `${value.length} values` : describe(value);
    throw new ValidationError(
      field,
      `${field} must be rectangular: expected ${shape[depth]} values, got ${got}`,
    );
  }
  if (depth === shape.length - 1) {
    const nested = Array.isArray(value)
      ? value.find((item) => typeof item === "object" && item !== null)
      : undefined;
    if (nested !== undefined) {
      throw new ValidationError(
        field,
        `${field} must be rectangular: expected a number, got ${describe(nested)}`,
      );
    }
    rows.push(value as ArrayLike<number | bigint>);
    return;
  }
  for (let index = 0; index < value.length; index++) {
    collectRows(value[index], shape, depth + 1, `${field}[${index}]`, rows);
  }
}
