import { ValidationError } from "../../errors.js";
import type { TensorParts } from "./tensor-data.js";
import type { TensorValues } from "./tensor-values.js";

/** A dense matrix with only the entries that differ from `padValue`, or undefined where that would not be smaller. */
export function compressRows(tensor: TensorParts, padValue: number): TensorParts | undefined {
  const { dtype, data: dense, shape } = tensor;
  const [rows, columns] = shape as [number, number];
  let stored = 0;
  for (let index = 0; index < dense.length; index++) if (dense[index] !== padValue) stored++;
  if (rows + 1 + 2 * stored >= rows * columns) return undefined;

  const data = newLike(dense, stored, padValue);
  const sparseCrowIndices = new Int32Array(rows + 1);
  const sparseColIndices = new Int32Array(stored);
  let at = 0;
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const value = dense[row * columns + column]!;
      if (value === padValue) continue;
      data[at] = value;
      sparseColIndices[at++] = column;
    }
    sparseCrowIndices[row + 1] = at;
  }
  return { dtype, data, shape, sparseCrowIndices, sparseColIndices };
}

/** The dense values, row by row, of the same array kind as the stored ones; entries not stored are `padValue`. */
export function expandRows(tensor: TensorParts, padValue: number): TensorValues {
  const { data, sparseCrowIndices: crow, sparseColIndices: col } = tensor;
  const [rows, columns] = tensor.shape as [number, number];
  const dense = newLike(data, rows * columns, padValue);
  if (padValue !== 0) dense.fill(padValue);
  for (let row = 0; row < rows; row++) {
    for (let index = crow![row]!; index < crow![row + 1]!; index++)
      dense[row * columns + col![index]!] = data[index]!;
  }
  return dense;
}

function newLike(values: TensorValues, length: number, padValue: number): TensorValues {
  if (values instanceof Float32Array) return new Float32Array(length);
  const fits = values instanceof Int32Array && (padValue | 0) === padValue;
  return fits ? new Int32Array(length) : new Float64Array(length);
}

/** Refuses indices that do not describe a matrix of the tensor's shape. */
export function checkCsr(tensor: TensorParts, field: string): void {
  const fail = (message: string): never => {
    throw new ValidationError(field, `${field} is not a valid sparse tensor: ${message}`);
  };
  const { data, shape, sparseCrowIndices: crow, sparseColIndices: col } = tensor;
  if (crow === undefined || col === undefined)
    throw new ValidationError(
      field,
      `${field} needs both sparseCrowIndices and sparseColIndices, or neither`,
    );
  if (shape.length !== 2) fail(`its shape must have 2 dimensions, got [${shape.join(", ")}]`);
  const [rows, columns] = shape as [number, number];
  if (crow.length !== rows + 1) fail(`${rows} rows need ${rows + 1} sparseCrowIndices, got ${crow.length}`);
  if (col.length !== data.length)
    fail(`${data.length} values need as many sparseColIndices, got ${col.length}`);
  if (crow[0] !== 0) fail(`sparseCrowIndices must begin with 0, got ${crow[0]}`);
  if (crow[rows] !== data.length)
    fail(`sparseCrowIndices must end with the number of values, ${data.length}, got ${crow[rows]}`);
  for (let row = 0; row < rows; row++) {
    const begin = crow[row]!;
    const end = crow[row + 1]!;
    if (end < begin || end > data.length)
      fail(`sparseCrowIndices falls from ${begin} to ${end} at row ${row}`);
    for (let index = begin; index < end; index++) {
      const column = col[index]!;
      const before = index === begin ? -1 : col[index - 1]!;
      if (column <= before || column >= columns)
        fail(`row ${row} has column ${column}, expected rising columns below ${columns}`);
    }
  }
}
