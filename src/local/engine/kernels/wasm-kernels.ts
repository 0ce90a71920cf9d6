import { CpuMemory } from "./cpu-memory.js";
import {
  type AdamWStep,
  type Attention,
  type AttentionBackward,
  type AttentionPaged,
  adamwScalars,
  type F32,
  type Frozen,
  type I32,
  type Kernels,
  type LogitsGradient,
  type LogSoftmaxGather,
  type MatmulOptions,
  type Matrix,
  type NormRope,
  type NormRopeBackward,
  type RmsNorm,
  type RmsNormBackward,
  type RotateIntoPages,
  type Rows,
} from "./kernels.js";
import { readPanels, writePanels } from "./panels.js";
import { rotateIntoPages } from "./rotate-into-pages.js";
import { WasmMemory } from "./wasm-memory.js";

/** What the wasm modules export; pointers and strides are in bytes. The sources in wasm/ say what each one does. */
export type WasmExports = Record<string, (...numbers: number[]) => number>;

/** Threads beside the calling one, which wait for work. */
export interface WasmThreads {
  close(): Promise<void>;
}

/** Where the kernels run on more than the calling thread. */
export interface WasmKernelSettings {
  name: string;
  /** The calling one included. */
  threads: number;
  startThreads(memory: WebAssembly.Memory, exports: WasmExports): WasmThreads;
}

/** Memory below this belongs to the thread pool's own state. */
const RESERVED_BYTES = 4096;

/** Every operation in WebAssembly SIMD, on as many threads as asked, with the same bits for any number of them. */
export class WasmKernels extends CpuMemory implements Kernels {
  readonly name: string;
  readonly threads: number;
  readonly #memory = new WasmMemory();
  readonly #wasm: WasmExports;
  readonly #otherThreads: WasmThreads | undefined;
  readonly #gemmScratchBytes: number;
  readonly #queryBlock: number;
  readonly #pagedBlock: number;
  #threadScratch = { offset: 0, bytes: 0 };

