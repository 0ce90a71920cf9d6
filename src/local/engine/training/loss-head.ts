import { type F32, type Kernels, slice } from "../kernels/kernels.js";
import { scratchInts, takeRows } from "../model/decoder.js";
import { type LinearLayer, linearBackward, linearForward } from "../model/linear.js";
import type { LoraGroup } from "../model/lora.js";

/** Logits are held for about this many values at once, and for at least so many rows: each chunk reads all of the head's weights. */
const CHUNK_VALUES = 1 << 19;
const MIN_CHUNK_ROWS = 64;

/** From the head's input to logprobs and back. */
export interface LossHead {
  /** The unembedding, and its adapter. */
  head: LinearLayer;
  adapter: LoraGroup | undefined;
  /** The head's input. */
  hidden: F32;
  rows: number;
  /** [rows, targetsPerToken]. */
  targets: Int32Array;
  targetsPerToken: number;
  /** d loss / d logprob of the targets from number `start` on. */
  gradientsOf(start: number, logprobs: Float32Array): Float32Array;
  /** Absent in a pass that only computes the loss. */
  backward?: HeadBackward | undefined;
}

/** What the head's backward pass writes to. */
export interface HeadBackward {
  /** Receives the gradients of the active hidden rows, one after another. */
  dhidden: F32;
  adapterGradient: LoraGroup | undefined;
  weightGradient: F32 | undefined;
}

/** The logprobs of all targets. */
export interface HeadResult {
  logprobs: Float32Array;
  /** Rows with a gradient that is not zero, in order: what there is to propagate. */
  activeRows: Int32Array;
}

/**
 * A chunk of rows at a time, whose logits are never all in memory. Prompts have no weight in most losses, so the rows that
 * the backward pass leaves out are often the larger part.
 */
export async function lossHead(kernels: Kernels, operation: LossHead): Promise<HeadResult> {
  const { head, hidden, rows, targets, targetsPerToken, backward } = operation;
  const { inputs: hiddenSize } = head;
  const logprobs = new Float32Array(rows * targetsPerToken);
  const activeRows: number[] = [];
  const chunkRows = Math.max(MIN_CHUNK_ROWS, Math.floor(CHUNK_VALUES / head.outputs));
  for (let start = 0; start < rows; start += chunkRows) {
    const count = Math.min(chunkRows, rows - start);
    const mark = kernels.mark();
    const chunk = chunkForward(kernels, operation, {
      rows: count,
      hidden: slice(hidden, start * hiddenSize, count * hiddenSize),
      targets: targets.subarray(start * targetsPerToken, (start + count) * targetsPerToken),
    });
    const chunkLogprobs = await kernels.download(chunk.logprobs);
    logprobs.set(chunkLogprobs, start * targetsPerToken);
    const gradients = operation.gradientsOf(start * targetsPerToken, chunkLogprobs);
    if (backward) {
      const active = rowsWithGradient(gradients, targetsPerToken);
      const dhidden = slice(backward.dhidden, activeRows.length * hiddenSize, active.length * hiddenSize);
      if (active.length > 0)
        chunkBackward(kernels, operation, chunk, active, gradients, { ...backward, dhidden });
      for (const row of active) activeRows.push(start + row);
    }
    kernels.release(mark);
  }
  return { logprobs, activeRows: Int32Array.from(activeRows) };
}

interface Chunk {
  rows: number;
  hidden: F32;
  targets: Int32Array;
}

function chunkForward(kernels: Kernels, { head, adapter, targetsPerToken }: LossHead, chunk: Chunk) {
  const { rows, hidden, targets } = chunk;
  const vocabSize = head.outputs;
  const logits = kernels.scratch(rows * vocabSize);
  const lowRank = adapter && kernels.scratch(rows * adapter.rank);
  const adapters = adapter ? [{ adapter, start: 0, rows }] : [];
  linearForward(kernels, { layer: head, out: logits, x: hidden, rows, adapters, lowRank });
  const targetRows = scratchInts(kernels, targets);
  const [logprobs, logSumExp] = [kernels.scratch(targets.length), kernels.scratch(rows)];
  kernels.logSoftmaxGather({
    logprobs,
    logSumExp,
    logits,
    targets: targetRows,
    rows,
    vocabSize,
    targetsPerRow: targetsPerToken,
  });
  return { ...chunk, logits, lowRank, targetRows, logprobs, logSumExp };
}

function chunkBackward(
  kernels: Kernels,
  { head, adapter, targetsPerToken }: LossHead,
  chunk: ReturnType<typeof chunkForward>,
  active: Int32Array,
  gradients: Float32Array,
  backward: HeadBackward,
): void {
  const rows = active.length;
  const indices = rows < chunk.rows ? scratchInts(kernels, active) : undefined;
  const part = (x: F32, cols: number) => (indices ? takeRows(kernels, x, indices, cols) : x);
  const dlogits = part(chunk.logits, head.outputs);
  const coefficients = kernels.scratch(rows * targetsPerToken);
  kernels.upload(coefficients, pickRows(gradients, active, targetsPerToken));
  kernels.logitsGradient({
    logits: dlogits,
    logSumExp: part(chunk.logSumExp, 1),
    targets: indices
      ? scratchInts(kernels, pickRows(chunk.targets, active, targetsPerToken))
      : chunk.targetRows,
    coefficients,
    rows,
    vocabSize: head.outputs,
    targetsPerRow: targetsPerToken,
  });
  linearBackward(kernels, {
    layer: head,
    dx: backward.dhidden,
    dout: dlogits,
    x: part(chunk.hidden, head.inputs),
    rows,
    adapter,
    lowRank: adapter && chunk.lowRank && part(chunk.lowRank, adapter.rank),
    weightGradient: backward.weightGradient,
    adapterGradient: backward.adapterGradient,
  });
}

function rowsWithGradient(gradients: Float32Array, columns: number): Int32Array {
  const rows: number[] = [];
  for (let row = 0; row * columns < gradients.length; row++) {
    const ofRow = gradients.subarray(row * columns, (row + 1) * columns);
    if (ofRow.some((gradient) => gradient !== 0)) rows.push(row);
  }
  return Int32Array.from(rows);
}

function pickRows<T extends Float32Array | Int32Array>(table: T, rows: Int32Array, columns: number): T {
  const out = table.slice(0, rows.length * columns) as T;
  rows.forEach((row, index) => {
    out.set(table.subarray(row * columns, (row + 1) * columns), index * columns);
  });
  return out;
}
