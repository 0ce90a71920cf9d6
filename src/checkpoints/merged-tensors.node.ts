import { TinkerError } from "../errors.js";
import { elementCount } from "../wire/tensors/element-count.js";
import type { AdapterDeltas } from "./adapter-deltas.node.js";
import type { BaseFiles } from "./base-files.node.js";
import {
  addProducts,
  addProductsToBfloat16,
  type MatrixRows,
  type PlacedProduct,
  transposed,
} from "./low-rank.node.js";
import type { PackedWeight } from "./packed/packed-weights.js";
import type { WeightUpdate } from "./plan-merge.js";
import {
  DTYPE_BYTES,
  fromFloat32,
  isFloatDtype,
  roundToBfloat16,
  type SafetensorsDtype,
  type SafetensorsEntry,
  toFloat32,
} from "./safetensors.js";

/** One tensor of a merged model. */
export interface MergedTensor {
  readonly name: string;
  /** The file of the base model that holds it, or what it is made from. */
  readonly shard: string;
  readonly dtype: SafetensorsDtype;
  readonly shape: readonly number[];
  /** Whether the adapter changes it. */
  readonly isChanged: boolean;
  /** Product of all dimensions but the last; 1 of a vector. */
  readonly rowCount: number;
  /** The last dimension. */
  readonly rowLength: number;
  /** Bytes of rows as the merged file holds them: in memory of their own, or in `into`, if it is given and used. */
  readBytes(firstRow: number, count: number, into?: Uint8Array): Uint8Array;
  /** Values of the tensor as float32; throws if the tensor is packed. */
  readRows(firstRow: number, count: number): Float32Array;
}

/** Change that an adapter makes to one weight. */
export interface WeightChanges {
  readonly adapter: AdapterDeltas;
  readonly updates: readonly WeightUpdate[];
}

/** Reads rows of a weight as float32. */
type ReadRows = (firstRow: number, count: number) => Float32Array;

/** A tensor of the base as it is, or with changes in it. */
export function plainTensor(
  base: BaseFiles,
  name: string,
  { dtype, shape }: SafetensorsEntry,
  source: string,
  changes: WeightChanges | undefined,
): MergedTensor {
  const { rowCount, rowLength } = rowsOf(shape);
  const rowBytes = rowLength * DTYPE_BYTES[dtype];
  const baseBytes = (firstRow: number, count: number, into?: Uint8Array) =>
    base.readBytes(source, firstRow * rowBytes, count * rowBytes, into);
  const common = { name, shard: base.shardOf(source), dtype, shape, rowCount, rowLength };
  if (changes === undefined) {
    const readRows: ReadRows = (first, count) => toFloat32(baseBytes(first, count), dtype, name);
    return { ...common, isChanged: false, readBytes: baseBytes, readRows };
  }
  if (!isFloatDtype(dtype)) {
    throw new TinkerError(`${name} is ${dtype}; an adapter can be merged into F32, F16 and BF16.`);
  }
  const sums = withChanges((first, count) => toFloat32(baseBytes(first, count), dtype, name), shape, changes);
  const readBytes = (first: number, count: number, into?: Uint8Array) => {
    if (dtype !== "BF16") return fromFloat32(sums(first, count), dtype);
    const bytes = baseBytes(first, count, into);
    for (const { start, rows, products } of changesOfRows(first, count, shape, changes)) {
      const from = start * rowBytes;
      addProductsToBfloat16(bytes.subarray(from, from + rows.count * rowBytes), rows, products);
    }
    return bytes;
  };
  const readRows: ReadRows = (first, count) => toFloat32(readBytes(first, count), dtype, name);
  return { ...common, isChanged: true, readBytes, readRows };
}

/** Values of a weight that are packed at once. */
const VALUES_AT_ONCE = 1 << 20;

/** One tensor of a packed weight, packed again if the adapter changes it. */
export function packedTensor(
  base: BaseFiles,
  weight: PackedWeight,
  name: string,
  changes: WeightChanges | undefined,
): MergedTensor {
  const entry = base.tensors.get(name)!;
  const part = weight.parts.indexOf(name);
  if (changes === undefined || part < 0) return plainTensor(base, name, entry, name, undefined);
  const { codec, shape } = weight;
  const columns = shape.at(-1)!;
  const { rowCount, rowLength } = rowsOf(entry.shape);
  const rowBytes = rowLength * DTYPE_BYTES[entry.dtype];
  const values = rounded(withChanges(unpackRows(base, weight), shape, changes));
  const weightRows = rowsOf(shape).rowCount;
  const groupBytes = codec.sizes(codec.groupRows, columns)[part]!;
  // A byte of scales stands for thousands of values: they are computed a few at a time.
  const groupsAtOnce = Math.max(1, Math.floor(VALUES_AT_ONCE / (codec.groupRows * columns)));
  const readBytes = (firstRow: number, count: number) => {
    const out = new Uint8Array(count * rowBytes);
    const [from, to] = [firstRow * rowBytes, (firstRow + count) * rowBytes];
    const endGroup = Math.ceil(to / groupBytes);
    for (let group = Math.floor(from / groupBytes); group < endGroup; group += groupsAtOnce) {
      const start = group * codec.groupRows;
      const end = Math.min(weightRows, Math.min(endGroup, group + groupsAtOnce) * codec.groupRows);
      const bytes = codec.encode(values(start, end - start), end - start, columns)[part]!;
      const at = group * groupBytes - from;
      const wanted = bytes.subarray(Math.max(0, -at), Math.min(bytes.length, to - from - at));
      out.set(wanted, Math.max(0, at));
    }
    return out;
  };
  const readRows: ReadRows = (first, count) => toFloat32(readBytes(first, count), entry.dtype, name);
  const { dtype } = entry;
  const common = { name, shard: base.shardOf(name), dtype, shape: entry.shape, rowCount, rowLength };
  return { ...common, isChanged: true, readBytes, readRows };
}

