import { availableParallelism } from "node:os";
import { CpuMemory } from "./cpu-memory.js";
import {
  type AdamWStep,
  type AttentionShape,
  adamwScalars,
  type F32,
  type I32,
  type Kernels,
  type MatmulOptions,
  type Matrix,
  type Packed,
  type Rows,
} from "./kernels.js";
import { WasmMemory } from "./wasm-memory.js";
import { loadModule, type WasmExports, WorkerThreads } from "./wasm-threads.js";

export interface WasmKernelOptions {
  /** Threads that compute, the calling one included. Default: the processor's, at most 8. */
  threads?: number;
  /** Fused multiply-add where the processor has it: faster, but reproducible on one kind of processor only. */
  relaxedSimd?: boolean;
}

/** Memory below this belongs to the thread pool's own state. */
const reservedBytes = 4096;

export function createWasmKernels(options: WasmKernelOptions = {}): Kernels {
  return new WasmKernels(options);
}

/** Every operation in WebAssembly SIMD, on as many threads as asked, with the same bits for any number of them. */
class WasmKernels extends CpuMemory implements Kernels {
  readonly name: string;
  readonly threads: number;
  readonly #memory = new WasmMemory();
  readonly #wasm: WasmExports;
  readonly #workers: WorkerThreads;
  readonly #gemmScratchBytes: number;
  readonly #queryBlock: number;
  readonly #pagedBlock: number;
  #threadScratch = { offset: 0, bytes: 0 };

  constructor(options: WasmKernelOptions) {
    super(reservedBytes);
    this.threads = threadCount(options.threads);
    const variant = options.relaxedSimd ? "relaxed" : "plain";
    this.name = `wasm-${variant}`;
    const module = loadModule(variant);
    const { memory } = this.#memory;
    const { exports } = new WebAssembly.Instance(module, { env: { memory } });
    const constant = (name: string) => (exports[name] as WebAssembly.Global).value as number;
    this.#wasm = exports as unknown as WasmExports;
    this.#gemmScratchBytes = constant("GEMM_SCRATCH");
    this.#queryBlock = constant("QUERY_BLOCK");
    this.#pagedBlock = constant("PAGED_BLOCK");
    this.#needThreadScratch(1 << 20);
    this.#workers = new WorkerThreads(module, memory, this.#wasm, this.threads - 1);
  }

  /** Makes every thread's private memory at least `bytes` long. */
  #needThreadScratch(bytes: number): void {
    if (bytes <= this.#threadScratch.bytes) return;
    if (this.#threadScratch.offset > 0) this.arena.free(this.#threadScratch.offset);
    // Should there be no memory for more, nobody may go on in what was freed.
    this.#threadScratch = { offset: 0, bytes: 0 };
    const rounded = Math.ceil(bytes / 65_536) * 65_536;
    const offset = this.arena.alloc(rounded * this.threads);
    this.#threadScratch = { offset, bytes: rounded };
    this.#wasm["configure"]!(this.threads, offset, rounded);
  }

  protected get buffer(): ArrayBufferLike {
    return this.#memory.buffer;
  }

  protected ensure(bytes: number): void {
    this.#memory.ensure(bytes);
  }

  override get allocatedBytes(): number {
    return super.allocatedBytes - this.#threadScratch.bytes * this.threads;
  }

  close(): Promise<void> {
    return this.#workers.close();
  }

  pack(out: F32, x: F32, rows: number, cols: number): Packed {
    expect("out", out, rows * cols);
    expect("x", x, rows * cols);
    this.#wasm["packMatrix"]!(out.offset, x.offset, rows, cols);
    return { kind: "packed", offset: out.offset, rows, cols };
  }

  matmul(c: F32, a: F32, b: Matrix, m: number, n: number, k: number, options: MatmulOptions = {}): void {
    const { transA = false, transB = false, accumulate = false } = options;
    const lda = options.lda ?? (transA ? m : k);
    const ldc = options.ldc ?? n;
    if (m === 0 || n === 0) return;
    expectRows("c", c, m, ldc, n);
    if (k > 0) expectRows("a", a, transA ? k : m, lda, transA ? m : k);
    this.#wasm["matmul"]!(
      c.offset,
      4 * ldc,
      a.offset,
      transA ? 4 : 4 * lda,
      transA ? 4 * lda : 4,
      ...rightSide(b, n, k, transB, options.ldb),
      m,
      n,
      k,
      accumulate ? 1 : 0,
    );
  }

