import type { GpuDevice } from "./gpu-device.js";
import { type Columns, type Dots, multiplyColumns, multiplyDots } from "./product-few-rows.js";
import { operandsOf, type Product } from "./product-operands.js";
import { multiplyTiles, type Tile, tileBytes } from "./product-tiles.js";
import { defineShader } from "./shader.js";
import { fastMatmul } from "./tensor-cores.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** How a product is computed. */
export type ProductPlan =
  | ({ kind: "tiles"; parts: number } & Tile)
  | ({ kind: "dots" } & Dots)
  | ({ kind: "columns" } & Columns);

/** Rows up to which each weight is best read once for all of them, without staging. */
const MAX_ROWS_UNSTAGED = 8;
/** Workgroups that keep a large card busy. */
const ENOUGH_WORKGROUPS = 264;
/** k of one part, at least: shorter ones cost more to add up than they gain. */
const MIN_PART_K = 128;

/** c = a * b, or c += a * b, as the kernels' contract says. */
export function matmul(context: GpuContext, product: Product): void {
  if (product.m === 0 || product.n === 0) return;
  if (product.k === 0) {
    if (!product.accumulate) clear(context, product);
    return;
  }
  if (fastMatmul(context, product)) return;
  multiply(context, product, planProduct(product, context.gpu));
}

/** Computes a product in a given way. */
export function multiply(context: GpuContext, product: Product, plan: ProductPlan): void {
  switch (plan.kind) {
    case "tiles":
      multiplyTiles(context, product, plan, plan.parts);
      break;
    case "dots":
      multiplyDots(context, product, plan);
      break;
    case "columns":
      multiplyColumns(context, product, plan);
      break;
    default:
      plan satisfies never;
  }
}

/** The way that suits a product's shape. */
export function planProduct(product: Product, gpu: GpuDevice): ProductPlan {
  const { m, n, k } = product;
  if (m <= MAX_ROWS_UNSTAGED) {
    const { b } = operandsOf(product);
    if (b.layout.contiguous === "k") {
      const columns = m > 4 || n < 8192 ? 1 : 4;
      return { kind: "dots", lanes: 32, teams: 4, columns };
    }
    return { kind: "columns", lanes: n <= 128 ? 4 : n <= 1024 ? 8 : 16, parts: 16 };
  }
  if (gpu.info.isSoftware) return SOFTWARE_TILES;
  const tile = tileFor(m, n, gpu.device.limits.maxComputeWorkgroupStorageSize);
  const tiles = Math.ceil(m / tile.rows) * Math.ceil(n / tile.columns);
  const parts = Math.max(1, Math.min(Math.ceil(ENOUGH_WORKGROUPS / tiles), Math.floor(k / MIN_PART_K)));
  return { kind: "tiles", ...tile, parts: tiles >= ENOUGH_WORKGROUPS / 2 ? 1 : parts };
}

/** On a CPU the compiler takes longer than the product: little code, one kind of tile. */
const SOFTWARE_TILES: ProductPlan = {
  kind: "tiles",
  parts: 1,
  rows: 32,
  columns: 32,
  depth: 16,
  threadRows: 4,
  threadColumns: 4,
  buffers: 1,
  isPadded: false,
  unroll: 1,
};

function tileFor(m: number, n: number, workgroupBytes: number): Tile {
  const [rows, columns] = [m <= 32 ? 32 : m <= 64 ? 64 : 128, n <= 32 ? 32 : n <= 96 ? 64 : 128];
  const large = { depth: 16, buffers: 2, isPadded: true, unroll: 16 } as const;
  const sides =
    Math.ceil(m / rows) * Math.ceil(n / columns) < ENOUGH_WORKGROUPS / 2
      ? { rows: Math.min(rows, 64), columns: Math.min(columns, 64) }
      : { rows, columns };
  const thread = {
    threadRows: sides.rows === 128 ? 8 : 4,
    threadColumns: sides.columns === 128 ? 8 : 4,
  };
  const tile: Tile = { ...sides, ...thread, ...large };
  return tileBytes(tile) <= workgroupBytes ? tile : { ...tile, depth: 8, buffers: 1 };
}

const CLEAR = defineShader({
  name: "product-clear",
  buffers: { c: "f32" },
  params: { size: "u32", n: "u32", c_stride: "u32" },
  code: /* wgsl */ `
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let index = flat(group) * 256u + lane;
  if (index < p.size) { c[p.c_at + index / p.n * p.c_stride + index % p.n] = 0.0; }
}`,
});

function clear({ queue }: GpuContext, { c, m, n, ldc = n }: Product): void {
  queue.run(CLEAR, {
    buffers: { c },
    params: { size: m * n, n, c_stride: ldc },
    workgroups: Math.ceil((m * n) / 256),
  });
}
