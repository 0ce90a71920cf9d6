import type { SafetensorsDtype } from "../../../checkpoints/safetensors.js";
import type { PublishedLoss } from "../../../wire/training/losses.js";
import type { AddLowRank, CopyPages, FewRowKernels } from "./few-rows.js";

/**
 * The contract between the engine and what computes for it: float32, row-major, over buffers that only the implementation
 * knows from inside. WebAssembly and WebGPU are two implementations, plain JavaScript the one that tests hold them against,
 * and `CountingKernels` one that measures memory.
 *
 * Guarantees of every implementation:
 * - The same operations on the same values give the same bits, always, on one machine.
 * - A row's result does not depend on which values the other rows in the call have.
 *
 * Further guarantees on the CPU, so that results do not depend on batching:
 * - `matmul` computes every element as one chain of float32 multiply-then-add in the order of k, starting at zero,
 *   or at the element's old value with `accumulate`. So one product over rows 0..7 equals two over 0..3 and 4..7.
 * - A row's result never depends on which other rows are in the call, nor on the number of threads.
 * - `attention` and `attentionPaged` give the same bits for the same query over the same keys.
 *
 * Rules for the engine, which make implementations on other devices possible:
 * - Handles are opaque: the engine passes them on and cuts them with `slice`, which keeps fields of the implementation's own.
 * - Operations are submitted synchronously, in order, and return nothing; results come back through promises only
 *   (`download`, `sumSquares`).
 * Outputs must not overlap inputs unless a comment says "in place".
 */

/** A block of float32. `offset` is in bytes; only the implementation uses it. */
export interface F32 {
  readonly kind: "f32";
  readonly offset: number;
  readonly length: number;
}

/** A block of int32. */
export interface I32 {
  readonly kind: "i32";
  readonly offset: number;
  readonly length: number;
}

/** Weights that do not change: an [inputs, outputs] matrix as the implementation reads it fastest, perhaps in two bytes a value. */
export interface Frozen {
  readonly kind: "frozen";
  readonly offset: number;
  readonly inputs: number;
  readonly outputs: number;
}

/** The right side of a product. */
export type Matrix = F32 | Frozen;

/** A tensor's little-endian bytes, as a file holds them. */
export interface StoredTensor {
  dtype: SafetensorsDtype;
  shape: number[];
  bytes: Uint8Array;
}

/** How the matrices of a product are stored, and where its sums start. */
export interface MatmulOptions {
  /** `a` is stored k x m (leading dimension m unless `lda` says otherwise). */
  transA?: boolean;
  /** `b` is stored n x k (leading dimension k unless `ldb` says otherwise). */
  transB?: boolean;
  /** Continue the sums from what `c` holds instead of from zero. */
  accumulate?: boolean;
  /** Distance between stored rows, in elements, where the matrix is part of a wider one. */
  lda?: number;
  ldb?: number;
  ldc?: number;
}

/** Rows inside a wider matrix: row r starts at `data` + r * `stride` elements. */
export interface StridedRows {
  readonly data: F32;
  readonly stride: number;
}

/** `out` = `x` * `rstd` * `weight` with `rstd`[row] = 1 / sqrt(mean(x^2) + `eps`). */
export interface RmsNorm {
  out: F32;
  rstd: F32;
  x: F32;
  weight: F32;
  rows: number;
  cols: number;
  eps: number;
}

/** `dx` += gradient; `dweight` (when given) += sum over rows in order. */
export interface RmsNormBackward {
  dx: F32;
  dweight?: F32 | undefined;
  dout: F32;
  x: F32;
  rstd: F32;
  weight: F32;
  rows: number;
  cols: number;
}

/** The angles of a rotary embedding: `cos` and `sin` are [position, headDim / 2], `positions` has one for each row. */
export interface RotaryAngles {
  cos: F32;
  sin: F32;
  positions: I32;
}

