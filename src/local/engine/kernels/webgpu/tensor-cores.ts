import type { F32, Frozen } from "../kernels.js";
import type { GpuFrozen } from "./frozen.js";
import { packHalf } from "./half-operand.js";
import { operandsOf, type Product, type ProductOperand } from "./product-operands.js";
import { planParts, sumParts, type TileKind, type TileUse } from "./product-parts.js";
import { CHUNK, TENSOR_SHADER, type TensorTile, tensorMemory } from "./tensor-tiles.js";
import { roomyRows } from "./vectors.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** How a product runs on tensor cores: in which tiles, with k in how many parts. */
export interface TensorPlan {
  tile: TensorTile;
  parts: number;
}

const kind = (
  [rows, columns, depth, groupRows, groupColumns]: [number, number, number, number, number],
  teraflops: number,
): TileKind<TensorTile> => ({
  tile: { rows, columns, depth, groupRows, groupColumns },
  flops: teraflops * 1e12,
});
const KINDS = [
  kind([128, 256, 16, 64, 64], 160),
  kind([128, 128, 32, 64, 32], 152),
  kind([64, 64, 32, 32, 32], 65),
];
const USE: TileUse = { valueBytes: 2, alone: 0.9 };
/** Below these the plain products are faster: what tensor cores save is less than the way to float16 costs. */
const [MIN_ROWS, MIN_SIDE, MIN_MULTIPLICATIONS] = [64, 128, 2 ** 25];

/** The tiles and parts that suit a product's shape; undefined where tensor cores would not gain. */
export function planTensorProduct(
  m: number,
  n: number,
  k: number,
  maxWorkgroupBytes: number,
): TensorPlan | undefined {
  if (m < MIN_ROWS || Math.min(n, k) < MIN_SIDE || m * n * k < MIN_MULTIPLICATIONS) return undefined;
  const kinds = KINDS.filter(({ tile }) => tensorMemory(tile).bytes <= maxWorkgroupBytes);
  return planParts({ m, n, k }, kinds, USE);
}

/** Takes a product where precision is fast and tensor cores gain; false where not. */
export function fastMatmul(context: GpuContext, product: Product): boolean {
  const { precision, device } = context.gpu;
  if (precision !== "fast") return false;
  const { m, n, k } = product;
  const plan = planTensorProduct(m, n, k, device.limits.maxComputeWorkgroupStorageSize);
  if (!plan) return false;
  multiplyOnTensorCores(context, product, plan);
  return true;
}

/** Computes a product in a given way: both sides to float16 unless they are in two bytes, then tiles, then the sum of parts. */
export function multiplyOnTensorCores(
  context: GpuContext,
  product: Product,
  { tile, parts }: TensorPlan,
): void {
  const { c, m, n, k, ldc = n, accumulate = false } = product;
  const operands = operandsOf(product);
  const mark = context.mark();
  const shape = { outer: m, k, rowMultiple: tile.rows, columnMultiple: tile.depth };
  const a = packHalf(context, operands.a, shape);
  const b = rightOperand(context, operands.b, product, tile);
  const steps = a.columns / tile.depth;
  const partSteps = Math.ceil(steps / parts);
  const partCount = Math.ceil(steps / partSteps);
  const [down, across] = [Math.ceil(m / tile.rows), Math.ceil(n / tile.columns)];
  const sums = partCount > 1 ? context.scratch(partCount * roomyRows(m) * n) : undefined;
  const shader = TENSOR_SHADER({
    ...tile,
    rowsOfB: b.rowsOf,
    dtype: b.dtype,
    isPacked: b.scales !== undefined,
  });
  context.queue.run(shader, {
    buffers: {
      c: sums ?? c,
      a: a.values,
      a_scales: a.scales,
      b: b.values,
      b_scales: b.scales ?? a.scales,
    },
    params: {
      m,
      n,
      c_stride: sums ? n : ldc,
      accumulate: accumulate && !sums ? 1 : 0,
      a_chunks: a.columns / CHUNK,
      b_chunks: b.columns / CHUNK,
      b_last: b.rows - 1,
      tiles_down: down,
      tiles_across: across,
      parts: partCount,
      steps,
      part_steps: partSteps,
      part_size: m * n,
    },
    workgroups: down * across * partCount,
  });
  if (sums) sumParts(context, product, sums, partCount);
  context.release(mark);
}

interface RightOperand {
  values: F32 | Frozen;
  scales: F32 | undefined;
  dtype: "BF16" | "F16";
  rowsOf: "k" | "n";
  /** Stored, so that everything before `rows` * `columns` may be read. */
  rows: number;
  columns: number;
}

function rightOperand(
  context: GpuContext,
  operand: ProductOperand,
  { n, k }: Product,
  tile: TensorTile,
): RightOperand {
  const { handle, layout } = operand;
  if (layout.dtype !== "f32") {
    const { dtype, outputs: rows, stride: columns } = handle as GpuFrozen & { dtype: "BF16" | "F16" };
    const rowsOf = layout.contiguous === "k" ? "k" : "n";
    return { values: handle, scales: undefined, dtype, rowsOf, rows, columns };
  }
  const shape = { outer: n, k, rowMultiple: Math.max(64, tile.columns), columnMultiple: tile.depth };
  return { ...packHalf(context, operand, shape), dtype: "F16", rowsOf: "k" };
}
