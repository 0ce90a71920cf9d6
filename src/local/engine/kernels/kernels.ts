/**
 * The numerical operations that the engine is made of: float32, row-major, over buffers in one arena.
 *
 * Rules that every implementation keeps, because the engine's reproducibility rests on them:
 * - `matmul` computes every element as one chain of float32 multiply-then-add in the order of k, starting at zero,
 *   or at the element's old value with `accumulate`. So one product over rows 0..7 equals two over 0..3 and 4..7.
 * - A row's result never depends on which other rows are in the call, nor on the number of threads.
 * - `attention` and `attentionPaged` give the same bits for the same query over the same keys.
 * Operations are synchronous in submission. Outputs must not overlap inputs unless a comment says "in place".
 */

/** A block of float32 in the arena. `offset` is in bytes and is nobody's business but the implementation's. */
export interface F32 {
  readonly kind: "f32";
  readonly offset: number;
  readonly length: number;
}

/** A block of int32 in the arena. */
export interface I32 {
  readonly kind: "i32";
  readonly offset: number;
  readonly length: number;
}

/** A matrix that `pack` has rearranged in whatever way the implementation reads fastest; as large as the matrix itself. */
export interface Packed {
  readonly kind: "packed";
  readonly offset: number;
  readonly rows: number;
  readonly cols: number;
}

/** What a product can have on its right. */
export type Matrix = F32 | Packed;

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
export interface Rows {
  readonly data: F32;
  readonly stride: number;
}

export interface AttentionShape {
  heads: number;
  kvHeads: number;
  headDim: number;
  /** Factor on the scores, normally 1 / sqrt(headDim). */
  scale: number;
}

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

export interface Kernels {
  readonly name: string;
  readonly threads: number;

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
  /** Throws a RangeError where so much scratch cannot be had; otherwise it can, from now on. Only while none is taken. */
  reserveScratch(length: number): void;
  /** Bytes in use by `alloc`/`allocInts` (scratch not counted). */
  readonly allocatedBytes: number;
  /** Direct window on CPU implementations; valid until the next `alloc` or `scratch` call (the arena may grow). */
  view(buffer: F32): Float32Array;
  viewInts(buffer: I32): Int32Array;
  upload(buffer: F32, data: Float32Array): void;
  uploadInts(buffer: I32, data: Int32Array): void;
  download(buffer: F32): Promise<Float32Array>;

  // --- products -------------------------------------------------------------------------------------------------
  /** Rearranges the rows x cols matrix `x` into `out`, for weights that many products read and nobody changes. */
  pack(out: F32, x: F32, rows: number, cols: number): Packed;
  /**
   * c[m,n] = a[m,k] * b[k,n] (after the transpositions the options name). With few rows (decoding) a packed `b` is read
   * fastest, then one stored k x n, at half the speed one with `transB`; with many rows the layouts cost nearly the same.
   */
  matmul(c: F32, a: F32, b: Matrix, m: number, n: number, k: number, options?: MatmulOptions): void;

  // --- rows -----------------------------------------------------------------------------------------------------
  /** out = x * rstd * weight with rstd[row] = 1 / sqrt(mean(x^2) + eps). */
  rmsNorm(out: F32, rstd: F32, x: F32, weight: F32, rows: number, cols: number, eps: number): void;
  /** dx += gradient; dweight (when given) += sum over rows in order. */
  rmsNormBackward(
    dx: F32,
    dweight: F32 | null,
    dout: F32,
    x: F32,
    rstd: F32,
    weight: F32,
    rows: number,
    cols: number,
  ): void;
  /**
   * Per head: RMSNorm with `weight` (QK-norm; skipped, with `rstd`, when null), then rotary embedding in the half-split
   * layout of Hugging Face: out[i] = y[i]*cos - y[i+h]*sin, out[i+h] = y[i+h]*cos + y[i]*sin, h = headDim/2.
   * `cos`, `sin` are [position, headDim/2]; `rstd` is [rows, heads].
   */
  normRope(
    out: Rows,
    rstd: F32 | null,
    x: Rows,
    weight: F32 | null,
    cos: F32,
    sin: F32,
    positions: I32,
    rows: number,
    heads: number,
    headDim: number,
    eps: number,
  ): void;
  /** dx = gradient (overwrites); dweight (when given) += sum over rows, heads in order. */
  normRopeBackward(
    dx: Rows,
    dweight: F32 | null,
    dout: Rows,
    x: Rows,
    rstd: F32 | null,
    weight: F32 | null,
    cos: F32,
    sin: F32,
    positions: I32,
    rows: number,
    heads: number,
    headDim: number,
  ): void;
  /** out[r, i] = silu(gateUp[r, i]) * gateUp[r, cols + i]; gateUp is [rows, 2 * cols]. */
  swiglu(out: F32, gateUp: F32, rows: number, cols: number): void;
  /** dgateUp = gradient (overwrites). */
  swigluBackward(dgateUp: F32, dout: F32, gateUp: F32, rows: number, cols: number): void;
  /** out[r] = table[indices[r]]. */
  gatherRows(out: F32, table: F32, indices: I32, rows: number, cols: number): void;
  /** table[indices[r]] = x[r]. */
  scatterRows(table: F32, x: Rows, indices: I32, rows: number, cols: number): void;
  /** table[indices[r]] += x[r], in the order of r. */
  scatterAddRows(table: F32, x: F32, indices: I32, rows: number, cols: number): void;

