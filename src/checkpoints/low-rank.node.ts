import { readFileSync } from "node:fs";

/** A product of two low-rank matrices: [rows, rank] by [rank, columns]. */
export interface LowRankProduct {
  readonly left: Float32Array;
  readonly right: Float32Array;
  readonly rank: number;
}

/** Where rows of a product are added. */
export interface PlacedProduct {
  readonly product: LowRankProduct;
  /** The row to which the product's first row is added; its other rows are `rowStep` apart. Some may lie outside. */
  readonly firstRow: number;
  readonly rowStep: number;
  readonly firstColumn: number;
  readonly columnStep: number;
}

/** Rows of a matrix: how many, and how long. */
export interface MatrixRows {
  readonly count: number;
  readonly length: number;
}

interface LowRankExports {
  readonly memory: WebAssembly.Memory;
  addProduct(
    left: number,
    panels: number,
    target: number,
    rows: number,
    rank: number,
    columns: number,
    rowBytes: number,
    columnBytes: number,
    sums: number,
  ): void;
  widen(from: number, to: number, count: number): void;
  narrow(from: number, to: number, count: number): void;
}

/** Bytes of float32 that are worked on at once: they stay in the processor's cache. */
const TILE_BYTES = 1 << 19;
const PAGE_BYTES = 1 << 16;
/** The compiled code keeps nothing in its memory itself. */
const FIRST_BYTE = 1024;
/** Columns of a right matrix that lie together in that memory, and rows that are computed at once. */
const PANEL_COLUMNS = 8;
const PANEL_ROWS = 4;

let loaded: LowRankExports | undefined;
/** The right matrices that lie in the memory, from its beginning. */
let placed: readonly Float32Array[] = [];

/** Adds products to rows of float32, in place. */
export function addProducts(
  values: Float32Array,
  rows: MatrixRows,
  products: readonly PlacedProduct[],
): void {
  const places = layOut(rows, products);
  const { memory, tileAt } = places;
  addInTiles(places, rows, products, {
    fill: (from, to) => new Float32Array(memory.buffer, tileAt, to - from).set(values.subarray(from, to)),
    empty: (from, to) => values.set(new Float32Array(memory.buffer, tileAt, to - from), from),
  });
}

/** Adds products to rows of bfloat16, in place: the sums are rounded to nearest, ties to even. */
export function addProductsToBfloat16(
  bytes: Uint8Array,
  rows: MatrixRows,
  products: readonly PlacedProduct[],
): void {
  const places = layOut(rows, products);
  const { memory, widen, narrow, tileAt, halvesAt } = places;
  addInTiles(places, rows, products, {
    fill(from, to) {
      new Uint8Array(memory.buffer, halvesAt, 2 * (to - from)).set(bytes.subarray(2 * from, 2 * to));
      widen(halvesAt, tileAt, to - from);
    },
    empty(from, to) {
      narrow(tileAt, halvesAt, to - from);
      bytes.set(new Uint8Array(memory.buffer, halvesAt, 2 * (to - from)), 2 * from);
    },
  });
}

/** The compiled code, and where its memory holds what. */
interface Places extends LowRankExports {
  readonly tileRows: number;
  readonly panelsAt: readonly number[];
  readonly leftAt: number;
  readonly sumsAt: number;
  readonly tileAt: number;
  readonly halvesAt: number;
}

function layOut(rows: MatrixRows, products: readonly PlacedProduct[]): Places {
  loaded ??= load();
  const { memory, addProduct, widen, narrow } = loaded;
  const fitting = Math.floor(TILE_BYTES / (4 * rows.length));
  const tileRows = Math.min(rows.count, Math.max(1, fitting - (fitting % PANEL_ROWS)));
  let end = FIRST_BYTE;
  const take = (bytes: number) => {
    const at = end;
    end += Math.ceil(bytes / 64) * 64;
    return at;
  };
  const panelsAt = products.map(({ product }) => take(panelBytes(product)));
  const leftAt = take(4 * tileRows * Math.max(0, ...products.map(({ product }) => product.rank)));
  const sumsAt = take(4 * PANEL_ROWS * PANEL_COLUMNS);
  const tileAt = take(4 * tileRows * rows.length);
  const halvesAt = take(2 * tileRows * rows.length);
  const missing = end - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / PAGE_BYTES));
  if (products.length !== placed.length || products.some(({ product }, i) => product.right !== placed[i])) {
    for (const [i, { product }] of products.entries()) placePanels(memory, panelsAt[i]!, product);
    placed = products.map(({ product }) => product.right);
  }
  return { memory, addProduct, widen, narrow, tileRows, panelsAt, leftAt, sumsAt, tileAt, halvesAt };
}

function panelBytes({ right, rank }: LowRankProduct): number {
  return 4 * rank * PANEL_COLUMNS * Math.ceil(right.length / rank / PANEL_COLUMNS);
}

/** Writes the right matrix of a product as the compiled code takes it: columns in groups, the last one filled up. */
function placePanels(memory: WebAssembly.Memory, at: number, product: LowRankProduct): void {
  const { right, rank } = product;
  const columns = right.length / rank;
  const out = new Float32Array(memory.buffer, at, panelBytes(product) / 4);
  for (let column = 0, to = 0; column < columns; column += PANEL_COLUMNS) {
    for (let k = 0; k < rank; k++) {
      for (let i = 0; i < PANEL_COLUMNS; i++, to++)
        out[to] = column + i < columns ? right[k * columns + column + i]! : 0;
    }
  }
}

function addInTiles(
  places: Places,
  rows: MatrixRows,
  products: readonly PlacedProduct[],
  tile: { fill(from: number, to: number): void; empty(from: number, to: number): void },
): void {
  const { memory, addProduct, panelsAt, leftAt, sumsAt, tileAt, tileRows } = places;
  for (let row = 0; row < rows.count; row += tileRows) {
    const end = Math.min(rows.count, row + tileRows);
    tile.fill(row * rows.length, end * rows.length);
    for (const [i, { product, firstRow, rowStep, firstColumn, columnStep }] of products.entries()) {
      const { left, right, rank } = product;
      // The product's rows whose places are in the tile.
      const rowAt = (place: number) => Math.max(0, Math.ceil((place - firstRow) / rowStep));
      const from = rowAt(row);
      const to = Math.min(left.length / rank, rowAt(end));
      if (to <= from) continue;
      const factors = left.subarray(from * rank, to * rank);
      new Float32Array(memory.buffer, leftAt, factors.length).set(factors);
      const start = (firstRow + from * rowStep - row) * rows.length + firstColumn;
      const [rowBytes, columnBytes] = [4 * rowStep * rows.length, 4 * columnStep];
      const target = tileAt + 4 * start;
      const columns = right.length / rank;
      addProduct(leftAt, panelsAt[i]!, target, to - from, rank, columns, rowBytes, columnBytes, sumsAt);
    }
    tile.empty(row * rows.length, end * rows.length);
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