  /** `module` is one of the kernels-*.wasm; without settings it runs on the calling thread alone. */
  constructor(module: WebAssembly.Module, settings?: WasmKernelSettings) {
    super(RESERVED_BYTES);
    this.name = settings?.name ?? "wasm-plain";
    this.threads = settings?.threads ?? 1;
    const { memory } = this.#memory;
    const { exports } = new WebAssembly.Instance(module, { env: { memory } });
    const constant = (name: string) => (exports[name] as WebAssembly.Global).value as number;
    this.#wasm = exports as unknown as WasmExports;
    this.#gemmScratchBytes = constant("GEMM_SCRATCH");
    this.#queryBlock = constant("QUERY_BLOCK");
    this.#pagedBlock = constant("PAGED_BLOCK");
    this.#needThreadScratch(1 << 20);
    this.#otherThreads = settings?.startThreads(memory, this.#wasm);
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

  async close(): Promise<void> {
    await this.#otherThreads?.close();
  }

  protected writeOutput(matrix: Frozen, output: number, weights: Float32Array): void {
    writePanels(this.#panels(matrix), matrix, output, weights);
  }

  #panels({ offset, inputs, outputs }: Frozen): Float32Array {
    return new Float32Array(this.buffer, offset, inputs * outputs);
  }

  matmul(c: F32, a: F32, b: Matrix, m: number, n: number, k: number, options: MatmulOptions = {}): void {
    const { transA = false, transB = false, accumulate = false } = options;
    const lda = options.lda ?? (transA ? m : k);
    const ldc = options.ldc ?? n;
    if (m === 0 || n === 0) return;
    expectRows("c", { data: c, stride: ldc }, m, n);
    if (k > 0) expectRows("a", { data: a, stride: lda }, transA ? k : m, transA ? m : k);
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

  rmsNorm({ out, rstd, x, weight, rows, cols, eps }: RmsNorm): void {
    expect("out", out, rows * cols);
    expect("rstd", rstd, rows);
    expect("x", x, rows * cols);
    expect("weight", weight, cols);
    this.#wasm["rmsNorm"]!(out.offset, rstd.offset, x.offset, weight.offset, rows, cols, eps);
  }

  rmsNormBackward({ dx, dweight, dout, x, rstd, weight, rows, cols }: RmsNormBackward): void {
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

  normRope({ out, rstd, x, weight, angles, rows, heads, headDim, eps }: NormRope): void {
    const { cos, sin, positions } = angles;
    const normed = weight !== undefined && rstd !== undefined;
    expectRows("out", out, rows, heads * headDim);
    expectRows("x", x, rows, heads * headDim);
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

  normRopeBackward(operation: NormRopeBackward): void {
    const { dx, dweight, dout, x, rstd, weight, rows, heads, headDim } = operation;
    const { cos, sin, positions } = operation.angles;
    const normed = weight !== undefined && rstd !== undefined;
    expectRows("dx", dx, rows, heads * headDim);
    expectRows("dout", dout, rows, heads * headDim);
    expectRows("x", x, rows, heads * headDim);
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

  gatherRows(out: F32, table: Matrix, indices: I32, rows: number, cols: number): void {
    expect("out", out, rows * cols);
    if (table.kind === "frozen") {
      this.#gatherOutputs(out, table, indices, rows, cols);
      return;
    }
    this.#expectIndices("indices", indices, rows, Math.floor(table.length / cols));
    this.#wasm["gatherRows"]!(out.offset, table.offset, indices.offset, rows, cols);
  }

  #gatherOutputs(out: F32, table: Frozen, indices: I32, rows: number, cols: number): void {
    if (table.inputs !== cols) {
      throw new RangeError(`the table is frozen with rows of ${table.inputs}, the operation needs ${cols}`);
    }
    this.#expectIndices("indices", indices, rows, table.outputs);
    const [values, outputs, panels] = [this.view(out), this.viewInts(indices), this.#panels(table)];
    for (let row = 0; row < rows; row++) {
      readPanels(values.subarray(row * cols, (row + 1) * cols), panels, table, outputs[row]!);
    }
  }

  scatterRows(table: F32, x: Rows, indices: I32, rows: number, cols: number): void {
    expectRows("x", x, rows, cols);
    this.#expectIndices("indices", indices, rows, Math.floor(table.length / cols));
    this.#wasm["scatterRows"]!(table.offset, x.data.offset, 4 * x.stride, indices.offset, rows, cols);
  }

  scatterAddRows(table: F32, x: F32, indices: I32, rows: number, cols: number): void {
    expect("x", x, rows * cols);
    this.#expectIndices("indices", indices, rows, Math.floor(table.length / cols));
    this.#wasm["scatterAddRows"]!(table.offset, x.offset, indices.offset, rows, cols);
  }

  attention(operation: Attention): void {
    const { out, logSumExp, query, key, value, offsets, shape } = operation;
    const longest = this.#expectAttention(operation);
    this.#needThreadScratch(this.#gemmScratchBytes + this.#queryBlock * (4 * (longest + 4) + 4));
    this.#wasm["attention"]!(
      out.offset,
      logSumExp.offset,
      query.data.offset,
      4 * query.stride,
      key.data.offset,
      4 * key.stride,
      value.data.offset,
      4 * value.stride,
      offsets.offset,
      offsets.length - 1,
      shape.heads,
      shape.kvHeads,
      shape.headDim,
      shape.scale,
    );
  }

  attentionBackward(operation: AttentionBackward): void {
    const { dquery, dkey, dvalue, dout, query, key, value, out, logSumExp, offsets, shape } = operation;
    const longest = this.#expectAttention(operation);
    const gradients = { query: dquery, key: dkey, value: dvalue };
    this.#expectAttention({ ...gradients, out: dout, logSumExp, offsets, shape });
    this.#needThreadScratch(this.#gemmScratchBytes + 2 * this.#queryBlock * 4 * (longest + 4));
    this.#wasm["attentionBackward"]!(
      dquery.data.offset,
      4 * dquery.stride,
      dkey.data.offset,
      4 * dkey.stride,
      dvalue.data.offset,
      4 * dvalue.stride,
      dout.offset,
      query.data.offset,
      4 * query.stride,
      key.data.offset,
      4 * key.stride,
      value.data.offset,
      4 * value.stride,
      out.offset,
      logSumExp.offset,
      offsets.offset,
      offsets.length - 1,
      shape.heads,
      shape.kvHeads,
      shape.headDim,
      shape.scale,
    );
  }

  /** Returns the length of the longest sequence. */
  #expectAttention({ out, logSumExp, query, key, value, offsets, shape }: Attention): number {
    const { heads, kvHeads, headDim } = shape;
    const { rows, longest } = this.#sequenceLengths(offsets);
    expect("out", out, rows * heads * headDim);
    expect("logSumExp", logSumExp, rows * heads);
    expectRows("query", query, rows, heads * headDim);
    expectRows("key", key, rows, kvHeads * headDim);
    expectRows("value", value, rows, kvHeads * headDim);
    return longest;
  }

  rotateIntoPages(operation: RotateIntoPages): void {
    rotateIntoPages(this, operation);
  }

  attentionPaged(operation: AttentionPaged): void {
    const { out, query, keyPages, valuePages, pageTables, lengths, rows, pagesPerRow, pageSize } = operation;
    const { heads, kvHeads, headDim, scale } = operation.shape;
    expect("out", out, rows * heads * headDim);
    expectRows("query", query, rows, heads * headDim);
    expect("pageTables", pageTables, rows * pagesPerRow);
    expect("lengths", lengths, rows);
    const together = Math.max(this.#pagedBlock, heads / kvHeads) + 16;
    this.#needThreadScratch(this.#gemmScratchBytes + together * 4 * (pagesPerRow * pageSize + 5));
    this.#wasm["attentionPaged"]!(
      out.offset,
      query.data.offset,
      4 * query.stride,
      keyPages.offset,
      valuePages.offset,
      pageTables.offset,
      lengths.offset,
      rows,
      pagesPerRow,
      pageSize,
      heads,
      kvHeads,
      headDim,
      scale,
    );
  }

  logSoftmaxGather(operation: LogSoftmaxGather): void {
    const { logprobs, logSumExp, logits, targets, rows, vocabSize, targetsPerRow } = operation;
    expect("logprobs", logprobs, rows * targetsPerRow);
    expect("logSumExp", logSumExp, rows);
    expect("logits", logits, rows * vocabSize);
    this.#expectIndices("targets", targets, rows * targetsPerRow, vocabSize);
    this.#wasm["logSoftmaxGather"]!(
      logprobs.offset,
      logSumExp.offset,
      logits.offset,
      targets.offset,
      rows,
      vocabSize,
      targetsPerRow,
    );
  }

  logitsGradient(operation: LogitsGradient): void {
    const { logits, logSumExp, targets, coefficients, rows, vocabSize, targetsPerRow } = operation;
    expect("logits", logits, rows * vocabSize);
    expect("logSumExp", logSumExp, rows);
    expect("coefficients", coefficients, rows * targetsPerRow);
    this.#expectIndices("targets", targets, rows * targetsPerRow, vocabSize);
    this.#wasm["logitsGradient"]!(
      logits.offset,
      logSumExp.offset,
      targets.offset,
      coefficients.offset,
      rows,
      vocabSize,
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

  async sumSquares(x: F32): Promise<number> {
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

  #sequenceLengths(offsets: I32): { rows: number; longest: number } {
    const values = this.viewInts(offsets);
    let longest = 0;
    for (let sequence = 0; sequence + 1 < values.length; sequence++) {
      const length = values[sequence + 1]! - values[sequence]!;
      if (length < 0)
        throw new RangeError(`offsets must not fall, got ${length} rows in sequence ${sequence}`);
      longest = Math.max(longest, length);
    }
    return { rows: values.at(-1)!, longest };
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

/** Layout, offset and two strides (or a frozen matrix' inputs and outputs), as matmul in wasm/gemm.ts wants them. */
function rightSide(
  b: Matrix,
  n: number,
  k: number,
  transB: boolean,
  ldb = transB ? k : n,
): [number, number, number, number] {
  const [rows, cols] = transB ? [n, k] : [k, n];
  if (b.kind === "frozen") {
    if (b.inputs !== rows || b.outputs !== cols) {
      throw new RangeError(
        `b is frozen as ${b.inputs} x ${b.outputs}, the operation needs ${rows} x ${cols}`,
      );
    }
    return [transB ? 2 : 1, b.offset, rows, cols];
  }
  if (k > 0) expectRows("b", { data: b, stride: ldb }, rows, cols);
  return [0, b.offset, transB ? 4 : 4 * ldb, transB ? 4 * ldb : 4];
}

function expect(name: string, buffer: F32 | I32, length: number): void {
  if (buffer.length < length) {
    throw new RangeError(`${name} has ${buffer.length} elements, the operation needs ${length}`);
  }
}

function expectRows(name: string, { data, stride }: Rows, rows: number, cols: number): void {
  if (stride < cols) throw new RangeError(`${name} has rows ${stride} apart, but they are ${cols} wide`);
  if (rows > 0) expect(name, data, (rows - 1) * stride + cols);
}
