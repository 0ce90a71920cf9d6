import { readFileSync } from "node:fs";

/** A product of two low-rank matrices: [rows, rank] by [rank, columns]. */
export interface LowRankProduct {
  readonly left: Float32Array;
  readonly right: Float32Array;
  readonly rank: number;
}

/** Where rows of a product are added. */
export interface ProductPlace {
  /** Index of the first value of the first row. */
  readonly start: number;
  /** Distance of the rows' first values. */
  readonly rowStep: number;
  /** Distance of the values of a row. */
  readonly columnStep: number;
}

interface LowRankExports {
  readonly memory: WebAssembly.Memory;
  multiply(left: number, right: number, out: number, rows: number, rank: number, columns: number): void;
}

/** Bytes of a product that are computed at once: they stay in the processor's cache. */
const BLOCK_BYTES = 1 << 20;
const PAGE_BYTES = 1 << 16;
/** The compiled code keeps nothing in its memory itself. */
const FIRST_BYTE = 1024;

let loaded: LowRankExports | undefined;
/** The right factor that is already in the memory of the compiled code. */
let lastRight: Float32Array | undefined;

/** Adds `count` rows of a product, from `firstRow` on, to `target`. */
export function addProduct(
  { left, right, rank }: LowRankProduct,
  firstRow: number,
  count: number,
  target: Float32Array,
  { start, rowStep, columnStep }: ProductPlace,
): void {
  loaded ??= load();
  const { memory, multiply } = loaded;
  const columns = right.length / rank;
  const blockRows = Math.max(1, Math.min(count, Math.floor(BLOCK_BYTES / (4 * columns))));
  const rightAt = FIRST_BYTE;
  const leftAt = rightAt + 4 * right.length;
  const outAt = leftAt + 4 * blockRows * rank;
  const missing = outAt + 4 * blockRows * columns - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / PAGE_BYTES));
  if (lastRight !== right) new Float32Array(memory.buffer, rightAt, right.length).set(right);
  lastRight = right;
  for (let row = 0; row < count; row += blockRows) {
    const rows = Math.min(blockRows, count - row);
    const from = (firstRow + row) * rank;
    new Float32Array(memory.buffer, leftAt, rows * rank).set(left.subarray(from, from + rows * rank));
    multiply(leftAt, rightAt, outAt, rows, rank, columns);
    const product = new Float32Array(memory.buffer, outAt, rows * columns);
    for (let i = 0, at = 0; i < rows; i++) {
      for (let j = 0, to = start + (row + i) * rowStep; j < columns; j++, at++, to += columnStep) {
        target[to] = target[to]! + product[at]!;
      }
    }
  }
}

function load(): LowRankExports {
  const module = new WebAssembly.Module(readFileSync(new URL("./low-rank.wasm", import.meta.url)));
  const abort = () => {
    throw new Error("the compiled product failed");
  };
  return new WebAssembly.Instance(module, { env: { abort } }).exports as unknown as LowRankExports;
}

/** The rows of a matrix as columns. */
export function transposed(matrix: Float32Array, rows: number, columns: number): Float32Array {
  const out = new Float32Array(matrix.length);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) out[j * rows + i] = matrix[i * columns + j]!;
  }
  return out;
}