  rmsNorm(out: F32, rstd: F32, x: F32, weight: F32, rows: number, cols: number, eps: number): void {
    expect("out", out, rows * cols);
    expect("rstd", rstd, rows);
    expect("x", x, rows * cols);
    expect("weight", weight, cols);
    this.#wasm["rmsNorm"]!(out.offset, rstd.offset, x.offset, weight.offset, rows, cols, eps);
  }

  rmsNormBackward(
    dx: F32,
    dweight: F32 | null,
    dout: F32,
    x: F32,
    rstd: F32,
    weight: F32,
    rows: number,
    cols: number,
  ): void {
    expect("dx", dx, rows * cols);
    expect("dout", dout, rows * cols);
    expect("x", x, rows * cols);
    expect("rstd", rstd, rows);
    expect("weight", weight, cols);
    if (dweight) expect("dweight", dweight, cols);
    this.#wasm["rmsNormBackward"]!(
      dx.offset,
      dweight?.offset ?? 0,
      dout.offset,
      x.offset,
      rstd.offset,
      weight.offset,
      rows,
      cols,
    );
  }

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
  ): void {
    const normed = weight !== null && rstd !== null;
    expectRows("out", out.data, rows, out.stride, heads * headDim);
    expectRows("x", x.data, rows, x.stride, heads * headDim);
    expect("positions", positions, rows);
    if (normed) expect("rstd", rstd, rows * heads);
    this.#wasm["normRope"]!(
      out.data.offset,
      4 * out.stride,
      normed ? rstd.offset : 0,
      x.data.offset,
      4 * x.stride,
      normed ? weight.offset : 0,
      cos.offset,
      sin.offset,
      positions.offset,
      rows,
      heads,
      headDim,
      eps,
    );
  }

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
  ): void {
    const normed = weight !== null && rstd !== null;
    expectRows("dx", dx.data, rows, dx.stride, heads * headDim);
    expectRows("dout", dout.data, rows, dout.stride, heads * headDim);
    expectRows("x", x.data, rows, x.stride, heads * headDim);
    expect("positions", positions, rows);
    if (normed) expect("rstd", rstd, rows * heads);
    if (dweight) expect("dweight", dweight, headDim);
    this.#wasm["normRopeBackward"]!(
      dx.data.offset,
      4 * dx.stride,
      dweight?.offset ?? 0,
      dout.data.offset,
      4 * dout.stride,
      x.data.offset,
      4 * x.stride,
      normed ? rstd.offset : 0,
      normed ? weight.offset : 0,
      cos.offset,
      sin.offset,
      positions.offset,
      rows,
      heads,
      headDim,
    );
  }

  swiglu(out: F32, gateUp: F32, rows: number, cols: number): void {
    expect("out", out, rows * cols);
    expect("gateUp", gateUp, 2 * rows * cols);
    this.#wasm["swiglu"]!(out.offset, gateUp.offset, rows, cols);
  }

  swigluBackward(dgateUp: F32, dout: F32, gateUp: F32, rows: number, cols: number): void {
    expect("dgateUp", dgateUp, 2 * rows * cols);
    expect("dout", dout, rows * cols);
    expect("gateUp", gateUp, 2 * rows * cols);
    this.#wasm["swigluBackward"]!(dgateUp.offset, dout.offset, gateUp.offset, rows, cols);
  }

  gatherRows(out: F32, table: F32, indices: I32, rows: number, cols: number): void {
    expect("out", out, rows * cols);
    this.#expectIndices("indices", indices, rows, Math.floor(table.length / cols));
    this.#wasm["gatherRows"]!(out.offset, table.offset, indices.offset, rows, cols);
  }

  scatterRows(table: F32, x: Rows, indices: I32, rows: number, cols: number): void {
    expectRows("x", x.data, rows, x.stride, cols);
    this.#expectIndices("indices", indices, rows, Math.floor(table.length / cols));
    this.#wasm["scatterRows"]!(table.offset, x.data.offset, 4 * x.stride, indices.offset, rows, cols);
  }

  scatterAddRows(table: F32, x: F32, indices: I32, rows: number, cols: number): void {
    expect("x", x, rows * cols);
    this.#expectIndices("indices", indices, rows, Math.floor(table.length / cols));
    this.#wasm["scatterAddRows"]!(table.offset, x.offset, indices.offset, rows, cols);
  }

  attention(
    out: F32,
    lse: F32,
    q: Rows,
    k: Rows,
    v: Rows,
    offsets: I32,
    sequences: number,
    shape: AttentionShape,
  ): void {
    const { heads, kvHeads, headDim } = shape;
    const { rows, longest } = this.#sequenceLengths(offsets, sequences);
    expect("out", out, rows * heads * headDim);
    expect("lse", lse, rows * heads);
    expectRows("q", q.data, rows, q.stride, heads * headDim);
    expectRows("k", k.data, rows, k.stride, kvHeads * headDim);
    expectRows("v", v.data, rows, v.stride, kvHeads * headDim);
    this.#needThreadScratch(this.#gemmScratchBytes + this.#queryBlock * (4 * (longest + 4) + 4));
    this.#wasm["attention"]!(
      out.offset,
      lse.offset,
      q.data.offset,
      4 * q.stride,
      k.data.offset,
      4 * k.stride,
      v.data.offset,
      4 * v.stride,
      offsets.offset,
      sequences,
      heads,
      kvHeads,
      headDim,
      shape.scale,
    );
  }

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
  ): void {
    const { heads, kvHeads, headDim } = shape;
    const { rows, longest } = this.#sequenceLengths(offsets, sequences);
    for (const [name, part] of [["dq", dq] as const, ["q", q] as const]) {
      expectRows(name, part.data, rows, part.stride, heads * headDim);
    }
    for (const [name, part] of [
      ["dk", dk] as const,
      ["dv", dv] as const,
      ["k", k] as const,
      ["v", v] as const,
    ]) {
      expectRows(name, part.data, rows, part.stride, kvHeads * headDim);
    }
    expect("dout", dout, rows * heads * headDim);
    expect("out", out, rows * heads * headDim);
    expect("lse", lse, rows * heads);
    this.#needThreadScratch(this.#gemmScratchBytes + 2 * this.#queryBlock * 4 * (longest + 4));
    this.#wasm["attentionBackward"]!(
      dq.data.offset,
      4 * dq.stride,
      dk.data.offset,
      4 * dk.stride,
      dv.data.offset,
      4 * dv.stride,
      dout.offset,
      q.data.offset,
      4 * q.stride,
      k.data.offset,
      4 * k.stride,
      v.data.offset,
      4 * v.stride,
      out.offset,
      lse.offset,
      offsets.offset,
      sequences,
      heads,
      kvHeads,
      headDim,
      shape.scale,
    );
  }

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
  ): void {
    const { heads, kvHeads, headDim } = shape;
    expect("out", out, rows * heads * headDim);
    expectRows("q", q.data, rows, q.stride, heads * headDim);
    expect("tables", tables, rows * maxPages);
    expect("lengths", lengths, rows);
    const together = Math.max(this.#pagedBlock, heads / kvHeads) + 16;
    this.#needThreadScratch(this.#gemmScratchBytes + together * 4 * (maxPages * pageSize + 5));
    this.#wasm["attentionPaged"]!(
      out.offset,
      q.data.offset,
      4 * q.stride,
      kPages.offset,
      vPages.offset,
      tables.offset,
      lengths.offset,
      rows,
      maxPages,
      pageSize,
      heads,
      kvHeads,
      headDim,
      shape.scale,
    );
  }

  logSoftmaxGather(
    logprobs: F32,
    lse: F32,
    logits: F32,
    targets: I32,
    rows: number,
    vocab: number,
    targetsPerRow: number,
  ): void {
    expect("logprobs", logprobs, rows * targetsPerRow);
    expect("lse", lse, rows);
    expect("logits", logits, rows * vocab);
    this.#expectIndices("targets", targets, rows * targetsPerRow, vocab);
    this.#wasm["logSoftmaxGather"]!(
      logprobs.offset,
      lse.offset,
      logits.offset,
      targets.offset,
      rows,
      vocab,
      targetsPerRow,
    );
  }

  logitsGradient(
    logits: F32,
    lse: F32,
    targets: I32,
    coefficients: F32,
    rows: number,
    vocab: number,
    targetsPerRow: number,
  ): void {
    expect("logits", logits, rows * vocab);
    expect("lse", lse, rows);
    expect("coefficients", coefficients, rows * targetsPerRow);
    this.#expectIndices("targets", targets, rows * targetsPerRow, vocab);
    this.#wasm["logitsGradient"]!(
      logits.offset,
      lse.offset,
      targets.offset,
      coefficients.offset,
      rows,
      vocab,
      targetsPerRow,
    );
  }

  zero(x: F32): void {
    this.#wasm["zero"]!(x.offset, x.length);
  }

  copy(out: F32, x: F32): void {
    expect("out", out, x.length);
    this.#wasm["copy"]!(out.offset, x.offset, x.length);
  }

  add(out: F32, a: F32, b: F32): void {
    expect("a", a, out.length);
    expect("b", b, out.length);
    this.#wasm["add"]!(out.offset, a.offset, b.offset, out.length);
  }

  addScaled(y: F32, x: F32, factor: number): void {
    expect("x", x, y.length);
    this.#wasm["addScaled"]!(y.offset, x.offset, factor, y.length);
  }

  scale(x: F32, factor: number): void {
    this.#wasm["scale"]!(x.offset, factor, x.length);
  }

  sumSquares(x: F32): number {
    return this.#wasm["sumSquares"]!(x.offset, x.length);
  }

  adamw(weights: F32, grad: F32, first: F32, second: F32, step: AdamWStep): void {
    expect("grad", grad, weights.length);
    expect("first", first, weights.length);
    expect("second", second, weights.length);
    const scalars = adamwScalars(step);
    this.#wasm["adamw"]!(
      weights.offset,
      grad.offset,
      first.offset,
      second.offset,
      weights.length,
      scalars.decay,
      scalars.oneMinusBeta1,
      scalars.beta2,
      scalars.oneMinusBeta2,
      scalars.stepSize,
      scalars.rootCorrection2,
      scalars.eps,
      scalars.gradScale,
    );
  }

  #sequenceLengths(offsets: I32, sequences: number): { rows: number; longest: number } {
    expect("offsets", offsets, sequences + 1);
    const values = this.viewInts(offsets);
    let longest = 0;
    for (let sequence = 0; sequence < sequences; sequence++) {
      const length = values[sequence + 1]! - values[sequence]!;
      if (length < 0)
        throw new RangeError(`offsets must not fall, got ${length} rows in sequence ${sequence}`);
      longest = Math.max(longest, length);
    }
    return { rows: values[sequences]!, longest };
  }

  /** A wrong index would read or write someone else's memory without a sound. */
  #expectIndices(name: string, indices: I32, count: number, limit: number): void {
    expect(name, indices, count);
    const values = this.viewInts(indices);
    for (let i = 0; i < count; i++) {
      const value = values[i]!;
      if (value < 0 || value >= limit) {
        throw new RangeError(`${name}[${i}] is ${value}, expected 0 to ${limit - 1}`);
      }
    }
  }
}

