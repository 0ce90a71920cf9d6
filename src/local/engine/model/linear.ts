import { type F32, from, type Kernels, type Matrix, sliceBuffer } from "../kernels/kernels.js";
import type { LoraGroup } from "./lora.js";

/** Rows start..start+rows go through this adapter. */
export interface AdaptedRows {
  adapter: LoraGroup;
  start: number;
  rows: number;
}

/** A linear layer: `weight` is [inputs, outputs], or [outputs, inputs] when `transposed`. */
export interface LinearLayer<M extends Matrix = Matrix> {
  weight: M;
  inputs: number;
  outputs: number;
  transposed?: boolean;
}

/** out = x * weight + scaling * (x * A) * B, or out += ... with `accumulate`. */
export interface LinearForward {
  layer: LinearLayer;
  out: F32;
  x: F32;
  rows: number;
  adapters: AdaptedRows[];
  accumulate?: boolean;
  /** Receives scaling * x * A, which the backward pass needs; for one adapter over all rows. */
  lowRank?: F32 | undefined;
  /** Rows that intermediate results have room for. Default: as many as there are. */
  room?: number | undefined;
}

/** A linear layer with low-rank adapters on it. */
export function linearForward(kernels: Kernels, operation: LinearForward): void {
  const { layer, out, x, rows, adapters, accumulate = false } = operation;
  const { weight, inputs, outputs, transposed = false } = layer;
  kernels.matmul(out, x, weight, rows, outputs, inputs, { transB: transposed, accumulate });
  for (const { adapter, start, rows: adaptedRows } of adapters) {
    if (adaptedRows === 0) continue;
    const { rank, scaling } = adapter;
    const width = adapter.b.length * rank;
    const mark = kernels.mark();
    const kept = operation.lowRank;
    const lowRank = kept ?? kernels.scratch((operation.room ?? adaptedRows) * width);
    kernels.matmul(lowRank, from(x, start * inputs), adapter.a, adaptedRows, width, inputs);
    const scale = () => scaling !== 1 && kernels.scale(sliceBuffer(lowRank, 0, adaptedRows * width), scaling);
    if (kept) scale();
    const sum = {
      out: from(out, start * outputs),
      stride: outputs,
      rows: adaptedRows,
      lowRank,
      group: adapter,
    };
    if (kernels.addLowRank?.({ ...sum, factor: kept ? 1 : scaling })) {
      kernels.release(mark);
      continue;
    }
    if (!kept) scale();
    adapter.b.forEach(({ matrix, column, cols }, index) => {
      const part = from(out, start * outputs + column);
      kernels.matmul(part, from(lowRank, index * rank), matrix, adaptedRows, cols, rank, {
        accumulate: true,
        lda: width,
        ldc: outputs,
      });
    });
    kernels.release(mark);
  }
}

/** Adds to the gradients, and writes dx = dout * weight^T + ... unless it is absent. */
export interface LinearBackward {
  layer: LinearLayer;
  dx?: F32 | undefined;
  dout: F32;
  x: F32;
  rows: number;
  adapter?: LoraGroup | undefined;
  /** Output of the forward pass. */
  lowRank?: F32 | undefined;
  /** Absent where the weight is frozen. */
  weightGradient?: F32 | undefined;
  adapterGradient?: LoraGroup | undefined;
}

/** The backward pass of `linearForward` with one adapter over all rows. */
export function linearBackward(kernels: Kernels, operation: LinearBackward): void {
  const { layer, dx, dout, x, rows, adapter, lowRank, weightGradient, adapterGradient } = operation;
  const { weight, inputs, outputs, transposed = false } = layer;
  const addProduct = { transA: true, accumulate: true };
  if (weightGradient) {
    if (transposed) kernels.matmul(weightGradient, dout, x, outputs, inputs, rows, addProduct);
    else kernels.matmul(weightGradient, x, dout, inputs, outputs, rows, addProduct);
  }
  if (dx) kernels.matmul(dx, dout, weight, rows, inputs, outputs, { transB: !transposed });
  if (!adapter || !adapterGradient || !lowRank) return;
  const { rank, scaling } = adapter;
  const width = adapter.b.length * rank;
  const mark = kernels.mark();
  const dlowRank = kernels.scratch(rows * width);
  adapter.b.forEach(({ matrix, column, cols }, index) => {
    const gradient = adapterGradient.b[index]!.matrix;
    const part = from(dout, column);
    kernels.matmul(gradient, from(lowRank, index * rank), part, rank, cols, rows, {
      transA: true,
      accumulate: true,
      lda: width,
      ldb: outputs,
    });
    kernels.matmul(from(dlowRank, index * rank), part, matrix, rows, rank, cols, {
      transB: true,
      lda: outputs,
      ldc: width,
    });
  });
  if (scaling !== 1) kernels.scale(dlowRank, scaling);
  kernels.matmul(adapterGradient.a, x, dlowRank, inputs, width, rows, addProduct);
  if (dx) kernels.matmul(dx, dlowRank, adapter.a, rows, inputs, width, { transB: true, accumulate: true });
  kernels.release(mark);
}
