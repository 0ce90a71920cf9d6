import type { GpuDevice } from "./gpu-device.js";
import type { Columns } from "./product-columns.js";
import { type Dots, MAX_FEW_ROWS } from "./product-dots.js";
import { operandsOf, type Product } from "./product-operands.js";
import { planParts, type TileKind, type TileUse } from "./product-parts.js";
import { type Tile, tileBytes, tileThreads } from "./product-tiles.js";

/** How a product is computed; with parts, k is cut and what each part gives is added at the end. */
export type ProductPlan =
  | ({ kind: "tiles"; parts: number } & Tile)
  | ({ kind: "dots" } & Dots)
  | ({ kind: "columns" } & Columns);

/** A narrow right side of float32 is small enough to be read again for every few rows. */
const [MAX_NARROW_ROWS, MAX_NARROW_COLUMNS, MAX_NARROW_K] = [256, 128, 4096];
/** Registers that a lane may hold with values that were read, but are not yet multiplied. */
const READ_REGISTERS = 64;
/** Columns that are many for any GPU. */
const MANY_COLUMNS = 16_384;

/** The way that suits a product's shape. */
export function planProduct(product: Product, gpu: GpuDevice): ProductPlan {
  const { m, n, k } = product;
  const { b } = operandsOf(product);
  const isByColumn = b.layout.contiguous === "k";
  const { isSoftware } = gpu.info;
  if (m <= MAX_FEW_ROWS && isByColumn) return planDots(m, n, k, gpu);
  const isNarrow = n <= MAX_NARROW_COLUMNS;
  const isSmall = isNarrow && m <= MAX_NARROW_ROWS && k <= MAX_NARROW_K;
  if (!isByColumn && (m <= MAX_FEW_ROWS || (isSmall && !isSoftware))) {
    const unroll = isSoftware ? 1 : Math.floor(READ_REGISTERS / (4 + Math.min(m, MAX_FEW_ROWS)));
    return isNarrow && !isSoftware
      ? { kind: "columns", lanes: 4, parts: 64, unroll }
      : { kind: "columns", lanes: 8, parts: 16, unroll };
  }
  if (isSoftware) return SOFTWARE_TILES;
  return planTiles(product, !isByColumn && !isNarrow && b.layout.dtype === "f32", gpu);
}

/** As many lanes for a column as read it in few steps; `b` has the values of a column next to each other. */
export function planDots(m: number, n: number, k: number, gpu: GpuDevice): { kind: "dots" } & Dots {
  if (gpu.info.isSoftware) return { kind: "dots", lanes: 32, teams: 4, columns: 1, unroll: 1 };
  const lanes = n >= MANY_COLUMNS || k * Math.min(m, 4) <= 2048 ? 32 : k * Math.min(m, 4) <= 4096 ? 64 : 128;
  // Without subgroups every lane's sums are in workgroup memory, which may be 16 KiB.
  const manyColumns = m > 4 && !gpu.info.subgroupSize ? 2 : 4;
  const columns = n >= MANY_COLUMNS ? manyColumns : lanes > 64 && m < 4 ? 1 : 2;
  const unroll = Math.max(1, Math.floor(READ_REGISTERS / (4 * columns + 8 * m)));
  return { kind: "dots", lanes, teams: 128 / lanes, columns, unroll };
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
  teams: 1,
};

type Numbers = [rows: number, columns: number, depth: number, threadRows: number, threadColumns: number];

/** A tile with all its steps written out, and the TFLOP/s that it reaches where it fills a large GPU. */
const tile = (sides: Numbers, buffers: 1 | 2, teams: number, teraflops: number): TileKind<Tile> => {
  const [rows, columns, depth, threadRows, threadColumns] = sides;
  const unroll = depth / teams;
  return {
    flops: teraflops * 1e12,
    tile: { rows, columns, depth, threadRows, threadColumns, buffers, isPadded: true, unroll, teams },
  };
};
const TILES = [
  tile([128, 128, 8, 8, 8], 2, 1, 42),
  tile([128, 128, 8, 8, 8], 1, 1, 36),
  tile([64, 256, 8, 8, 8], 2, 1, 40.8),
  tile([64, 64, 32, 8, 8], 1, 4, 30),
  tile([64, 64, 16, 4, 4], 1, 1, 21),
  tile([64, 32, 64, 8, 8], 1, 8, 27),
  tile([128, 96, 16, 8, 4], 2, 1, 24),
  tile([32, 32, 64, 4, 8], 1, 8, 21),
  tile([32, 16, 64, 4, 4], 1, 8, 15),
  tile([16, 32, 64, 4, 4], 1, 8, 15),
  tile([16, 16, 64, 4, 4], 1, 16, 12),
];
/** The fastest where a wide right side is staged as it is stored: neither transposed nor unpacked. */
const DEEP_TILE = tile([128, 128, 16, 8, 8], 1, 1, 45);
/** For a short k, where what counts is how c is read and written. */
const SHALLOW_TILES = [
  tile([128, 128, 16, 8, 8], 1, 1, 36),
  tile([128, 128, 8, 8, 8], 1, 1, 33),
  tile([64, 64, 16, 4, 4], 1, 1, 24),
  tile([32, 32, 16, 4, 4], 1, 1, 12),
];
const MAX_SHALLOW_K = 128;

/** A processor with one workgroup waits for memory now and then. */
const USE: TileUse = { valueBytes: 4, alone: 0.7 };

function planTiles(product: Product, isDeep: boolean, gpu: GpuDevice): ProductPlan {
  const { m, n, k } = product;
  const known = plansOf(gpu);
  const key = `${m} ${n} ${k} ${isDeep}`;
  const before = known.get(key);
  if (before) return before;
  const { maxComputeWorkgroupStorageSize, maxComputeInvocationsPerWorkgroup } = gpu.device.limits;
  const long = isDeep ? [DEEP_TILE, ...TILES] : TILES;
  const kinds = (k <= MAX_SHALLOW_K ? SHALLOW_TILES : long).filter(
    ({ tile }) =>
      tileBytes(tile) <= maxComputeWorkgroupStorageSize &&
      tileThreads(tile) <= maxComputeInvocationsPerWorkgroup,
  );
  const best = planParts(product, kinds, USE);
  if (!best) throw new Error("the GPU has too little workgroup memory for any product");
  const plan: ProductPlan = { kind: "tiles", parts: best.parts, ...best.tile };
  known.set(key, plan);
  return plan;
}

/** Plans that were found for a GPU. */
const PLANS = new WeakMap<GpuDevice, Map<string, ProductPlan>>();
const MAX_PLANS = 4096;

function plansOf(gpu: GpuDevice): Map<string, ProductPlan> {
  let plans = PLANS.get(gpu);
  if (!plans || plans.size >= MAX_PLANS) {
    plans = new Map();
    PLANS.set(gpu, plans);
  }
  return plans;
}