/**
 * Per head: RMSNorm with `weight` (QK-norm; skipped, with `rstd`, when absent), then rotary embedding in the half-split
 * layout of Hugging Face: out[i] = y[i]*cos - y[i+h]*sin, out[i+h] = y[i+h]*cos + y[i]*sin, h = headDim/2.
 */
export interface NormRope {
  out: StridedRows;
  /** [rows, heads]. */
  rstd?: F32 | undefined;
  x: StridedRows;
  weight?: F32 | undefined;
  angles: RotaryAngles;
  rows: number;
  heads: number;
  headDim: number;
  eps: number;
}

/** `dx` = gradient (overwrites); `dweight` (when given) += sum over rows, heads in order. */
export interface NormRopeBackward {
  dx: StridedRows;
  dweight?: F32 | undefined;
  dout: StridedRows;
  x: StridedRows;
  rstd?: F32 | undefined;
  weight?: F32 | undefined;
  angles: RotaryAngles;
  rows: number;
  heads: number;
  headDim: number;
}

/** How queries and keys are normed and turned: weights of the norms where the model has them, and angles for every row. */
export interface Rotation {
  queryNorm: F32 | undefined;
  keyNorm: F32 | undefined;
  angles: RotaryAngles;
  rows: number;
  heads: number;
  kvHeads: number;
  headDim: number;
  eps: number;
}

/** Queries, keys and values as they were projected; in one buffer side by side. */
export interface ProjectedHeads {
  query: StridedRows;
  key: StridedRows;
  value: StridedRows;
}

/** Queries are rotated into `query`, keys into row slots[r] of the pages, and values go to theirs as they are. */
export interface RotateIntoPages {
  query: StridedRows;
  keyPages: F32;
  valuePages: F32;
  slots: I32;
  projected: ProjectedHeads;
  rotation: Rotation;
}

/** How queries, keys and values are cut into heads. */
export interface AttentionShape {
  heads: number;
  kvHeads: number;
  headDim: number;
  /** Factor on the scores, normally 1 / sqrt(headDim). */
  scale: number;
}

/**
 * Causal attention inside packed sequences; sequence s owns rows offsets[s]..offsets[s+1].
 * Query rows hold heads*headDim values, key and value rows kvHeads*headDim.
 * Semantics per row and head: scores in order of headDim, exact maximum, e_j = exp(s_j - max), out = sum e_j v_j / sum e_j.
 */
export interface Attention {
  /** [rows, heads * headDim]. */
  out: F32;
  /** [rows, heads]. */
  logSumExp: F32;
  query: StridedRows;
  key: StridedRows;
  value: StridedRows;
  /** One more than there are sequences. */
  offsets: I32;
  shape: AttentionShape;
}

/** The gradients of `Attention`, which overwrite `dquery`, `dkey` and `dvalue`. */
export interface AttentionBackward extends Attention {
  dquery: StridedRows;
  dkey: StridedRows;
  dvalue: StridedRows;
  dout: F32;
}

/**
 * Each of `rows` queries attends to the first lengths[r] keys of its own page table (prefill and decode alike).
 * Key j of row r is stored row pageTables[r*pagesPerRow + floor(j/pageSize)] * pageSize + j % pageSize of the pages,
 * each stored row holding kvHeads*headDim values.
 */
export interface AttentionPaged {
  out: F32;
  query: StridedRows;
  keyPages: F32;
  valuePages: F32;
  pageTables: I32;
  lengths: I32;
  rows: number;
  pagesPerRow: number;
  pageSize: number;
  shape: AttentionShape;
  /** Rows that can share the keys they read. */
  spans?: readonly RowSpan[];
}

/** Neighbouring rows of one sequence, in order: the same page table, each one key more than the row before. */
export interface RowSpan {
  start: number;
  rows: number;
}

/** `logSumExp`[row] = log sum exp(logits[row]); `logprobs`[row, j] = logits[row, targets[row, j]] - logSumExp[row]. */
export interface LogSoftmaxGather {
  logprobs: F32;
  logSumExp: F32;
  logits: F32;
  targets: I32;
  rows: number;
  vocabSize: number;
  targetsPerRow: number;
}

