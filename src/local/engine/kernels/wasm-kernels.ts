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
  type StridedRows,
} from "./kernels.js";
import { readPanels, writePanels } from "./panels.js";
import { rotateOneByOne } from "./rotate-into-pages.js";
import { WasmMemory } from "./wasm-memory.js";
import {
  type AttentionForward,
  type WasmExports,
  type WasmOperations,
  writeParameters,
} from "./wasm-operations.js";

/** How an operation is cut: `items` rows, columns, elements or blocks, so many in a chunk; `work` in rough clock cycles. */
interface Cut {
  items: number;
  chunkItems: number;
  work: number;
}

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

/** Memory below this belongs to the thread pool; its parameters lie where wasm/pool.ts looks for them. */
const RESERVED_BYTES = 4096;
const POINTERS = { offset: 512, length: 64 };
const FLOATS = { offset: 768, length: 64 };

/** Rows or elements in a chunk: enough to outweigh taking it, and few enough to keep all threads busy. */
const ELEMENTS = 16_384;
const NORM_ROWS = 16;
const SWIGLU_ROWS = 8;
const COPIED_ROWS = 64;
const SUMMED_COLUMNS = 64;
const VOCABULARY_ROWS = 4;
/** As in wasm/gemm.ts: up to so many rows, packing A is much of the work. */
const FEW_ROWS = 32;
/** As in wasm/gemm.ts: the layout of a frozen matrix. */
const FROZEN = 1;

/** Every operation in WebAssembly SIMD, on as many threads as asked, with the same bits for any number of them. */
export class WasmKernels extends CpuMemory implements Kernels {
  readonly name: string;
  readonly threads: number;
  readonly #memory = new WasmMemory();
  readonly #wasm: WasmExports;
  /** Sizes, and numbers of operations, by their names. */
  readonly #constants: Record<string, number> = {};
  readonly #pointers: Uint32Array;
  readonly #floats: Float32Array;
  readonly #otherThreads: WasmThreads | undefined;
  #threadScratch = { offset: 0, bytes: 0 };

  /** `module` is one of the kernels-*.wasm; without settings it runs on the calling thread alone. */
  constructor(module: WebAssembly.Module, settings?: WasmKernelSettings) {
    super(RESERVED_BYTES);
    this.name = settings?.name ?? "wasm-plain";
    this.threads = settings?.threads ?? 1;
    const { memory } = this.#memory;
    const { exports } = new WebAssembly.Instance(module, { env: { memory } });
    for (const [name, value] of Object.entries(exports)) {
      if (value instanceof WebAssembly.Global) this.#constants[name.replace("Operation.", "")] = value.value;
    }
    this.#wasm = exports as unknown as WasmExports;
    // Shared memory stays where it is when it grows, so these remain valid.
    this.#pointers = new Uint32Array(memory.buffer, POINTERS.offset, POINTERS.length);
    this.#floats = new Float32Array(memory.buffer, FLOATS.offset, FLOATS.length);
    this.#needThreadScratch(1 << 20);
    this.#otherThreads = settings?.startThreads(memory, this.#wasm);
  }

  /** Makes every thread's private memory at least `bytes` long. */
  #needThreadScratch(bytes: number): void {
    if (bytes <= this.#threadScratch.bytes) return;
    if (this.#threadScratch.offset > 0) this.arena.free(this.#threadScratch.offset);
    // If there is no memory for more, what was freed must not be used.
    this.#threadScratch = { offset: 0, bytes: 0 };
    const rounded = Math.ceil(bytes / 65_536) * 65_536;
    const offset = this.arena.alloc(rounded * this.threads);
    this.#threadScratch = { offset, bytes: rounded };
    this.#wasm.configure(this.threads, offset, rounded);
  }

  #constant(name: string): number {
    return this.#constants[name]!;
  }

