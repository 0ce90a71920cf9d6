import type { GpuDevice } from "./gpu-device.js";
import { type Columns, type Dots, MAX_FEW_ROWS } from "./product-few-rows.js";
import { operandsOf, type Product } from "./product-operands.js";
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
/** Columns that are many whatever the card. */
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
  return planTiles(m, n, k, gpu);
}

/** As many lanes for a column as read it in few steps. */
function planDots(m: number, n: number, k: number, gpu: GpuDevice): ProductPlan {
  if (gpu.info.isSoftware) return { kind: "dots", lanes: 32, teams: 4, columns: 1, unroll: 1 };
  const lanes = n >= MANY_COLUMNS || k * Math.min(m, 4) <= 2048 ? 32 : k * Math.min(m, 4) <= 4096 ? 64 : 128;
  // Without subgroups every lane's sums are in workgroup memory, which may be 16 KiB.
  const manyColumns = m > 4 && !gpu.subgroupSize ? 2 : 4;
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

/** A tile with all its steps written out, and the share of the card's peak that it reaches where it fills the card. */
const tile = (sides: Numbers, buffers: 1 | 2, teams: number, speed: number) => {
  const [rows, columns, depth, threadRows, threadColumns] = sides;
  const unroll = depth / teams;
  return {
    speed,
    tile: { rows, columns, depth, threadRows, threadColumns, buffers, isPadded: true, unroll, teams } as Tile,
  };
};
const TILES = [
  tile([128, 128, 8, 8, 8], 2, 1, 0.7),
  tile([128, 128, 8, 8, 8], 1, 1, 0.6),
  tile([64, 256, 8, 8, 8], 2, 1, 0.68),
  tile([64, 64, 32, 8, 8], 1, 4, 0.5),
  tile([64, 64, 16, 4, 4], 1, 1, 0.35),
  tile([64, 32, 64, 8, 8], 1, 8, 0.45),
  tile([128, 96, 16, 8, 4], 2, 1, 0.4),
  tile([32, 32, 64, 4, 8], 1, 8, 0.35),
  tile([32, 16, 64, 4, 4], 1, 8, 0.25),
  tile([16, 32, 64, 4, 4], 1, 8, 0.25),
  tile([16, 16, 64, 4, 4], 1, 16, 0.2),
];
/** For a short k, where what counts is how c is read and written. */
const SHALLOW_TILES = [
  tile([128, 128, 16, 8, 8], 1, 1, 0.6),
  tile([128, 128, 8, 8, 8], 1, 1, 0.55),
  tile([64, 64, 16, 4, 4], 1, 1, 0.4),
  tile([32, 32, 16, 4, 4], 1, 1, 0.2),
];
const MAX_SHALLOW_K = 128;

/** A large card, to compare plans by: what is best there is good on smaller ones. */
const CARD = {
  processors: 132,
  flops: 60e12,
  /** Of what several workgroups read again, mostly from a cache. */
  readBytes: 5e12,
  /** Of what is written and read once. */
  memoryBytes: 2.5e12,
  /** What a workgroup needs to begin and to end, and a dispatch. */
  groupSeconds: 1e-6,
  dispatchSeconds: 10e-6,
};
/** A processor with one workgroup waits for memory now and then. */
const ALONE = 0.7;
/** k of one part, at least: shorter ones cost more to add up than they gain. */
const MIN_PART_K = 128;
const PARTS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 24, 28, 32];
/** Elements that the parts of a product may take. */
const MAX_PARTIAL = 2 ** 24;

function planTiles(m: number, n: number, k: number, gpu: GpuDevice): ProductPlan {
  const known = plansOf(gpu);
  const key = `${m} ${n} ${k}`;
  let best = known.get(key);
  if (best) return best;
  const { maxComputeWorkgroupStorageSize, maxComputeInvocationsPerWorkgroup } = gpu.device.limits;
  let leastSeconds = Number.POSITIVE_INFINITY;
  for (const { tile, speed } of k <= MAX_SHALLOW_K ? SHALLOW_TILES : TILES) {
    if (tileBytes(tile) > maxComputeWorkgroupStorageSize) continue;
    if (tileThreads(tile) > maxComputeInvocationsPerWorkgroup) continue;
    for (const parts of PARTS) {
      if (parts > 1 && (k / parts < MIN_PART_K || parts * m * n > MAX_PARTIAL)) break;
      const seconds = tileSeconds(m, n, k, tile, parts, speed);
      if (seconds >= leastSeconds) continue;
      leastSeconds = seconds;
      best = { kind: "tiles", parts, ...tile };
    }
  }
  if (!best) throw new Error("the card has too little workgroup memory for any product");
  known.set(key, best);
  return best;
}

function tileSeconds(m: number, n: number, k: number, tile: Tile, parts: number, speed: number): number {
  const groups = Math.ceil(m / tile.rows) * Math.ceil(n / tile.columns) * parts;
  const partK = Math.ceil(k / parts / tile.depth) * tile.depth;
  const turns = Math.ceil(groups / CARD.processors);
  const flops = (2 * tile.rows * tile.columns * partK * turns) / (turns === 1 ? ALONE : 1);
  const computing = flops / speed / (CARD.flops / CARD.processors);
  const reading = (4 * groups * (tile.rows + tile.columns) * partK) / CARD.readBytes;
  const adding = parts === 1 ? 0 : CARD.dispatchSeconds + (4 * m * n * (2 * parts + 1)) / CARD.memoryBytes;
  return Math.max(computing, reading) + turns * CARD.groupSeconds + adding;
}

/** Plans that were found for a card. */
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