/** Layout, offset and two strides (or the packed matrix' height and width), as matmul in wasm/gemm.ts wants them. */
function rightSide(
  b: Matrix,
  n: number,
  k: number,
  transB: boolean,
  ldb = transB ? k : n,
): [number, number, number, number] {
  const [rows, cols] = transB ? [n, k] : [k, n];
  if (b.kind === "packed") {
    if (b.rows !== rows || b.cols !== cols) {
      throw new RangeError(`b is packed as ${b.rows} x ${b.cols}, the operation needs ${rows} x ${cols}`);
    }
    return [transB ? 2 : 1, b.offset, rows, cols];
  }
  if (k > 0) expectRows("b", b, rows, ldb, cols);
  return [0, b.offset, transB ? 4 : 4 * ldb, transB ? 4 * ldb : 4];
}

function threadCount(asked: number | undefined): number {
  if (asked === undefined) return Math.min(8, availableParallelism());
  if (!Number.isInteger(asked) || asked < 1 || asked > 64) {
    throw new RangeError(`threads must be a whole number from 1 to 64, got ${asked}`);
  }
  return asked;
}

function expect(name: string, buffer: F32 | I32, length: number): void {
  if (buffer.length < length) {
    throw new RangeError(`${name} has ${buffer.length} elements, the operation needs ${length}`);
  }
}

function expectRows(name: string, buffer: F32, rows: number, stride: number, cols: number): void {
  if (stride < cols) throw new RangeError(`${name} has rows ${stride} apart, but they are ${cols} wide`);
  if (rows > 0) expect(name, buffer, (rows - 1) * stride + cols);
}
