import type { PublishedLoss } from "../../../wire/training/losses.js";
import { type F32, type Kernels, sliceBuffer, type TokenLossBuffers } from "../kernels/kernels.js";
import { canLearn, type TokenLossInputs } from "../kernels/token-losses.js";
import { scratchInts, takeRows } from "../model/decoder.js";
import { type LinearLayer, linearBackward, linearForward } from "../model/linear.js";
import type { LoraGroup } from "../model/lora.js";

/** Fewest rows of a chunk, however much memory its logits take: each chunk reads all of the head's weights. */
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
  loss: PublishedLoss;
  inputs: TokenLossInputs;
  /** Absent in a pass that only computes the loss. */
  backward?: HeadBackward | undefined;
  /** The logits of all rows, where `scoreTargets` has computed and kept them. */
  kept?: KeptChunk | undefined;
}

/** The only chunk of a pass, with its logits. */
export type KeptChunk = ReturnType<typeof chunkForward>;

/** Buffers that the head's backward pass writes. */
export interface HeadBackward {
  /** Receives the gradients of the active hidden rows, one after another. */
  dhidden: F32;
  adapterGradient: LoraGroup | undefined;
  weightGradient: F32 | undefined;
}

/** Result of a pass through the head. */
export interface HeadResult {
  /** Logprobs of all targets, on the scratch stack. */
  logprobs: F32;
  /** Rows that can have a gradient, in order: what there is to propagate. */
  activeRows: Int32Array;
}

/**
 * The logprobs of all targets, for a loss that needs them before it knows any gradient. One chunk stays on the scratch
 * stack for the backward pass; several are computed again there.
 */
export function scoreTargets(
  kernels: Kernels,
  operation: Omit<LossHead, "loss" | "inputs" | "backward">,
): { logprobs: F32; kept: KeptChunk | undefined } {
  const { head, rows, targets } = operation;
  const chunkRows = rowsOfChunk(kernels, head);
  const logprobs = kernels.scratch(targets.length);
  const shared = { logprobs, targets: scratchInts(kernels, targets) };
  if (rows <= chunkRows)
    return { logprobs, kept: chunkForward(kernels, operation, shared, { start: 0, rows }) };
  for (let start = 0; start < rows; start += chunkRows) {
    const inner = kernels.mark();
    chunkForward(kernels, operation, shared, { start, rows: Math.min(chunkRows, rows - start) });
    kernels.release(inner);
  }
  return { logprobs, kept: undefined };
}

const rowsOfChunk = ({ sizes }: Kernels, head: LinearLayer) =>
  Math.max(MIN_CHUNK_ROWS, Math.floor(sizes.headLogits / head.outputs));

/**
 * A chunk of rows at a time, whose logits are never all in memory. Prompts have no weight in most losses, so the rows that
 * the backward pass leaves out are often the larger part.
 */
export function lossHead(kernels: Kernels, operation: LossHead): HeadResult {
  const { head, rows, targets, targetsPerToken, backward } = operation;
  const active = backward ? rowsThatLearn(operation) : new Int32Array(0);
  const chunkRows = rowsOfChunk(kernels, head);
  const logprobs = kernels.scratch(targets.length);
  const mark = kernels.mark();
  // Everything that a chunk reads is sent before the first one: a device would have to stop for it.
  const shared = {
    logprobs,
    targets: scratchInts(kernels, targets),
    inputs: backward && uploadInputs(kernels, operation.inputs),
    ...(active.length < rows && {
      rowsInChunk: scratchInts(
        kernels,
        active.map((row) => row % chunkRows),
      ),
      activeTargets: scratchInts(kernels, pickRows(targets, active, targetsPerToken)),
    }),
  };
  let done = 0;
  for (let start = 0; start < rows; start += chunkRows) {
    const count = Math.min(chunkRows, rows - start);
    const inner = kernels.mark();
    const chunk = operation.kept ?? chunkForward(kernels, operation, shared, { start, rows: count });
    let ends = done;
    while (ends < active.length && active[ends]! < start + count) ends += 1;
    if (backward && ends > done)
      chunkBackward(kernels, operation, backward, shared, chunk, done, ends - done);
    done = ends;
    kernels.release(inner);
  }
  kernels.release(mark);
  return { logprobs, activeRows: active };
}

/** Buffers that all chunks read. */
interface Shared {
  logprobs: F32;
  targets: ReturnType<typeof scratchInts>;
  inputs?: TokenLossBuffers | undefined;
  /** Absent where all rows are active: of each active row, its number within its chunk, and its targets. */
  rowsInChunk?: ReturnType<typeof scratchInts>;
  activeTargets?: ReturnType<typeof scratchInts>;
}

interface Chunk {
  start: number;
  rows: number;
}

