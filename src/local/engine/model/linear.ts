/** A linear layer with low-rank adapters on it, forward and backward. */
import { type F32, type I32, type Kernels, type Matrix, slice } from "../kernels/kernels.js";
import type { LoraGroup } from "./lora.js";

export const from = <T extends F32 | I32>(buffer: T, start: number): T =>
  slice(buffer, start, buffer.length - start);

/** Rows start..start+rows go through this adapter. */
export interface AdaptedRows {
  adapter: LoraGroup | null;
  rank: number;
  scaling: number;
  start: number;
  rows: number;
}

export interface LinearShape {
  rows: number;
  inputs: number;
  outputs: number;
  /** The weight is stored [outputs, inputs]. */
  transposed?: boolean;
}

/**
 * out = x * weight + scaling * (x * A) * B, or out += ... with `accumulate`.
 * `keep` (for one adapter over all rows) receives scaling * x * A, which the backward pass needs.
 */
export function linearForward(
  kernels: Kernels,
  out: F32,
  x: F32,
  weight: Matrix,
  shape: LinearShape,
  adapted: AdaptedRows[],
  options: { accumulate?: boolean; keep?: F32 | null } = {},
): void {
  const { rows, inputs, outputs, transposed = false } = shape;
  kernels.matmul(out, x, weight, rows, outputs, inputs, {
    transB: transposed,
    accumulate: options.accumulate ?? false,
  });
  for (const part of adapted) {
    if (!part.adapter || part.rows === 0) continue;
    const width = part.adapter.b.length * part.rank;
    const mark = kernels.mark();
    const low = options.keep ?? kernels.scratch(part.rows * width);
    kernels.matmul(low, from(x, part.start * inputs), part.adapter.a, part.rows, width, inputs);
    if (part.scaling !== 1) kernels.scale(slice(low, 0, part.rows * width), part.scaling);
    part.adapter.b.forEach(({ matrix, column, cols }, index) => {
      kernels.matmul(
        from(out, part.start * outputs + column),
        from(low, index * part.rank),
        matrix,
        part.rows,
        cols,
        part.rank,
        { accumulate: true, lda: width, ldc: outputs },
      );
    });
    kernels.release(mark);
  }
}

export interface LinearGradients {
  /** Gradient of the frozen weight, when it is not frozen. */
  weight: F32 | null;
  adapter: LoraGroup | null;
}

/** Adds to the gradients; dx = (or, with `accumulate`, +=) dy * weight^T + ..., unless it is null. */
export function linearBackward(
  kernels: Kernels,
  dx: F32 | null,
  dy: F32,
  x: F32,
  weight: Matrix,
  shape: LinearShape,
  adapted: AdaptedRows,
  kept: F32 | null,
  gradients: LinearGradients,
  options: { accumulate?: boolean } = {},
): void {
  const { rows, inputs, outputs, transposed = false } = shape;
  if (gradients.weight) {
    if (transposed) {
      kernels.matmul(gradients.weight, dy, x, outputs, inputs, rows, { transA: true, accumulate: true });
    } else {
      kernels.matmul(gradients.weight, x, dy, inputs, outputs, rows, { transA: true, accumulate: true });
    }
  }
  if (dx) {
    kernels.matmul(dx, dy, weight, rows, inputs, outputs, {
      transB: !transposed,
      accumulate: options.accumulate ?? false,
    });
  }
  const { adapter, rank, scaling } = adapted;
  if (!adapter || !gradients.adapter || !kept) return;
  const width = adapter.b.length * rank;
  const mark = kernels.mark();
  const dlow = kernels.scratch(rows * width);
  adapter.b.forEach(({ matrix, column, cols }, index) => {
    const gradient = gradients.adapter!.b[index]!.matrix;
    const dyPart = from(dy, column);
    kernels.matmul(gradient, from(kept, index * rank), dyPart, rank, cols, rows, {
      transA: true,
      accumulate: true,
      lda: width,
      ldb: outputs,
    });
    kernels.matmul(from(dlow, index * rank), dyPart, matrix, rows, rank, cols, {
      transB: true,
      lda: outputs,
      ldc: width,
    });
  });
  if (scaling !== 1) kernels.scale(dlow, scaling);
  kernels.matmul(gradients.adapter.a, x, dlow, inputs, width, rows, { transA: true, accumulate: true });
  if (dx) kernels.matmul(dx, dlow, adapter.a, rows, inputs, width, { transB: true, accumulate: true });
  kernels.release(mark);
}