/** In place: `logits` become sum_j coefficients[row, j] * (onehot(targets[row, j]) - softmax(row)). */
export interface LogitsGradient {
  logits: F32;
  logSumExp: F32;
  targets: I32;
  coefficients: F32;
  rows: number;
  vocabSize: number;
  targetsPerRow: number;
}

/** Inputs of a token loss for each target besides its logprob. */
export interface TokenLossBuffers {
  weights: F32;
  advantages: F32;
  logprobs: F32;
  clipLowThreshold: F32;
  clipHighThreshold: F32;
  beta: number;
}

/** `gradients`[i] = d loss / d logprob of target i, by the formulas of token-losses.ts, which need no other target. */
export interface TokenGradients {
  gradients: F32;
  logprobs: F32;
  loss: PublishedLoss;
  /** All but the weights may be empty where the loss reads no others. */
  inputs: TokenLossBuffers;
  count: number;
}

/** One token to be drawn from one row of logits. */
export interface Draw {
  row: number;
  temperature: number;
  /** -1 or 0 = off. */
  topK: number;
  /** 1 = off. */
  topP: number;
  /** Uniform in [0, 1). */
  random: number;
}

/**
 * `tokens`[d] is drawn as token-choice.ts says, `logprobs`[d] = its logit - logSumExp of its row. Among the tokens that topK
 * and topP leave, an implementation may go in another order: the distribution is what counts.
 */
export interface ChooseTokens {
  tokens: I32;
  logprobs: F32;
  logits: F32;
  logSumExp: F32;
  vocabSize: number;
  draws: readonly Draw[];
}

/** The likeliest `columns` tokens (at most `vocabSize`) of each row with their logprobs, likeliest first, equal ones by number. */
export interface TopTokensOperation {
  /** [rows, columns]. */
  tokens: I32;
  logprobs: F32;
  logits: F32;
  logSumExp: F32;
  rows: number;
  vocabSize: number;
  columns: number;
}

/** How exact products are: float32 throughout, or tensor cores, which multiply in float16 and add in float32. */
export type GpuPrecision = "exact" | "fast";

/** How much work suits one step on this device. */
export interface StepSizes {
  /** Tokens in a training step, unless a single sequence has more. */
  trainingTokens: number;
  /** Tokens in a training step while samples wait for their turn. */
  sharedTrainingTokens: number;
  /** Scratch of a training step. */
  trainingBytes: number;
  /** Logits that the loss head holds at once. */
  headLogits: number;
  /** Samples that a sampling step advances. */
  samples: number;
  /** Prompt rows in a sampling step, so that a long prompt does not hold up the others for long. */
  promptRows: number;
  /** Logits of the requested prompt rows. */
  promptLogits: number;
}

/** The settings of one AdamW step. */
export interface AdamWStep {
  learningRate: number;
  beta1: number;
  beta2: number;
  eps: number;
  weightDecay: number;
  /** 1 for the first step. */
  step: number;
  /** The gradient is multiplied by this (in float32) before it is used. 1 = no clipping. */
  gradScale: number;
}

/** The numerical operations that the engine is made of. */
export interface Kernels {
  readonly name: string;
  readonly threads: number;
  readonly sizes: StepSizes;