  // --- attention ------------------------------------------------------------------------------------------------
  /**
   * Causal attention inside each of `sequences` packed sequences; sequence s owns rows offsets[s]..offsets[s+1].
   * q rows hold heads*headDim values, k and v rows kvHeads*headDim; out is [rows, heads*headDim]; lse is [rows, heads].
   * Semantics per row and head: scores in order of headDim, exact maximum, e_j = exp(s_j - max), out = sum e_j v_j / sum e_j.
   */
  attention(
    out: F32,
    lse: F32,
    q: Rows,
    k: Rows,
    v: Rows,
    offsets: I32,
    sequences: number,
    shape: AttentionShape,
  ): void;
  /** dq, dk, dv = gradients (overwrite). */
  attentionBackward(
    dq: Rows,
    dk: Rows,
    dv: Rows,
    dout: F32,
    q: Rows,
    k: Rows,
    v: Rows,
    out: F32,
    lse: F32,
    offsets: I32,
    sequences: number,
    shape: AttentionShape,
  ): void;
  /**
   * Each of `rows` queries attends to the first lengths[r] keys of its own page table (prefill and decode alike).
   * Key j of row r is stored row tables[r*maxPages + floor(j/pageSize)] * pageSize + j % pageSize of kPages/vPages,
   * each stored row holding kvHeads*headDim values.
   */
  attentionPaged(
    out: F32,
    q: Rows,
    kPages: F32,
    vPages: F32,
    tables: I32,
    lengths: I32,
    rows: number,
    maxPages: number,
    pageSize: number,
    shape: AttentionShape,
  ): void;

  // --- vocabulary -----------------------------------------------------------------------------------------------
  /** lse[row] = log sum exp(logits[row]); logprobs[row, j] = logits[row, targets[row, j]] - lse[row]. */
  logSoftmaxGather(
    logprobs: F32,
    lse: F32,
    logits: F32,
    targets: I32,
    rows: number,
    vocab: number,
    targetsPerRow: number,
  ): void;
  /** In place: logits become sum_j coefficients[row, j] * (onehot(targets[row, j]) - softmax(row)). */
  logitsGradient(
    logits: F32,
    lse: F32,
    targets: I32,
    coefficients: F32,
    rows: number,
    vocab: number,
    targetsPerRow: number,
  ): void;

  // --- whole buffers --------------------------------------------------------------------------------------------
  zero(x: F32): void;
  copy(out: F32, x: F32): void;
  /** out = a + b; may be in place. */
  add(out: F32, a: F32, b: F32): void;
  /** y += factor * x. */
  addScaled(y: F32, x: F32, factor: number): void;
  /** In place. */
  scale(x: F32, factor: number): void;
  /** Four float64 sums of squares by index modulo 4, added as (s0 + s1) + (s2 + s3). */
  sumSquares(x: F32): number;
  /** One step of torch.optim.AdamW on weights, first and second moments, in place. */
  adamw(weights: F32, grad: F32, first: F32, second: F32, step: AdamWStep): void;

  close(): Promise<void>;
}

/** Part of a buffer; stays valid as long as the buffer does. */
export function slice<T extends F32 | I32>(buffer: T, start: number, length: number): T {
  if (start < 0 || length < 0 || start + length > buffer.length) {
    throw new RangeError(`slice ${start}..${start + length} of a buffer with ${buffer.length} elements`);
  }
  return { ...buffer, offset: buffer.offset + 4 * start, length };
}

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

/** With none at all, weights that never had a gradient (B's, at first) would become 0 / 0. */
const leastEps = 1e-30;

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
    eps: Math.fround(Math.max(step.eps, leastEps)),
    gradScale: Math.fround(step.gradScale),
  };
}
