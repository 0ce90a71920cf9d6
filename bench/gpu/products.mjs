// Times products on the GPU: node bench/gpu/products.mjs [--tune] [--only TEXT] [--milliseconds 40] [--unchecked]
// One line for each shape: the kernels' own choice (*); with --tune also the four fastest of the ways listed below;
// with --unchecked without the bounds checks that Dawn writes into shaders.
import { parseArgs } from "node:util";
import { dawnGpu } from "../../dist/local/engine/kernels/webgpu/dawn.node.js";
import { openGpuDevice } from "../../dist/local/engine/kernels/webgpu/gpu-device.js";
import { planProduct } from "../../dist/local/engine/kernels/webgpu/product-plan.js";
import { tileBytes, tileName, tileThreads } from "../../dist/local/engine/kernels/webgpu/product-tiles.js";
import { multiply } from "../../dist/local/engine/kernels/webgpu/products.js";
import { createWebGpuKernels } from "../../dist/local/engine/kernels/webgpu/webgpu-kernels.js";

const { values: options } = parseArgs({
  options: {
    tune: { type: "boolean", default: false },
    only: { type: "string", default: "" },
    milliseconds: { type: "string", default: "40" },
    unchecked: { type: "boolean", default: false },
  },
});

/** Sides of a product, and how b is stored: frozen weights forward (k next to each other) or backward, or plain float32. */
const shape = (group, m, n, k, b = "BF16", more = {}) => ({ group, m, n, k, b, ...more });
const WEIGHTS = [
  [4096, 1024],
  [1024, 2048],
  [6144, 1024],
  [1024, 3072],
];
const SHAPES = [
  shape("square", 1024, 1024, 1024, "plain"),
  shape("square", 4096, 4096, 4096, "plain"),
  shape("many", 8192, 4096, 1024),
  shape("many", 8192, 1024, 4096, "BF16", { transB: true }),
  ...WEIGHTS.slice(1).flatMap(([n, k]) => [
    shape("more", 8192, n, k),
    shape("more", 8192, k, n, "BF16", { transB: true }),
  ]),
  shape("more", 8192, 4096, 1024, "F32"),
  shape("more", 8192, 4096, 1024, "F16"),
  shape("head", 800, 151936, 1024),
  shape("head", 800, 1024, 151936, "BF16", { transB: true }),
  ...[512, 1024, 2048].flatMap((m) => [
    shape("some", m, 4096, 1024),
    shape("some", m, 1024, 3072),
    shape("some", m, 1024, 6144, "BF16", { transB: true }),
  ]),
  ...[
    [32, 2048],
    [96, 1024],
    [64, 1024],
    [32, 3072],
  ].map(([n, k]) => shape("lora-xA", 8192, n, k, "plain")),
  ...[1024, 2048, 3072].map((n) =>
    shape("lora-xAB", 8192, n, 32, "plain", { accumulate: true, lda: 96, ldc: 6144 }),
  ),
  ...[1024, 3072].map((n) =>
    shape("lora-dB", 32, n, 8192, "plain", { transA: true, accumulate: true, lda: 96, ldb: 6144 }),
  ),
  ...[1024, 3072].map((k) => shape("lora-dlow", 8192, 32, k, "plain", { transB: true, lda: 6144, ldc: 96 })),
  ...[
    [1024, 96],
    [2048, 32],
    [3072, 32],
  ].map(([m, n]) => shape("lora-dA", m, n, 8192, "plain", { transA: true, accumulate: true })),
  ...[
    [1024, 96],
    [3072, 32],
  ].map(([n, k]) => shape("lora-dx", 8192, n, k, "plain", { transB: true, accumulate: true })),
  ...[1, 2, 4, 8].flatMap((m) => [
    ...WEIGHTS.map(([n, k]) => shape("few", m, n, k)),
    shape("few-head", m, 151936, 1024),
    shape("few-lora", m, 96, 1024, "plain"),
    shape("few-lora", m, 32, 3072, "plain"),
    shape("few-lora", m, 2048, 32, "plain", { accumulate: true, lda: 96, ldc: 4096 }),
    shape("few-lora", m, 3072, 32, "plain", { accumulate: true }),
  ]),
  ...[16, 32, 64, 128, 256].flatMap((m) => [
    ...WEIGHTS.map(([n, k]) => shape("medium", m, n, k)),
    shape("medium-head", m, 151936, 1024),
    shape("medium-lora", m, 96, 1024, "plain"),
    shape("medium-lora", m, 2048, 32, "plain", { accumulate: true, lda: 96, ldc: 4096 }),
  ]),
  ...[1, 64, 2048, 8192].flatMap((m) => [
    shape("nano", m, 768, 256, "F32"),
    shape("nano", m, 256, 16, "plain"),
  ]),
];