  // --- memory ---------------------------------------------------------------------------------------------------
  /** Zero-filled and 64-byte aligned; lives until `free`. */
  alloc(length: number): F32;
  allocInts(length: number): I32;
  free(buffer: F32 | I32): void;
  /** Stack memory, not zeroed: everything taken after `mark` goes at `release`. */
  mark(): number;
  scratch(length: number): F32;
  scratchInts(length: number): I32;
  release(mark: number): void;
  /**
   * Rejects with a RangeError where so much scratch cannot be had, in pieces of at most `largest`; otherwise it can, until
   * something is allocated. Only while none is taken.
   */
  reserveScratch(length: number, largest?: number): Promise<void>;
  /** Bytes in use by `alloc`/`allocInts` (scratch not counted). */
  readonly allocatedBytes: number;
  /** Bytes taken from the machine, in use or not; where they are WebAssembly's, they stay taken until `close`. */
  readonly reservedBytes: number;
  /** Bytes that may still be taken, where that is known. */
  readonly freeBytes?: number;
  /** The largest buffer that there can be, where less than all memory. */
  readonly maxBufferBytes?: number;
  upload(buffer: F32, data: Float32Array): void;
  uploadInts(buffer: I32, data: Int32Array): void;
  download(buffer: F32): Promise<Float32Array>;
  downloadInts(buffer: I32): Promise<Int32Array>;
  /** Room for weights, to be filled before it is read; lives until `close`. `dtype` is the one its parts have. */
  frozen(inputs: number, outputs: number, dtype: SafetensorsDtype): Frozen;
  /** Writes outputs `firstOutput`.. of a frozen matrix from a tensor of [some outputs, inputs]. */
  fill(matrix: Frozen, firstOutput: number, tensor: StoredTensor): Promise<void>;

  // --- products -------------------------------------------------------------------------------------------------
  /**
   * c[m,n] = a[m,k] * b[k,n] (after the transpositions the options name). With few rows (decoding) a frozen `b` is read
   * fastest, then one stored k x n, at half the speed one with `transB`; with many rows the layouts cost nearly the same.
   */
  matmul(c: F32, a: F32, b: Matrix, m: number, n: number, k: number, options?: MatmulOptions): void;
  /** Absent, or false with nothing done, where products one by one are as fast. */
  addLowRank?(operation: AddLowRank): boolean;

  // --- rows -----------------------------------------------------------------------------------------------------
  rmsNorm(operation: RmsNorm): void;
  rmsNormBackward(operation: RmsNormBackward): void;
  normRope(operation: NormRope): void;
  normRopeBackward(operation: NormRopeBackward): void;
  /** out[r, i] = silu(gateUp[r, i]) * gateUp[r, cols + i]; gateUp is [rows, 2 * cols]. */
  swiglu(out: F32, gateUp: F32, rows: number, cols: number): void;
  /** dgateUp = gradient (overwrites). */
  swigluBackward(dgateUp: F32, dout: F32, gateUp: F32, rows: number, cols: number): void;
  /** out[r] = table[indices[r]]; the rows of a frozen table are its outputs. */
  gatherRows(out: F32, table: Matrix, indices: I32, rows: number, cols: number): void;
  /** table[indices[r]] = x[r]. */
  scatterRows(table: F32, x: StridedRows, indices: I32, rows: number, cols: number): void;
  /** table[indices[r]] += x[r], in the order of r. */
  scatterAddRows(table: F32, x: F32, indices: I32, rows: number, cols: number): void;

  // --- attention ------------------------------------------------------------------------------------------------
  attention(operation: Attention): void;
  attentionBackward(operation: AttentionBackward): void;
  attentionPaged(operation: AttentionPaged): void;
  rotateIntoPages(operation: RotateIntoPages): void;
  /** Absent where copying page by page is as fast. */
  copyPages?(operation: CopyPages): void;
  /** Whole blocks for a few rows; absent where operations one by one are as fast. */
  readonly fewRows?: FewRowKernels;

  // --- vocabulary -----------------------------------------------------------------------------------------------
  logSoftmaxGather(operation: LogSoftmaxGather): void;
  logitsGradient(operation: LogitsGradient): void;
  tokenGradients(operation: TokenGradients): void;
  chooseTokens(operation: ChooseTokens): void;
  topTokens(operation: TopTokensOperation): void;

