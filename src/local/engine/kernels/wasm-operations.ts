import type { F32, Frozen, I32, Matrix, StridedRows } from "./kernels.js";

/** The functions of the wasm modules, as wasm/index.ts exports them. */
export interface WasmExports {
  configure(threads: number, scratchBase: number, scratchBytes: number): void;
  run(operation: number, items: number, chunkItems: number, work: number): void;
  sumSquares(address: number, length: number): number;
  work(thread: number): void;
  workerFailed(): void;
  stopWorkers(): void;
  expArray(out: number, x: number, length: number): void;
  logArray(out: number, x: number, length: number): void;
}

/** The parameters of each operation, in the places where its source in wasm/ reads them; floats are passed apart. */
export interface WasmOperations {
  matmul: [c: StridedRows, a: F32, ai: number, ak: number, b: Matrix, bk: number, bj: number, ...Product];
  rmsNorm: [...Norm];
  rmsNormBackward: [...Norm, dout: F32, dweight: Optional];
  rmsNormWeight: [...Norm, dout: F32, dweight: Optional];
  normRope: [...Rope];
  normRopeBackward: [...Rope, dout: StridedRows, dweight: Optional];
  normRopeWeight: [...Rope, dout: StridedRows, dweight: Optional];
  swiglu: [out: F32, gateUp: F32, cols: number];
  swigluBackward: [dgateUp: F32, gateUp: F32, cols: number, dout: F32];
  gatherRows: [out: F32, table: F32, indices: I32, cols: number];
  scatterRows: [table: F32, x: StridedRows, indices: I32, cols: number];
  scatterAddRows: [table: F32, x: F32, indices: I32, cols: number, rows: number];
  attention: [...AttentionForward];
  attentionBackward: [
    ...AttentionForward,
    dquery: StridedRows,
    dkey: StridedRows,
    dvalue: StridedRows,
    dout: F32,
  ];
  attentionPaged: [out: F32, query: StridedRows, keys: F32, values: F32, tables: I32, lengths: I32, ...Pages];
  logSoftmaxGather: [logprobs: F32, ...Vocabulary];
  logitsGradient: [coefficients: F32, ...Vocabulary];
  zero: [x: F32];
  copy: [out: F32, x: F32];
  add: [out: F32, a: F32, b: F32];
  addScaled: [y: F32, x: F32];
  scale: [x: F32];
  adamw: [weights: F32, grad: F32, first: F32, second: F32];
}

/** The first parameters of `attention` and of its backward pass. */
export type AttentionForward = [
  out: F32,
  logSumExp: F32,
  q: StridedRows,
  k: StridedRows,
  v: StridedRows,
  offsets: I32,
  ...Heads,
];

type Optional = F32 | undefined;
type Product = [m: number, n: number, k: number, accumulate: number, ...ProductCut];
type ProductCut = [chunkRows: number, chunkCols: number, layout: number];
type Norm = [out: F32, rstd: F32, x: F32, weight: F32, rows: number, cols: number];
type Rope = [
  out: StridedRows,
  rstd: Optional,
  x: StridedRows,
  weight: Optional,
  cos: F32,
  sin: F32,
  positions: I32,
  ...RopeHeads,
];
type RopeHeads = [rows: number, heads: number, headDim: number];
type Heads = [heads: number, kvHeads: number, headDim: number];
type Pages = [rows: number, pagesPerRow: number, pageSize: number, ...Heads];
type Vocabulary = [logSumExp: F32, logits: F32, targets: I32, vocabSize: number, targetsPerRow: number];

/** Writes parameters: a buffer as its address, rows as address and stride in bytes, nothing as 0. */
export function writeParameters(
  places: Uint32Array,
  parameters: readonly (F32 | I32 | Frozen | StridedRows | number | undefined)[],
): void {
  // One row to decode runs many small operations: this loop is part of the time of each.
  let place = 0;
  for (let index = 0; index < parameters.length; index++) {
    const parameter = parameters[index];
    if (typeof parameter === "number") places[place++] = parameter;
    else if (parameter === undefined) places[place++] = 0;
    else {
      // Read, not asked for with `in`: that is slow for objects of several shapes.
      const { data } = parameter as Partial<StridedRows>;
      if (data === undefined) places[place++] = (parameter as F32 | I32 | Frozen).offset;
      else {
        places[place++] = data.offset;
        places[place++] = 4 * (parameter as StridedRows).stride;
      }
    }
  }
}
