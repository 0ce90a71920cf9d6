import type { F32 } from "../kernels.js";
import { isVectorRows, type Product } from "./product-operands.js";
import { shaderVariants } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** The part of c that a workgroup computes: `rows` x `columns`, `depth` of k at a time. */
export interface TileSides {
  rows: number;
  columns: number;
  depth: number;
}

/** Tiles that a product may be cut into. */
export interface TileKind<T extends TileSides> {
  tile: T;
  /** Per second, where such tiles fill a large GPU. */
  flops: number;
}

/** How the tiles of one family use a GPU. */
export interface TileUse {
  /** Bytes of a value of a or b, as it is read. */
  valueBytes: 2 | 4;
  /** The share of its speed that a workgroup reaches alone on a processor, where nothing else computes while it waits for memory. */
  alone: number;
}

/** A large GPU, to compare plans by: the best there is good on smaller ones. */
const LARGE_GPU = {
  processors: 132,
  /** Bytes per second that several workgroups read again, mostly from a cache. */
  readBytes: 5e12,
  /** Bytes per second that are written and read once. */
  memoryBytes: 2.5e12,
  /** Seconds that a workgroup takes to begin and to end, and a dispatch. */
  groupSeconds: 1e-6,
  dispatchSeconds: 10e-6,
};
/** k of one part, at least: shorter ones cost more to add up than they gain. */
const MIN_PART_K = 128;
const PARTS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 24, 28, 32];
/** Upper bound for the parts of a product: less than any GPU binds at once. */
const MAX_PARTIAL_BYTES = 64 << 20;

/** The fastest of some tiles, with k in one part or more; undefined where there are none. */
export function planParts<T extends TileSides>(
  { m, n, k }: { m: number; n: number; k: number },
  kinds: TileKind<T>[],
  { valueBytes, alone }: TileUse,
): { tile: T; parts: number } | undefined {
  let best: { tile: T; parts: number } | undefined;
  let leastSeconds = Number.POSITIVE_INFINITY;
  for (const { tile, flops } of kinds) {
    const { rows, columns, depth } = tile;
    for (const parts of PARTS) {
      if (parts > 1 && (k / parts < MIN_PART_K || 4 * parts * m * n > MAX_PARTIAL_BYTES)) break;
      const groups = Math.ceil(m / rows) * Math.ceil(n / columns) * parts;
      const partK = Math.ceil(k / parts / depth) * depth;
      const turns = Math.ceil(groups / LARGE_GPU.processors);
      const speed = (flops * (turns === 1 ? alone : 1)) / LARGE_GPU.processors;
      const computing = (2 * rows * columns * partK * turns) / speed;
      const reading = (valueBytes * groups * (rows + columns) * partK) / LARGE_GPU.readBytes;
      const adding =
        parts === 1 ? 0 : LARGE_GPU.dispatchSeconds + (4 * m * n * (2 * parts + 1)) / LARGE_GPU.memoryBytes;
      const seconds = Math.max(computing, reading) + turns * LARGE_GPU.groupSeconds + adding;
      if (seconds >= leastSeconds) continue;
      leastSeconds = seconds;
      best = { tile, parts };
    }
  }
  return best;
}

/** Few, so that small sums too are spread over the GPU. */
const SUM_THREADS = 64;

const SUM_PARTS = shaderVariants((isVector: boolean) => {
  const element = isVector ? "vec4<f32>" : "f32";
  return {
    name: `product-sum-parts ${element}`,
    buffers: { c: element, partial: element },
    /** Sizes in elements. */
    ints: ["size", "n", "c_stride", "parts", "accumulate"],
    code: /* wgsl */ `
@compute @workgroup_size(${SUM_THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let index = flat(group) * ${SUM_THREADS}u + lane;
  if (index >= p.size) { return; }
  let at = p.c_at + index / p.n * p.c_stride + index % p.n;
  var sum = ${element}();
  if (p.accumulate != 0u) { sum = c[at]; }
  for (var part = 0u; part < p.parts; part++) { sum += partial[p.partial_at + part * p.size + index]; }
  c[at] = sum;
}`,
  };
});

/** Adds the parts of a product in their order; `partial` has one [m, n] after the other. */
export function sumParts({ queue }: GpuContext, product: Product, partial: F32, parts: number): void {
  const { c, m, n, ldc = n, accumulate = false } = product;
  const isVector = isVectorRows(c, n, ldc);
  const width = isVector ? 4 : 1;
  const size = (m * n) / width;
  queue.run(SUM_PARTS(isVector), {
    buffers: { c, partial },
    params: { size, n: n / width, c_stride: ldc / width, parts, accumulate: accumulate ? 1 : 0 },
    workgroups: Math.ceil(size / SUM_THREADS),
  });
}