/** A packed weight as plain BF16. */
export function unpackedTensor(
  base: BaseFiles,
  weight: PackedWeight,
  changes: WeightChanges | undefined,
): MergedTensor {
  const { name, parts, isTransposedWhenPlain } = weight;
  const unpacked = unpackRows(base, weight);
  const natural = changes === undefined ? unpacked : rounded(withChanges(unpacked, weight.shape, changes));
  const [rows, columns] = weight.shape.slice(-2) as [number, number];
  const shape = isTransposedWhenPlain ? [...weight.shape.slice(0, -2), columns, rows] : weight.shape;
  const readRows = isTransposedWhenPlain ? transposedRows(base, natural, rows, columns) : natural;
  return {
    name,
    shard: base.shardOf(parts[0]!),
    dtype: "BF16",
    shape,
    isChanged: changes !== undefined,
    ...rowsOf(shape),
    readRows,
    readBytes: (first, count) => fromFloat32(readRows(first, count), "BF16"),
  };
}

function unpackRows(base: BaseFiles, { codec, parts, shape }: PackedWeight): ReadRows {
  const columns = shape.at(-1)!;
  const { rowCount } = rowsOf(shape);
  const groupBytes = codec.sizes(codec.groupRows, columns);
  return (firstRow, count) => {
    const firstGroup = Math.floor(firstRow / codec.groupRows);
    const start = firstGroup * codec.groupRows;
    const end = Math.min(rowCount, Math.ceil((firstRow + count) / codec.groupRows) * codec.groupRows);
    const sizes = codec.sizes(end - start, columns);
    const bytes = parts.map((part, i) => base.readBytes(part, firstGroup * groupBytes[i]!, sizes[i]!));
    const values = codec.decode(bytes, end - start, columns);
    return values.subarray((firstRow - start) * columns, (firstRow - start + count) * columns);
  };
}

function rounded(read: ReadRows): ReadRows {
  return (first, count) => roundToBfloat16(read(first, count));
}

/** The matrix of each model that was transposed last: a reader goes through a tensor in order. */
const lastTransposed = new WeakMap<BaseFiles, { read: ReadRows; matrix: number; values: Float32Array }>();

/** The rows of the transposed matrices. */
function transposedRows(base: BaseFiles, read: ReadRows, rows: number, columns: number): ReadRows {
  return (firstRow, count) => {
    const out = new Float32Array(count * rows);
    for (let row = firstRow; row < firstRow + count; row++) {
      const matrix = Math.floor(row / columns);
      let last = lastTransposed.get(base);
      if (last?.read !== read || last.matrix !== matrix) {
        last = { read, matrix, values: transposed(read(matrix * rows, rows), rows, columns) };
        lastTransposed.set(base, last);
      }
      const from = (row % columns) * rows;
      out.set(last.values.subarray(from, from + rows), (row - firstRow) * rows);
    }
    return out;
  };
}

/** Adds the changes to the rows that are read. */
function withChanges(read: ReadRows, shape: readonly number[], changes: WeightChanges): ReadRows {
  const columns = shape.at(-1)!;
  return (firstRow, count) => {
    const values = read(firstRow, count);
    for (const { start, rows, products } of changesOfRows(firstRow, count, shape, changes)) {
      const from = start * columns;
      addProducts(values.subarray(from, from + rows.count * columns), rows, products);
    }
    return values;
  };
}

/** Products to add to rows of a weight, matrix by matrix; `start` is where a matrix's rows begin among them. */
function* changesOfRows(
  firstRow: number,
  count: number,
  shape: readonly number[],
  { adapter, updates }: WeightChanges,
): Generator<{ start: number; rows: MatrixRows; products: readonly PlacedProduct[] }> {
  const [matrixRows, columns] = shape.slice(-2) as [number, number];
  const end = firstRow + count;
  for (let row = firstRow; row < end; ) {
    const matrix = Math.floor(row / matrixRows);
    const next = Math.min(end, (matrix + 1) * matrixRows);
    const above = row - matrix * matrixRows;
    const products = adapter.products(updates, matrix).map((product, i) => {
      const { firstRow, rowStep, firstColumn, columnStep } = updates[i]!;
      return { product, firstRow: firstRow - above, rowStep, firstColumn, columnStep };
    });
    yield { start: row - firstRow, rows: { count: next - row, length: columns }, products };
    row = next;
  }
}

function rowsOf(shape: readonly number[]): { rowCount: number; rowLength: number } {
  return { rowCount: elementCount(shape.slice(0, -1)), rowLength: shape.at(-1) ?? 1 };
}