  #run<Name extends keyof WasmOperations>(
    name: Name,
    { items, chunkItems, work }: Cut,
    parameters: WasmOperations[Name],
    floats: readonly number[] = [],
  ): void {
    writeParameters(this.#pointers, parameters);
    for (let index = 0; index < floats.length; index++) this.#floats[index] = floats[index]!;
    this.#wasm.run(this.#constant(name), items, chunkItems, work);
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
    expectRows(m, n, "c", { data: c, stride: ldc });
    if (k > 0) expectRows(transA ? k : m, transA ? m : k, "a", { data: a, stride: lda });
    const { layout, bk, bj } = rightSide(b, n, k, transB, options.ldb);
    const cut = cutProduct(m, n, layout, this.threads);
    // A row or two do not keep another thread busy for long enough between the steps that only one can do.
    const work = (m < 4 ? 0.065 : 0.25) * m * n * k;
    const [ai, ak] = transA ? [4, 4 * lda] : [4 * lda, 4];
    this.#run("matmul", { items: cut.chunks, chunkItems: 1, work }, [
      { data: c, stride: ldc },
      a,
      ai,
      ak,
      b,
      bk,
      bj,
      m,
      n,
      k,
      accumulate ? 1 : 0,
      cut.rows,
      cut.cols,
      layout,
    ]);
  }

  rmsNorm({ out, rstd, x, weight, rows, cols, eps }: RmsNorm): void {
    expect(rows * cols, "out", out);
    expect(rows * cols, "x", x);
    expect(rows, "rstd", rstd);
    expect(cols, "weight", weight);
    const cut = { items: rows, chunkItems: NORM_ROWS, work: 1.5 * rows * cols };
    this.#run("rmsNorm", cut, [out, rstd, x, weight, rows, cols], [eps]);
  }

  rmsNormBackward({ dx, dweight, dout, x, rstd, weight, rows, cols }: RmsNormBackward): void {
    expect(rows * cols, "dx", dx);
    expect(rows * cols, "dout", dout);
    expect(rows * cols, "x", x);
    expect(rows, "rstd", rstd);
    expect(cols, "weight", weight);
    if (dweight) expect(cols, "dweight", dweight);
    const parameters: WasmOperations["rmsNormBackward"] = [dx, rstd, x, weight, rows, cols, dout, dweight];
    this.#run("rmsNormBackward", { items: rows, chunkItems: NORM_ROWS, work: 3 * rows * cols }, parameters);
    if (!dweight) return;
    this.#run("rmsNormWeight", { items: cols, chunkItems: SUMMED_COLUMNS, work: rows * cols }, parameters);
  }

  normRope(operation: NormRope): void {
    const { out, rows, heads, headDim, eps } = operation;
    const cut = { items: rows, chunkItems: NORM_ROWS, work: 3 * rows * heads * headDim };
    this.#run("normRope", cut, ropeParameters(out, operation), [eps]);
  }

  normRopeBackward(operation: NormRopeBackward): void {
    const { dx, dweight, dout, rows, heads, headDim } = operation;
    const values = rows * heads * headDim;
    expectRows(rows, heads * headDim, "dout", dout);
    if (dweight) expect(headDim, "dweight", dweight);
    const forward = ropeParameters(dx, operation);
    const parameters: WasmOperations["normRopeBackward"] = [...forward, dout, dweight];
    this.#run("normRopeBackward", { items: rows, chunkItems: NORM_ROWS, work: 4 * values }, parameters);
    if (!dweight || !operation.weight || !operation.rstd) return;
    const columns = Math.ceil(headDim / 8);
    this.#run("normRopeWeight", { items: columns, chunkItems: 1, work: 2 * values }, parameters);
  }

  swiglu(out: F32, gateUp: F32, rows: number, cols: number): void {
    expect(rows * cols, "out", out);
    expect(2 * rows * cols, "gateUp", gateUp);
    const cut = { items: rows, chunkItems: SWIGLU_ROWS, work: 6 * rows * cols };
    this.#run("swiglu", cut, [out, gateUp, cols]);
  }

  swigluBackward(dgateUp: F32, dout: F32, gateUp: F32, rows: number, cols: number): void {
    expect(2 * rows * cols, "dgateUp", dgateUp);
    expect(2 * rows * cols, "gateUp", gateUp);
    expect(rows * cols, "dout", dout);
    const cut = { items: rows, chunkItems: SWIGLU_ROWS, work: 8 * rows * cols };
    this.#run("swigluBackward", cut, [dgateUp, gateUp, cols, dout]);
  }

  gatherRows(out: F32, table: Matrix, indices: I32, rows: number, cols: number): void {
    expect(rows * cols, "out", out);
    if (table.kind === "frozen") {
      this.#gatherOutputs(out, table, indices, rows, cols);
      return;
    }
    this.#expectIndices("indices", indices, rows, Math.floor(table.length / cols));
    const cut = { items: rows, chunkItems: COPIED_ROWS, work: 0.5 * rows * cols };
    this.#run("gatherRows", cut, [out, table, indices, cols]);
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

  scatterRows(table: F32, x: StridedRows, indices: I32, rows: number, cols: number): void {
    expectRows(rows, cols, "x", x);
    this.#expectIndices("indices", indices, rows, Math.floor(table.length / cols));
    const cut = { items: rows, chunkItems: COPIED_ROWS, work: 0.5 * rows * cols };
    this.#run("scatterRows", cut, [table, x, indices, cols]);
  }

  scatterAddRows(table: F32, x: F32, indices: I32, rows: number, cols: number): void {
    expect(rows * cols, "x", x);
    this.#expectIndices("indices", indices, rows, Math.floor(table.length / cols));
    const cut = { items: cols, chunkItems: SUMMED_COLUMNS, work: rows * cols };
    this.#run("scatterAddRows", cut, [table, x, indices, cols, rows]);
  }

  attention(operation: Attention): void {
    const { heads, kvHeads, headDim, scale } = operation.shape;
    const { longest, blocks, pairs } = this.#expectAttention(operation);
    this.#needThreadScratch(
      this.#constant("GEMM_SCRATCH") + this.#constant("QUERY_BLOCK") * (4 * (longest + 4) + 4),
    );
    const cut = { items: blocks * kvHeads, chunkItems: 1, work: pairs * heads * headDim };
    this.#run("attention", cut, attentionForward(operation), [scale]);
  }

  attentionBackward(operation: AttentionBackward): void {
    const { dquery, dkey, dvalue, dout, logSumExp, offsets, shape } = operation;
    const { longest, pairs } = this.#expectAttention(operation);
    this.#expectAttention({ query: dquery, key: dkey, value: dvalue, out: dout, logSumExp, offsets, shape });
    this.#needThreadScratch(
      this.#constant("GEMM_SCRATCH") + 2 * this.#constant("QUERY_BLOCK") * 4 * (longest + 4),
    );
    const work = 2.5 * pairs * shape.heads * shape.headDim;
    const cut = { items: (offsets.length - 1) * shape.kvHeads, chunkItems: 1, work };
    const parameters = [...attentionForward(operation), dquery, dkey, dvalue, dout] as const;
    this.#run("attentionBackward", cut, [...parameters], [shape.scale]);
  }

  #expectAttention({ out, logSumExp, query, key, value, offsets, shape }: Attention) {
    const { heads, kvHeads, headDim } = shape;
    const sequences = this.#sequences(offsets);
    const { rows } = sequences;
    expect(rows * heads * headDim, "out", out);
    expect(rows * heads, "logSumExp", logSumExp);
    expectRows(rows, heads * headDim, "query", query);
    expectRows(rows, kvHeads * headDim, "key", key);
    expectRows(rows, kvHeads * headDim, "value", value);
    return sequences;
  }

  rotateIntoPages(operation: RotateIntoPages): void {
    rotateOneByOne(this, operation);
  }

  attentionPaged(operation: AttentionPaged): void {
    const { out, query, keyPages, valuePages, pageTables, lengths, rows, pagesPerRow, pageSize } = operation;
    const { heads, kvHeads, headDim, scale } = operation.shape;
    expect(rows * heads * headDim, "out", out);
    expectRows(rows, heads * headDim, "query", query);
    expect(rows * pagesPerRow, "pageTables", pageTables);
    expect(rows, "lengths", lengths);
    const together = Math.max(this.#constant("PAGED_BLOCK"), heads / kvHeads) + 16;
    this.#needThreadScratch(this.#constant("GEMM_SCRATCH") + together * 4 * (pagesPerRow * pageSize + 5));
    const { ints } = this.#memory;
    const first = lengths.offset / 4;
    let pairs = 0;
    for (let row = 0; row < rows; row++) pairs += ints[first + row]!;
    const blocks = Math.ceil(rows / this.#constant("PAGED_BLOCK"));
    const cut = { items: blocks * kvHeads, chunkItems: 1, work: pairs * heads * headDim };
    const buffers = [out, query, keyPages, valuePages, pageTables, lengths] as const;
    this.#run(
      "attentionPaged",
      cut,
      [...buffers, rows, pagesPerRow, pageSize, heads, kvHeads, headDim],
      [scale],
    );
  }

  logSoftmaxGather(operation: LogSoftmaxGather): void {
    const { logprobs, logSumExp, logits, targets, rows, vocabSize, targetsPerRow } = operation;
    expect(rows * targetsPerRow, "logprobs", logprobs);
    expect(rows, "logSumExp", logSumExp);
    expect(rows * vocabSize, "logits", logits);
    this.#expectIndices("targets", targets, rows * targetsPerRow, vocabSize);
    const cut = { items: rows, chunkItems: VOCABULARY_ROWS, work: 5 * rows * vocabSize };
    this.#run("logSoftmaxGather", cut, [logprobs, logSumExp, logits, targets, vocabSize, targetsPerRow]);
  }

  logitsGradient(operation: LogitsGradient): void {
    const { logits, logSumExp, targets, coefficients, rows, vocabSize, targetsPerRow } = operation;
    expect(rows * vocabSize, "logits", logits);
    expect(rows, "logSumExp", logSumExp);
    expect(rows * targetsPerRow, "coefficients", coefficients);
    this.#expectIndices("targets", targets, rows * targetsPerRow, vocabSize);
    const cut = { items: rows, chunkItems: VOCABULARY_ROWS, work: 5 * rows * vocabSize };
    this.#run("logitsGradient", cut, [coefficients, logSumExp, logits, targets, vocabSize, targetsPerRow]);
  }

  zero(x: F32): void {
    this.#run("zero", elements(x, 0.3), [x]);
  }

  copy(out: F32, x: F32): void {
    expect(x.length, "out", out);
    this.#run("copy", elements(x, 0.5), [out, x]);
  }

  add(out: F32, a: F32, b: F32): void {
    expect(out.length, "a", a);
    expect(out.length, "b", b);
    this.#run("add", elements(out, 1), [out, a, b]);
  }

  addScaled(y: F32, x: F32, factor: number): void {
    expect(y.length, "x", x);
    this.#run("addScaled", elements(y, 1), [y, x], [factor]);
  }

  scale(x: F32, factor: number): void {
    this.#run("scale", elements(x, 0.5), [x], [factor]);
  }

  async sumSquares(x: F32): Promise<number> {
    return this.#wasm.sumSquares(x.offset, x.length);
  }

  adamw(weights: F32, grad: F32, first: F32, second: F32, step: AdamWStep): void {
    expect(weights.length, "grad", grad);
    expect(weights.length, "first", first);
    expect(weights.length, "second", second);
    const { decay, oneMinusBeta1, beta2, oneMinusBeta2, stepSize, rootCorrection2, eps, gradScale } =
      adamwScalars(step);
    const floats = [decay, oneMinusBeta1, beta2, oneMinusBeta2, stepSize, rootCorrection2, eps, gradScale];
    this.#run("adamw", elements(weights, 6), [weights, grad, first, second], floats);
  }

  /** Rows of all sequences and of the longest, blocks of queries, and pairs of a query and a key. */
  #sequences(offsets: I32): { rows: number; longest: number; blocks: number; pairs: number } {
    const values = this.viewInts(offsets);
    let [longest, blocks, pairs] = [0, 0, 0];
    for (let sequence = 0; sequence + 1 < values.length; sequence++) {
      const length = values[sequence + 1]! - values[sequence]!;
      if (length < 0)
        throw new RangeError(`offsets must not fall, got ${length} rows in sequence ${sequence}`);
      longest = Math.max(longest, length);
      blocks += Math.ceil(length / this.#constant("QUERY_BLOCK"));
      pairs += 0.5 * length * length;
    }
    return { rows: values.at(-1)!, longest, blocks, pairs };
  }

  /** A wrong index would silently read or write other memory. */
  #expectIndices(name: string, indices: I32, count: number, limit: number): void {
    expect(count, name, indices);
    // No view of their own: with one row to decode, making it takes longer than reading it.
    const { ints } = this.#memory;
    const first = indices.offset / 4;
    for (let i = 0; i < count; i++) {
      const value = ints[first + i]!;
      if (value < 0 || value >= limit) {
        throw new RangeError(`${name}[${i}] is ${value}, expected 0 to ${limit - 1}`);
      }
    }
  }
}