function chunkForward(
  kernels: Kernels,
  { head, adapter, hidden: allHidden, targetsPerToken }: Omit<LossHead, "loss" | "inputs" | "backward">,
  shared: Pick<Shared, "logprobs" | "targets">,
  { start, rows }: Chunk,
) {
  const vocabSize = head.outputs;
  const hidden = sliceBuffer(allHidden, start * head.inputs, rows * head.inputs);
  const logits = kernels.scratch(rows * vocabSize);
  const lowRank = adapter && kernels.scratch(rows * adapter.rank);
  const adapters = adapter ? [{ adapter, start: 0, rows }] : [];
  linearForward(kernels, { layer: head, out: logits, x: hidden, rows, adapters, lowRank });
  const part = [start * targetsPerToken, rows * targetsPerToken] as const;
  const [logprobs, targets] = [sliceBuffer(shared.logprobs, ...part), sliceBuffer(shared.targets, ...part)];
  const logSumExp = kernels.scratch(rows);
  kernels.logSoftmaxGather({
    logprobs,
    logSumExp,
    logits,
    targets,
    rows,
    vocabSize,
    targetsPerRow: targetsPerToken,
  });
  return { start, rows, hidden, logits, lowRank, targets, logprobs, logSumExp };
}

/** The active rows of a chunk: numbers `first`.. among all active rows. */
function chunkBackward(
  kernels: Kernels,
  { head, adapter, targetsPerToken, loss }: LossHead,
  backward: HeadBackward,
  { inputs, rowsInChunk, activeTargets }: Shared,
  chunk: ReturnType<typeof chunkForward>,
  first: number,
  rows: number,
): void {
  const count = chunk.rows * targetsPerToken;
  const gradients = kernels.scratch(count);
  const ofChunk = (x: F32) =>
    sliceBuffer(x, x.length === 0 ? 0 : chunk.start * targetsPerToken, x.length === 0 ? 0 : count);
  kernels.tokenGradients({
    gradients,
    logprobs: chunk.logprobs,
    loss,
    inputs: mapInputs(inputs!, ofChunk),
    count,
  });
  const indices = rowsInChunk && rows < chunk.rows ? sliceBuffer(rowsInChunk, first, rows) : undefined;
  const part = (x: F32, cols: number) => (indices ? takeRows(kernels, x, indices, cols) : x);
  const dlogits = part(chunk.logits, head.outputs);
  kernels.logitsGradient({
    logits: dlogits,
    logSumExp: part(chunk.logSumExp, 1),
    targets: indices
      ? sliceBuffer(activeTargets!, first * targetsPerToken, rows * targetsPerToken)
      : chunk.targets,
    coefficients: part(gradients, targetsPerToken),
    rows,
    vocabSize: head.outputs,
    targetsPerRow: targetsPerToken,
  });
  linearBackward(kernels, {
    layer: head,
    dx: sliceBuffer(backward.dhidden, first * head.inputs, rows * head.inputs),
    dout: dlogits,
    x: part(chunk.hidden, head.inputs),
    rows,
    adapter,
    lowRank: adapter && chunk.lowRank && part(chunk.lowRank, adapter.rank),
    weightGradient: backward.weightGradient,
    adapterGradient: backward.adapterGradient,
  });
}

function uploadInputs(kernels: Kernels, inputs: TokenLossInputs): TokenLossBuffers {
  return mapInputs(inputs, (values) => {
    const buffer = kernels.scratch(values.length);
    kernels.upload(buffer, values);
    return buffer;
  });
}

function mapInputs<From, To>(
  inputs: Record<Exclude<keyof TokenLossInputs, "beta">, From> & { beta: number },
  map: (values: From) => To,
) {
  return {
    weights: map(inputs.weights),
    advantages: map(inputs.advantages),
    logprobs: map(inputs.logprobs),
    clipLowThreshold: map(inputs.clipLowThreshold),
    clipHighThreshold: map(inputs.clipHighThreshold),
    beta: inputs.beta,
  };
}

function rowsThatLearn({ loss, inputs, rows, targetsPerToken }: LossHead): Int32Array {
  const learning: number[] = [];
  for (let row = 0; row < rows; row++) {
    for (let index = row * targetsPerToken; index < (row + 1) * targetsPerToken; index++) {
      if (!canLearn(loss, inputs, index)) continue;
      learning.push(row);
      break;
    }
  }
  return Int32Array.from(learning);
}

function pickRows(table: Int32Array, rows: Int32Array, columns: number): Int32Array {
  const out = new Int32Array(rows.length * columns);
  rows.forEach((row, index) => {
    out.set(table.subarray(row * columns, (row + 1) * columns), index * columns);
  });
  return out;
}