  // --- whole buffers --------------------------------------------------------------------------------------------
  zero(x: F32): void;
  copy(out: F32, x: F32): void;
  /** out = a + b; may be in place. */
  add(out: F32, a: F32, b: F32): void;
  /** y += factor * x. */
  addScaled(y: F32, x: F32, factor: number): void;
  /** In place. */
  scale(x: F32, factor: number): void;
  /** In float64 where there is one: four sums by index modulo 4, added as (s0 + s1) + (s2 + s3). */
  sumSquares(x: F32): Promise<number>;
  /** One step of torch.optim.AdamW on weights, first and second moments, in place. */
  adamw(weights: F32, grad: F32, first: F32, second: F32, step: AdamWStep): void;

  /** Resolves when the device is gone, with all that was on it; absent where that cannot happen. */
  readonly lost?: Promise<EngineLostError>;
  close(): Promise<void>;
}

/** The device that computed is lost, and the adapters with it. */
export class EngineLostError extends Error {
  override name = "EngineLostError";
  /** Why, without what follows from it. */
  readonly reason: string;

  constructor(reason: string, consequence?: string) {
    super(consequence === undefined ? reason : `${reason}. ${consequence}`);
    this.reason = reason;
  }
}

/** Part of a buffer; stays valid as long as the buffer does. */
export function sliceBuffer<T extends F32 | I32>(buffer: T, start: number, length: number): T {
  if (start < 0 || length < 0 || start + length > buffer.length) {
    throw new RangeError(`slice ${start}..${start + length} of a buffer with ${buffer.length} elements`);
  }
  return { ...buffer, offset: buffer.offset + 4 * start, length };
}

/** A buffer from `start` to its end. */
export const from = <T extends F32 | I32>(buffer: T, start: number): T =>
  sliceBuffer(buffer, start, buffer.length - start);

/** Parts of a buffer can go into one operation where they begin at multiples of so many elements. */
const PART_ALIGNMENT = 64;

/** Where parts of these lengths begin in one buffer, and how long it is. */
export function partsOf<Lengths extends readonly number[]>(
  lengths: readonly [...Lengths],
): { starts: { [Part in keyof Lengths]: number }; length: number } {
  let length = 0;
  const starts = lengths.map((each) => {
    const start = length;
    length += Math.ceil(each / PART_ALIGNMENT) * PART_ALIGNMENT;
    return start;
  });
  return { starts: starts as { [Part in keyof Lengths]: number }, length };
}

/** A buffer's memory as whole numbers. */
export const asInts = (buffer: F32): I32 => ({ ...buffer, kind: "i32" });

/** Several buffers of one length, or none when memory does not suffice for all. */
export function allocAll(kernels: Kernels, length: number, count: number): F32[] {
  const buffers: F32[] = [];
  try {
    while (buffers.length < count) buffers.push(kernels.alloc(length));
  } catch (error) {
    for (const buffer of buffers) kernels.free(buffer);
    throw error;
  }
  return buffers;
}

/** Without it, weights that never had a gradient (B's, at first) would become 0 / 0. */
const MIN_EPS = 1e-30;

/** The scalars of one AdamW step, in float32 as every implementation must use them. */
export function adamwScalars(step: AdamWStep): {
  decay: number;
  oneMinusBeta1: number;
  beta2: number;
  oneMinusBeta2: number;
  stepSize: number;
  rootCorrection2: number;
  eps: number;
  gradScale: number;
} {
  const correction1 = 1 - step.beta1 ** step.step;
  const correction2 = 1 - step.beta2 ** step.step;
  return {
    decay: Math.fround(1 - step.learningRate * step.weightDecay),
    oneMinusBeta1: Math.fround(1 - step.beta1),
    beta2: Math.fround(step.beta2),
    oneMinusBeta2: Math.fround(1 - step.beta2),
    stepSize: Math.fround(step.learningRate / correction1),
    rootCorrection2: Math.fround(Math.sqrt(correction2)),
    eps: Math.fround(Math.max(step.eps, MIN_EPS)),
    gradScale: Math.fround(step.gradScale),
  };
}