/** How B is stored, as wasm/gemm.ts reads it: by two strides in bytes, or frozen (also as its transpose) with its two sizes. */
function rightSide(b: Matrix, n: number, k: number, transB: boolean, ldb = transB ? k : n) {
  const [rows, cols] = transB ? [n, k] : [k, n];
  if (b.kind === "frozen") {
    if (b.inputs !== rows || b.outputs !== cols) {
      throw new RangeError(
        `b is frozen as ${b.inputs} x ${b.outputs}, the operation needs ${rows} x ${cols}`,
      );
    }
    return { layout: transB ? 2 : FROZEN, bk: rows, bj: cols };
  }
  if (k > 0) expectRows(rows, cols, "b", { data: b, stride: ldb });
  return transB ? { layout: 0, bk: 4, bj: 4 * ldb } : { layout: 0, bk: 4 * ldb, bj: 4 };
}

/** The grid of chunks of a product: it cuts C only, never k. */
function cutProduct(m: number, n: number, layout: number, threads: number) {
  let [rows, cols, chunks] = [m, n, 1];
  const wanted = threads === 1 ? 1 : threads * (m <= FEW_ROWS ? 2 : 4);
  const halfRows = () => (Math.floor(rows / 2) + 3) & ~3;
  const halfCols = () => (Math.floor(cols / 2) + 31) & ~31;
  while (chunks < wanted) {
    // Where B needs no packing, cutting rows alone packs nothing twice.
    if (layout === FROZEN && rows >= 128) rows = halfRows();
    else if (cols >= rows && cols >= 64) cols = halfCols();
    else if (rows >= 64) rows = halfRows();
    else if (cols >= 64) cols = halfCols();
    else break;
    chunks = Math.ceil(m / rows) * Math.ceil(n / cols);
  }
  return { rows, cols, chunks };
}