const tile = (text, { parts = 1, buffers = 1, isPadded = true, teams = 1, unroll = 64 } = {}) => {
  const [rows, columns, depth, threadRows, threadColumns] = text.split(/[x/]/).map(Number);
  return {
    kind: "tiles",
    parts,
    rows,
    columns,
    depth,
    threadRows,
    threadColumns,
    buffers,
    isPadded,
    unroll: Math.min(unroll, depth / teams),
    teams,
  };
};
const withParts = (each, ...counts) => counts.map((parts) => ({ ...each, parts }));
const T128 = tile("128x128x8/8x8", { buffers: 2 });
const T128_DEEP = tile("128x128x16/8x8");
const T64_WIDE = tile("64x256x8/8x8", { buffers: 2 });
const T128_64 = tile("128x64x16/8x8", { teams: 2 });
const T64 = tile("64x64x32/8x8", { teams: 4 });
const T64_32 = tile("64x32x64/8x8", { teams: 8 });
const T64_32_DOUBLE = tile("64x32x32/8x8", { teams: 8, buffers: 2 });
const T64_32_FINE = tile("64x32x32/4x4", { teams: 2 });
const T32 = tile("32x32x64/4x8", { teams: 8 });
const T32_16 = tile("32x16x64/4x4", { teams: 8 });
const T16_32 = tile("16x32x64/4x4", { teams: 8 });
const T16 = tile("16x16x64/4x4", { teams: 16 });
const LARGE = [
  T128,
  tile("128x128x8/8x8", { buffers: 2, isPadded: false }),
  tile("128x128x8/8x8", { buffers: 2, unroll: 4 }),
  tile("128x128x8/8x8"),
  T128_DEEP,
  tile("128x128x16/8x8", { buffers: 2 }),
  T64_WIDE,
];
const SHALLOW = [
  T128_DEEP,
  T128,
  tile("128x128x32/8x8"),
  tile("64x128x16/8x8"),
  tile("64x128x32/4x8"),
  tile("64x64x32/4x4"),
  tile("64x64x16/4x4"),
  tile("32x128x32/4x4"),
];
const NARROW = [
  ...withParts(T64_32, 1, 2),
  ...withParts(T32, 1, 2),
  tile("32x32x32/4x4", { buffers: 2 }),
  tile("64x32x32/8x4", { teams: 4 }),
  tile("128x32x32/8x4", { teams: 4 }),
  tile("64x96x32/8x8", { teams: 2 }),
];
const dots = (lanes, teams, columns, unroll = 4) => ({ kind: "dots", lanes, teams, columns, unroll });
const columns = (lanes, parts, unroll = 8) => ({ kind: "columns", lanes, parts, unroll });
const DOTS = [
  dots(32, 4, 1),
  dots(32, 4, 2),
  dots(32, 8, 2),
  dots(32, 4, 4),
  dots(64, 2, 1),
  dots(64, 4, 2),
  dots(128, 1, 1),
  dots(128, 1, 2),
  dots(128, 2, 4),
  dots(32, 4, 1, 1),
  dots(64, 2, 2, 1),
];

