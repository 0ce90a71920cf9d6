import { ValidationError } from "../../errors.js";
import type { TensorValues } from "./tensor-values.js";

/** The stored entries of a matrix, row by row; every entry not listed has the pad value. */
export interface CsrValues {
  readonly data: TensorValues;
  readonly crowIndices: Int32Array;
  readonly colIndices: Int32Array;
}

/** Compresses a dense matrix, or returns undefined where that would not be smaller. */
export function compressRows(
  dense: TensorValues,
  rows: number,
  columns: number,
  padValue: number,
): CsrValues | undefined {
  let stored = 0;
  for (let index = 0; index < dense.length; index++) if (dense[index] !== padValue) stored++;
  if (rows + 1 + 2 * stored >= rows * columns) return undefined;

  const values = newLike(dense, stored, padValue);
  const crowIndices = new Int32Array(rows + 1);
  const colIndices = new Int32Array(stored);
  let at = 0;
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const value = dense[row * columns + column]!;
      if (value === padValue) continue;
      values[at] = value;
      colIndices[at++] = column;
    }
    crowIndices[row + 1] = at;
  }
  return { data: values, crowIndices, colIndices };
}

/** The dense matrix, row by row, of the same array kind as the stored values. */
export function expandRows(csr: CsrValues, rows: number, columns: number, padValue: number): TensorValues {
  const dense = newLike(csr.data, rows * columns, padValue);
  if (padValue !== 0) dense.fill(padValue);
  for (let row = 0; row < rows; row++) {
    for (let index = csr.crowIndices[row]!; index < csr.crowIndices[row + 1]!; index++) {
      dense[row * columns + csr.colIndices[index]!] = csr.data[index]!;
    }
  }
  return dense;
}

function newLike(values: TensorValues, length: number, padValue: number): TensorValues {
  if (values instanceof Float32Array) return new Float32Array(length);
  const fits = values instanceof Int32Array && (padValue | 0) === padValue;
  return fits ? new Int32Array(length) : new Float64Array(length);
}

/** Refuses indices that do not describe a matrix of this shape. */
export function checkCsr(csr: CsrValues, shape: readonly number[], field: string): void {
  const fail = (message: string): never => {
    throw new ValidationError(field, `${field} is not a valid sparse tensor: ${message}`);
  };
  if (shape.length !== 2) fail(`its shape must have 2 dimensions, got [${shape.join(", ")}]`);
  const [rows, columns] = shape as [number, number];
  const { data, crowIndices, colIndices } = csr;
  if (crowIndices.length !== rows + 1) {
    fail(`${rows} rows need ${rows + 1} sparseCrowIndices, got ${crowIndices.length}`);
  }
  if (colIndices.length !== data.length) {
    fail(`${data.length} values need as many sparseColIndices, got ${colIndices.length}`);
  }
  if (crowIndices[0] !== 0) fail(`sparseCrowIndices must begin with 0, got ${crowIndices[0]}`);
  if (crowIndices[rows] !== data.length) {
    fail(`sparseCrowIndices must end with the number of values, ${data.length}, got ${crowIndices[rows]}`);
  }
  for (let row = 0; row < rows; row++) {
    const begin = crowIndices[row]!;
    const end = crowIndices[row + 1]!;
    if (end < begin || end > data.length)
      fail(`sparseCrowIndices falls from ${begin} to ${end} at row ${row}`);
    let before = -1;
    for (let index = begin; index < end; index++) {
      const column = colIndices[index]!;
      if (column <= before || column >= columns) {
        fail(`row ${row} has column ${column}, expected rising columns below ${columns}`);
      }
      before = column;
    }
  }
}