/** Checks and lists the parameters of both directions; without a weight or `rstd` there is no norm. */
function ropeParameters(
  out: StridedRows,
  operation: Omit<NormRope, "out" | "eps">,
): WasmOperations["normRope"] {
  const { x, rows, heads, headDim } = operation;
  const { cos, sin, positions } = operation.angles;
  const normed = operation.weight !== undefined && operation.rstd !== undefined;
  const { rstd, weight } = normed ? operation : {};
  expectRows(rows, heads * headDim, "out", out);
  expectRows(rows, heads * headDim, "x", x);
  expect(rows, "positions", positions);
  if (rstd) expect(rows * heads, "rstd", rstd);
  return [out, rstd, x, weight, cos, sin, positions, rows, heads, headDim];
}

function attentionForward({
  out,
  logSumExp,
  query,
  key,
  value,
  offsets,
  shape,
}: Attention): AttentionForward {
  return [out, logSumExp, query, key, value, offsets, shape.heads, shape.kvHeads, shape.headDim];
}

const elements = (x: F32, cycles: number): Cut => ({
  items: x.length,
  chunkItems: ELEMENTS,
  work: cycles * x.length,
});

function expect(length: number, name: string, { length: held }: F32 | I32): void {
  if (held < length) throw new RangeError(`${name} has ${held} elements, the operation needs ${length}`);
}

function expectRows(rows: number, cols: number, name: string, { data, stride }: StridedRows): void {
  if (stride < cols) throw new RangeError(`${name} has rows ${stride} apart, but they are ${cols} wide`);
  if (rows > 0) expect((rows - 1) * stride + cols, name, data);
}