/** The ways that are tried for a group of shapes, and for which of their rows. */
const WAYS = {
  square: { ways: LARGE, rows: [4096] },
  many: { ways: LARGE },
  head: { ways: [T128, T64_WIDE, ...withParts(T128, 5, 9, 14), ...withParts(T64_WIDE, 5, 10)] },
  some: {
    ways: [...withParts(T128, 1, 2, 4), ...withParts(T64_WIDE, 1, 2), T128_64, T64],
    rows: [512, 1024],
  },
  "lora-xA": { ways: NARROW },
  "lora-dlow": { ways: NARROW },
  "lora-xAB": { ways: SHALLOW },
  "lora-dx": { ways: SHALLOW },
  "lora-dB": {
    ways: [
      ...withParts(T32, 4, 8),
      ...withParts(tile("32x64x32/4x8", { teams: 4 }), 4, 8, 16),
      ...withParts(tile("32x128x32/4x8", { teams: 2 }), 8, 16),
    ],
  },
  "lora-dA": {
    ways: [
      ...withParts(T64_32, 4, 8),
      ...withParts(T32, 2, 4),
      ...withParts(tile("128x32x32/8x4", { teams: 2 }), 8, 16),
      ...withParts(tile("128x96x16/8x4", { buffers: 2 }), 16),
      ...withParts(tile("64x96x32/8x8", { teams: 2 }), 8, 16),
    ],
  },
  few: { ways: DOTS, rows: [1, 8] },
  "few-head": {
    ways: [...DOTS.slice(1, 4), dots(32, 4, 8, 1), dots(32, 4, 4, 1), dots(64, 2, 4, 1), T16_32],
    rows: [1, 8],
  },
  "few-lora": { ways: [columns(4, 64), columns(8, 32), columns(8, 16), columns(2, 128)], rows: [1] },
  medium: {
    ways: [
      ...withParts(T64, 1, 2, 4),
      ...withParts(T64_32, 1, 2, 4, 8),
      T64_32_DOUBLE,
      T64_32_FINE,
      ...withParts(T32, 1, 2, 4),
      T32_16,
      T16_32,
      T16,
    ],
    rows: [16, 64],
  },
  "medium-head": {
    ways: [
      T64_WIDE,
      tile("64x128x8/8x8", { buffers: 2 }),
      tile("64x128x16/8x8"),
      T64,
      T64_32,
      T32,
      T16_32,
      dots(32, 4, 4, 1),
    ],
    rows: [16, 64],
  },
  "medium-lora": { ways: [columns(4, 64), columns(8, 16), T32, T32_16, T16], rows: [64] },
};
/** Of each way's time the least in so many rounds: a card's clock changes within seconds. */
const ROUNDS = 3;
const BEST = 4;

const gpu = await dawnGpu(options.unchecked ? "fast" : "exact");
const opened = gpu && (await openGpuDevice(gpu, { memoryBytes: 64 * 2 ** 30 }));
if (!opened) throw new Error("there is no GPU");
globalThis.keepAlive = opened;
const kernels = createWebGpuKernels(opened);
const { limits } = opened.device;
console.log(`# ${opened.info.name}, ${limits.maxComputeWorkgroupStorageSize} bytes of workgroup memory`);

const buffers = new Map();
/** One zero-filled buffer for each name, as large as was ever asked for; values do not change the time. */
function buffer(name, length) {
  const known = buffers.get(name);
  if (known && known.length >= length) return known;
  if (known) kernels.free(known);
  const made = kernels.alloc(length);
  buffers.set(name, made);
  return made;
}
const frozen = new Map();
function weights(inputs, outputs, dtype) {
  const key = `${inputs} ${outputs} ${dtype}`;
  if (!frozen.has(key)) frozen.set(key, kernels.frozen(inputs, outputs, dtype));
  return frozen.get(key);
}

