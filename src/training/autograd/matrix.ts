import { describeTensor, shapeError } from "./shape.js";
import { type Operand, result, type Tensor, toTensor } from "./tensor.js";
import { tracerOf } from "./tracer.js";

/** The product of two matrices. */
export function matmul(left: Operand, right: Operand): Tensor {
  const tracer = tracerOf([left, right]);
  if (tracer !== undefined) return tracer.record("matmul", [left, right]);
  const a = toTensor(left, "matmul");
  const b = toTensor(right, "matmul");
  if (a.shape.length !== 2 || b.shape.length !== 2 || a.shape[1] !== b.shape[0]) {
    throw shapeError("matmul", `cannot multiply ${describeTensor(a)} by ${describeTensor(b)}`);
  }
  const [rows, depth] = a.shape as [number, number];
  const columns = b.shape[1]!;
  const y = new Float64Array(rows * columns);
  for (let i = 0; i < rows; i++) {
    for (let k = 0; k < depth; k++) {
      const factor = a.data[i * depth + k]!;
      for (let j = 0; j < columns; j++) y[i * columns + j]! += factor * b.data[k * columns + j]!;
    }
  }
  const backward = (dy: Float64Array, into: Float64Array, input: number) => {
    for (let i = 0; i < rows; i++) {
      for (let k = 0; k < depth; k++) {
        if (input === 0) {
          let dot = 0;
          for (let j = 0; j < columns; j++) dot += dy[i * columns + j]! * b.data[k * columns + j]!;
          into[i * depth + k]! += dot;
        } else {
          const factor = a.data[i * depth + k]!;
          for (let j = 0; j < columns; j++) into[k * columns + j]! += dy[i * columns + j]! * factor;
        }
      }
    }
  };
  return result("matmul", y, [rows, columns], [a, b], backward, { accumulates: true });
}

/** A matrix with rows and columns exchanged. */
export function transpose(operand: Operand): Tensor {
  const tracer = tracerOf([operand]);
  if (tracer !== undefined) return tracer.record("transpose", [operand]);
  const input = toTensor(operand, "transpose");
  if (input.shape.length !== 2) {
    throw shapeError("transpose", `expected a matrix, got ${describeTensor(input)}`);
  }
  const [rows, columns] = input.shape as [number, number];
  const y = new Float64Array(input.size);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) y[j * rows + i] = input.data[i * columns + j]!;
  }
  const backward = (dy: Float64Array, dx: Float64Array) => {
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j < columns; j++) dx[i * columns + j]! += dy[j * rows + i]!;
    }
  };
  return result("transpose", y, [columns, rows], [input], backward, { accumulates: true });
}
