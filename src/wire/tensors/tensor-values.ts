import { ValidationError } from "../../errors.js";
import { wrongValue } from "../fields/check-keys.js";
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

/** The innermost lists of a value, in order, each with the name errors give it. */
interface Row {
  readonly values: ArrayLike<number | bigint>;
  readonly path: string;
}

/** Flattens numbers in any form into one typed array; without `dtype` integers become int64 and the rest float32. */
export function flattenValues(
  value: unknown,
  dtype: TensorDtype | undefined,
  path: string,
): { dtype: TensorDtype; data: TensorValues; shape: readonly number[] } {
  // The usual arrays, of which a batch has thousands.
  if (value instanceof Float32Array && dtype !== "int64")
    return { dtype: "float32", data: value, shape: [value.length] };
  if (value instanceof Int32Array && dtype !== "float32")
    return { dtype: "int64", data: value, shape: [value.length] };
  if (typeof value === "number" || typeof value === "bigint") {
    return { ...flattenValues([value], dtype, path), shape: [] };
  }
  if (value instanceof DataView) throw wrongValue(path, "a numeric typed array", value);
  if (!isList(value)) throw wrongValue(path, "numbers, a typed array or a TensorData", value);
  const shape = shapeOf(value);
  const rows: Row[] = [];
  collectRows(value, shape, 0, path, rows);
  const count = rows.length * shape.at(-1)!;
  const isEmptyList = count === 0 && !ArrayBuffer.isView(value);
  if (dtype === "int64" || (dtype === undefined && !isEmptyList && rows.every(isIntegerRow))) {
    return { dtype: "int64", data: toIntegers(rows, count), shape };
  }
  return { dtype: "float32", data: toFloats(rows, count), shape };
}

/** Also true for kinds that this file need not name, such as Float16Array where a runtime has it. */
function isList(value: unknown): value is ArrayLike<unknown> {
  return Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));
}

/** The length at each level, as the first entries tell. */
function shapeOf(value: ArrayLike<unknown>): number[] {
  const shape: number[] = [];
  for (let level: unknown = value; isList(level); level = level[0]) shape.push(level.length);
  return shape;
}

/** Refuses ragged nesting on the way. */
function collectRows(
  value: unknown,
  shape: readonly number[],
  depth: number,
  path: string,
  rows: Row[],
): void {
  const length = shape[depth]!;
  if (!isList(value) || value.length !== length) {
    const got = isList(value) ? `${value.length} values` : describe(value);
    throw new ValidationError(path, `${path} must be rectangular: expected ${length} values, got ${got}`);
  }
  if (depth < shape.length - 1) {
    for (let index = 0; index < length; index++)
      collectRows(value[index], shape, depth + 1, `${path}[${index}]`, rows);
    return;
  }
  const deeper = depth > 0 && Array.isArray(value) ? value.find(isList) : undefined;
  if (deeper !== undefined) {
    throw new ValidationError(
      path,
      `${path} must be rectangular: expected a number, got ${describe(deeper)}`,
    );
  }
  rows.push({ values: value as ArrayLike<number | bigint>, path });
}

function isIntegerRow({ values }: Row): boolean {
  if (ArrayBuffer.isView(values)) return !Object.prototype.toString.call(values).startsWith("[object Float");
  return (values as readonly unknown[]).every(
    (value) => typeof value === "bigint" || Number.isInteger(value),
  );
}

function toFloats(rows: readonly Row[], count: number): Float32Array {
  const floats = new Float32Array(count);
  let at = 0;
  for (const { values, path } of rows) {
    for (let index = 0; index < values.length; index++) {
      const value = toNumber(values[index]!);
      if (typeof value !== "number") throw wrongValue(`${path}[${index}]`, "a number", value);
      floats[at++] = value;
    }
  }
  return floats;
}

/** Int32Array as long as every value fits; the first that does not moves all of them to a Float64Array. */
function toIntegers(rows: readonly Row[], count: number): Int32Array | Float64Array {
  const narrow = new Int32Array(count);
  let at = 0;
  for (const { values } of rows) {
    for (let index = 0; index < values.length; index++) {
      const value = toNumber(values[index]!);
      if ((value | 0) !== value) return toWideIntegers(rows, count);
      narrow[at++] = value;
    }
  }
  return narrow;
}

function toWideIntegers(rows: readonly Row[], count: number): Float64Array {
  const wide = new Float64Array(count);
  let at = 0;
  for (const { values, path } of rows) {
    for (let index = 0; index < values.length; index++) {
      const value = toNumber(values[index]!);
      if (!Number.isSafeInteger(value))
        throw wrongValue(`${path}[${index}]`, "an integer that a number holds exactly", values[index]);
      wide[at++] = value;
    }
  }
  return wide;
}

function toNumber(value: number | bigint): number {
  return typeof value === "bigint" ? Number(value) : value;
}