function productOf({ m, n, k, b, transA, transB, accumulate, lda, ldb, ldc }) {
  const isPlain = b === "plain";
  const widthA = lda ?? (transA ? m : k);
  const widthB = ldb ?? (transB ? k : n);
  return {
    c: buffer("c", m * (ldc ?? n)),
    a: buffer("a", (transA ? k : m) * widthA),
    b: isPlain ? buffer("b", (transB ? n : k) * widthB) : transB ? weights(n, k, b) : weights(k, n, b),
    m,
    n,
    k,
    transA,
    transB,
    accumulate,
    lda,
    ldb,
    ldc,
  };
}

/** Seconds of one product, and those of its recording: several in one submission. */
async function time(run, repeats) {
  const start = performance.now();
  for (let i = 0; i < repeats; i++) run();
  const recorded = performance.now();
  await kernels.queue.done();
  const seconds = (milliseconds) => milliseconds / 1000 / repeats;
  return { seconds: seconds(performance.now() - start), recording: seconds(recorded - start) };
}

/** The ways by turns, each as often as fills its part of the wall clock. */
async function measure(ways, product) {
  const measured = [];
  for (const plan of ways) {
    const run = () => multiply(kernels, product, plan);
    await time(run, 1);
    const { seconds } = await time(run, 2);
    const repeats = Math.ceil(Number(options.milliseconds) / 1000 / ROUNDS / seconds);
    measured.push({ plan, run, repeats: Math.max(2, Math.min(500, repeats)), seconds, recording: seconds });
  }
  for (let round = 0; round < ROUNDS; round++) {
    for (const each of measured) {
      const { seconds, recording } = await time(each.run, each.repeats);
      each.seconds = Math.min(each.seconds, seconds);
      each.recording = Math.min(each.recording, recording);
    }
  }
  return measured;
}

const nameOf = ({ kind, ...plan }) =>
  kind === "tiles" ? `${tileName(plan)} parts ${plan.parts}` : `${kind} ${Object.values(plan).join("x")}`;
const fits = (plan, { m, n }) =>
  plan.kind !== "tiles" ||
  (4 * plan.parts * m * n <= limits.maxStorageBufferBindingSize &&
    tileBytes(plan) <= limits.maxComputeWorkgroupStorageSize &&
    tileThreads(plan) <= limits.maxComputeInvocationsPerWorkgroup);

for (const each of SHAPES) {
  const { group, m, n, k, b } = each;
  const name = `${group} ${m}x${n}x${k} ${b}${each.transA ? " transA" : ""}${each.transB ? " transB" : ""}`;
  if (!name.includes(options.only)) continue;
  const product = productOf(each);
  const chosen = planProduct(product, opened);
  const { ways = [], rows = [m] } = WAYS[group] ?? {};
  const others = options.tune && rows.includes(m) ? ways.filter((plan) => fits(plan, each)) : [];
  const [first, ...rest] = await measure(
    [chosen, ...others.filter((plan) => nameOf(plan) !== nameOf(chosen))],
    product,
  );
  rest.sort((x, y) => x.seconds - y.seconds);
  const bytes =
    4 * m * k + 4 * m * n * (each.accumulate ? 2 : 1) + n * k * (b === "BF16" || b === "F16" ? 2 : 4);
  for (const { plan, seconds, recording } of [first, ...rest.slice(0, BEST)]) {
    const [tera, giga] = [(2 * m * n * k) / seconds / 1e12, bytes / seconds / 1e9];
    console.log(
      `${plan === chosen ? name : ""} | ${plan === chosen ? "* " : ""}${nameOf(plan)} | ${(seconds * 1e6).toFixed(1)} us (${(recording * 1e6).toFixed(1)} to record) | ${tera.toFixed(2)} TFLOP/s | ${giga.toFixed(0)} GB/s`,
    );
  }
}
await kernels.close();
process.exit(0);
