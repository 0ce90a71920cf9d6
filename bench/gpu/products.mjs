// Times products on the GPU: node bench/gpu/products.mjs [--tune [--best]] [--only TEXT] [--milliseconds 40]
// One line for each shape and way: the kernels' own choice (*), with --tune those listed below, with --best only the four fastest.
import { parseArgs } from "node:util";
import { dawnGpu } from "../../dist/local/engine/kernels/webgpu/dawn.node.js";
import { openGpuDevice } from "../../dist/local/engine/kernels/webgpu/gpu-device.js";
import { tileBytes, tileThreads } from "../../dist/local/engine/kernels/webgpu/product-tiles.js";
import { multiply, planProduct } from "../../dist/local/engine/kernels/webgpu/products.js";
import { createWebGpuKernels } from "../../dist/local/engine/kernels/webgpu/webgpu-kernels.js";

const { values: options } = parseArgs({
  options: {
    tune: { type: "boolean", default: false },
    only: { type: "string", default: "" },
    milliseconds: { type: "string", default: "40" },
    best: { type: "boolean", default: false },
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
  shape("square", 2048, 4096, 1024, "plain"),
  shape("square", 4096, 4096, 4096, "plain"),
  shape("square", 2048, 12288, 4096, "plain"),
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

const tile = (text, buffers = 2, isPadded = true, unroll = 64) => {
  const [rows, columns, depth, threadRows, threadColumns] = text.split(/[x/]/).map(Number);
  return {
    kind: "tiles",
    parts: 1,
    rows,
    columns,
    depth,
    threadRows,
    threadColumns,
    buffers,
    isPadded,
    unroll: Math.min(unroll, depth),
  };
};
const LARGE = [
  tile("128x128x8/8x8", 2, false),
  tile("128x128x8/8x8", 2, true),
  tile("128x128x16/8x8", 1, false),
  tile("128x128x16/8x8", 1, true),
  tile("128x128x16/8x8", 2, true),
  tile("128x128x16/8x8", 2, false),
  tile("128x128x16/8x8", 2, true, 1),
  tile("128x128x16/8x8", 2, true, 4),
  tile("128x128x32/8x8", 1, true),
  tile("128x128x16/8x16", 2, true),
  tile("128x128x16/16x8", 2, true),
  tile("128x256x16/8x16", 1, true),
  tile("128x256x16/8x16", 2, true),
  tile("256x128x16/16x8", 1, true),
  tile("256x128x16/16x8", 2, true),
  tile("128x64x16/8x8", 2, true),
  tile("64x128x16/8x8", 2, true),
  tile("128x64x32/8x8", 1, true),
  tile("64x64x16/8x8", 2, true),
  tile("64x64x16/8x4", 2, true),
  tile("64x64x32/8x8", 2, true),
];
const withParts = (tiles, counts) => tiles.flatMap((each) => counts.map((parts) => ({ ...each, parts })));
const SMALL_TILES = [
  tile("64x64x16/8x8"),
  tile("64x64x16/8x4"),
  tile("64x64x32/4x4"),
  tile("32x64x32/4x4"),
  tile("32x64x32/4x8"),
  tile("32x128x32/4x8", 1),
  tile("32x32x32/4x4"),
  tile("128x64x16/8x8"),
  tile("128x32x32/8x4", 1),
];
const NARROW = [
  tile("128x32x16/8x4"),
  tile("128x32x32/8x4", 1),
  tile("64x32x32/8x4"),
  tile("64x32x32/4x4"),
  tile("32x32x32/4x4"),
  tile("128x96x16/8x4"),
  tile("64x96x16/8x4"),
  tile("64x64x16/8x8"),
  tile("128x64x16/8x8"),
];
const FLAT = [
  tile("32x128x32/4x8", 1),
  tile("32x128x16/4x8"),
  tile("32x64x32/4x8"),
  tile("32x64x32/4x4"),
  tile("32x32x32/4x4"),
];
const SHALLOW = [
  tile("128x128x32/8x8", 1),
  tile("128x128x16/8x8", 1),
  tile("128x128x16/8x8", 2),
  tile("64x128x32/8x8", 1),
  tile("64x128x32/4x8", 1),
  tile("64x64x32/4x4", 1),
  tile("64x64x32/8x8", 1),
];
const DOTS = [
  [32, 4, 1],
  [32, 4, 2],
  [32, 4, 4],
  [32, 8, 1],
  [32, 8, 2],
  [32, 2, 2],
  [16, 8, 1],
  [16, 8, 2],
  [64, 2, 1],
  [64, 4, 2],
  [128, 1, 2],
].map(([lanes, teams, columns]) => ({ kind: "dots", lanes, teams, columns }));
const COLUMNS = [
  [4, 16],
  [4, 32],
  [4, 64],
  [8, 16],
  [8, 32],
  [16, 4],
  [16, 16],
  [32, 4],
  [32, 8],
  [64, 2],
].map(([lanes, parts]) => ({ kind: "columns", lanes, parts }));

/** The ways that are tried for a group of shapes. */
const WAYS = {
  square: LARGE,
  many: LARGE,
  more: [],
  head: LARGE.slice(4, 6),
  some: [
    ...LARGE.slice(4, 6),
    ...LARGE.slice(15),
    ...withParts([LARGE[4], LARGE[15], tile("64x64x16/8x8")], [2, 3, 4]),
  ],
  "lora-xA": withParts(NARROW, [1, 2, 4, 8]),
  "lora-dlow": withParts(NARROW.slice(0, 5), [1, 2, 4, 8]),
  "lora-xAB": SHALLOW,
  "lora-dx": SHALLOW,
  "lora-dB": withParts(FLAT, [8, 16, 32, 64]),
  "lora-dA": withParts(NARROW, [4, 8, 16, 32]),
  few: DOTS,
  "few-head": DOTS,
  "few-lora": COLUMNS,
  medium: [...DOTS.slice(0, 3), ...withParts(SMALL_TILES, [1, 2, 4, 8])],
  "medium-head": [...SMALL_TILES, ...LARGE.slice(4, 5)],
  "medium-lora": [...COLUMNS.slice(0, 5), ...withParts(NARROW.slice(2, 5), [1, 4, 8])],
  nano: [],
};

const gpu = await dawnGpu("exact");
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

/** Seconds of one product: several in one submission, until the wall clock says enough. */
async function secondsOf(run) {
  const time = async (repeats) => {
    const start = performance.now();
    for (let i = 0; i < repeats; i++) run();
    await kernels.queue.done();
    return (performance.now() - start) / 1000;
  };
  const compile = await time(1);
  const one = await time(2);
  const target = Number(options.milliseconds) / 1000;
  const repeats = Math.max(4, Math.min(1500, Math.ceil((2 * target) / one)));
  return { compile, seconds: Math.min(await time(repeats), await time(repeats)) / repeats };
}

const nameOf = ({ kind, ...plan }) =>
  kind === "tiles"
    ? `${plan.rows}x${plan.columns}x${plan.depth}/${plan.threadRows}x${plan.threadColumns} buffers ${plan.buffers}${plan.isPadded ? " padded" : ""} unroll ${plan.unroll} parts ${plan.parts}`
    : `${kind} ${Object.values(plan).join("x")}`;
const fits = (plan) =>
  plan.kind !== "tiles" ||
  (tileBytes(plan) <= limits.maxComputeWorkgroupStorageSize &&
    tileThreads(plan) <= limits.maxComputeInvocationsPerWorkgroup);

for (const each of SHAPES) {
  const { group, m, n, k, b } = each;
  const name = `${group} ${m}x${n}x${k} ${b}${each.transA ? " transA" : ""}${each.transB ? " transB" : ""}`;
  if (!name.includes(options.only)) continue;
  const product = productOf(each);
  const ways = [
    ["chosen", planProduct(product, opened)],
    ...(options.tune ? WAYS[group].filter(fits).map((plan) => [plan.kind, plan]) : []),
  ];
  const bytes =
    4 * m * k + 4 * m * n * (each.accumulate ? 2 : 1) + n * k * (b === "BF16" || b === "F16" ? 2 : 4);
  const lines = [];
  for (const [label, plan] of ways) {
    const { compile, seconds } = await secondsOf(() => multiply(kernels, product, plan));
    const text = `${name} | ${label === "chosen" ? "* " : ""}${nameOf(plan)} | ${(seconds * 1e6).toFixed(1)} us | ${((2 * m * n * k) / seconds / 1e12).toFixed(2)} TFLOP/s | ${(bytes / seconds / 1e9).toFixed(0)} GB/s | compiled in ${compile.toFixed(2)} s`;
    lines.push({ seconds, text });
    if (!options.best) console.log(text);
  }
  if (options.best) {
    const best = lines.slice(1).sort((x, y) => x.seconds - y.seconds);
    for (const { text } of [lines[0], ...best.slice(0, 4)]) console.log(text);
  }
}
await kernels.close();
process.exit(0);
