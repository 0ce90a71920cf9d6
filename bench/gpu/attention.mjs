// Attention's shaders by the GPU's clock, with the tiles and parts given here: one line each, the best of its kind first.
// FLOP are those that causal attention needs, bytes those of keys and values read once. Needs `npm run build`.
// `node bench/gpu/attention.mjs [--tiny] [--only forward|backward|prefill|paged] [--tiles JSON] [--unchecked]`
import { parseArgs } from "node:util";
import { create } from "webgpu";
import { attention } from "../../dist/local/engine/kernels/webgpu/attention.js";
import { attentionBackward } from "../../dist/local/engine/kernels/webgpu/attention-backward.js";
import { tilesFor } from "../../dist/local/engine/kernels/webgpu/attention-tiles.js";
import { openGpuDevice } from "../../dist/local/engine/kernels/webgpu/gpu-device.js";
import { attentionPaged, partsFor } from "../../dist/local/engine/kernels/webgpu/paged-attention.js";
import { createWebGpuKernels } from "../../dist/local/engine/kernels/webgpu/webgpu-kernels.js";
import { ShaderTimer } from "./shader-timer.mjs";

const { values } = parseArgs({
  options: {
    tiny: { type: "boolean", default: false },
    only: { type: "string" },
    tiles: { type: "string" },
    unchecked: { type: "boolean", default: false },
  },
});
const isTiny = values.tiny;
const [ROUNDS, RUNS] = isTiny ? [2, 2] : [5, 4];
const PAGE_SIZE = 16;
const SHAPE = isTiny
  ? { heads: 2, kvHeads: 1, headDim: 16, scale: 0.25 }
  : { heads: 16, kvHeads: 8, headDim: 128, scale: 128 ** -0.5 };
const PACKED = isTiny
  ? [[2, 20]]
  : [
      [16, 512],
      [4, 2048],
    ];
const PAGED = isTiny
  ? [[2, 200]]
  : [1, 64, 256].flatMap((sequences) => [512, 4096].map((length) => [sequences, length]));
const PARTS = isTiny
  ? undefined
  : [
      { threads: 128, keys: 128 },
      { threads: 256, keys: 256 },
      { threads: 256, keys: 512 },
      { threads: 512, keys: 512 },
      { threads: 1024, keys: 512 },
    ];
const TILES = values.tiles
  ? JSON.parse(values.tiles)
  : [
      { across: 16, down: 16, rows: 4, depth: 8, staged: 16, isAhead: true },
      { across: 16, down: 16, rows: 4, depth: 8, staged: 16, isAhead: false },
      { across: 16, down: 16, rows: 4, depth: 4, staged: 8, isAhead: true },
      { across: 16, down: 16, rows: 8, depth: 4, staged: 8, isAhead: true },
      { across: 16, down: 16, rows: 8, depth: 4, staged: 8, isAhead: false },
      { across: 16, down: 8, rows: 8, depth: 8, staged: 16, isAhead: true },
      { across: 16, down: 8, rows: 4, depth: 4, staged: 8, isAhead: true },
    ];

// Without it, Dawn rounds timestamps to a tenth of a millisecond.
const flags = ["disable-dawn-features=timestamp_quantization"];
if (values.unchecked) flags.push("enable-dawn-features=disable_robustness");
const gpu = await openGpuDevice(create(flags), {
  memoryBytes: isTiny ? 2 ** 30 : 100 * 2 ** 30,
});
const { device } = gpu;
const kernels = createWebGpuKernels(gpu);
const timer = new ShaderTimer(kernels);

/** Milliseconds of each shader of one run, of several: a list for each shader. */
async function time(run) {
  const shaders = await timer.time(run, RUNS);
  return shaders.map(({ name, times }) => ({ shader: name.replace(/-?\{.*/, ""), times }));
}

const median = (times) => times.toSorted((a, b) => a - b)[times.length >> 1];

function random(length) {
  const buffer = kernels.alloc(length);
  const piece = Float32Array.from({ length: Math.min(length, 1 << 20) }, () => Math.random() * 2 - 1);
  for (let at = 0; at < length; at += piece.length) {
    const count = Math.min(piece.length, length - at);
    kernels.upload({ ...buffer, offset: 4 * at, length: count }, piece.subarray(0, count));
  }
  return buffer;
}

function ints(data) {
  const buffer = kernels.allocInts(data.length);
  kernels.uploadInts(buffer, Int32Array.from(data));
  return buffer;
}

/** Runs the candidates in turns, as the clock of the card changes, and prints a line for each, fastest first. */
async function compare(title, candidates, run, figures) {
  for (const candidate of candidates) {
    run(candidate);
    await kernels.queue.done();
  }
  const rounds = [];
  for (let round = 0; round < ROUNDS; round++) {
    const all = [];
    for (const candidate of candidates) all.push(await time(() => run(candidate)));
    rounds.push(all);
  }
  const results = candidates.map((candidate, index) => {
    const shaders = rounds[0][index].map(({ shader }, at) => ({
      shader,
      ms: median(rounds.flatMap((all) => all[index][at].times)),
    }));
    return { candidate, shaders, ms: shaders.reduce((sum, { ms }) => sum + ms, 0) };
  });
  results.sort((a, b) => a.ms - b.ms);
  for (const { candidate, shaders, ms } of results) {
    const parts = shaders.map(({ shader, ms }) => `${shader} ${ms.toFixed(3)}`).join(", ");
    console.log(`${title}  ${JSON.stringify(candidate)}  ${ms.toFixed(3)} ms  ${figures(ms)}  (${parts})`);
  }
}

const { heads, kvHeads, headDim } = SHAPE;
const { maxComputeWorkgroupStorageSize, maxComputeInvocationsPerWorkgroup } = device.limits;
console.log(
  `${gpu.info.name}, ${maxComputeWorkgroupStorageSize} bytes of workgroup memory, ${maxComputeInvocationsPerWorkgroup} threads`,
);

for (const [sequences, length] of ["paged", "prefill"].includes(values.only) ? [] : PACKED) {
  const rows = sequences * length;
  const [q, kv] = [heads * headDim, kvHeads * headDim];
  const wide = (stride) => ({ data: random(rows * stride), stride });
  const operation = {
    out: random(rows * q),
    logSumExp: random(rows * heads),
    query: wide(q),
    key: wide(kv),
    value: wide(q + 2 * kv),
    offsets: ints(Array.from({ length: sequences + 1 }, (_, index) => index * length)),
    shape: SHAPE,
    dquery: wide(q),
    dkey: wide(kv),
    dvalue: wide(q + 2 * kv),
    dout: random(rows * q),
  };
  const title = `${sequences} x ${length}`;
  const products = (count) => (ms) => {
    const flop = count * 2 * headDim * heads * sequences * ((length * (length + 1)) / 2);
    return `${(flop / ms / 1e9).toFixed(2)} TFLOP/s`;
  };
  const tiles = tilesFor(headDim, device, TILES);
  if (values.only !== "backward")
    await compare(`forward  ${title}`, tiles, (tile) => attention(kernels, operation, tile), products(2));
  if (values.only !== "forward")
    await compare(
      `backward ${title}`,
      tiles,
      (tile) => attentionBackward(kernels, operation, tile),
      products(7),
    );
  const { out, logSumExp, query, key, value, offsets, dquery, dkey, dvalue, dout } = operation;
  for (const buffer of [out, logSumExp, offsets, dout]) kernels.free(buffer);
  for (const { data } of [query, key, value, dquery, dkey, dvalue]) kernels.free(data);
}

if (!values.only || values.only === "prefill") {
  const rows = isTiny ? 40 : 2048;
  const pagesPerRow = Math.ceil(rows / PAGE_SIZE);
  const width = kvHeads * headDim;
  const operation = {
    out: random(rows * heads * headDim),
    query: { data: random(rows * heads * headDim), stride: heads * headDim },
    keyPages: random(pagesPerRow * PAGE_SIZE * width),
    valuePages: random(pagesPerRow * PAGE_SIZE * width),
    pageTables: ints(Array.from({ length: rows * pagesPerRow }, (_, index) => index % pagesPerRow)),
    lengths: ints(Array.from({ length: rows }, (_, row) => row + 1)),
    rows,
    pagesPerRow,
    pageSize: PAGE_SIZE,
    shape: SHAPE,
  };
  await compare(
    `prefill 1 x ${rows}`,
    [{ spans: [{ start: 0, rows }] }, { spans: [] }],
    ({ spans }) => attentionPaged(kernels, { ...operation, spans }),
    (ms) => `${((2 * 2 * headDim * heads * ((rows * (rows + 1)) / 2)) / ms / 1e9).toFixed(2)} TFLOP/s`,
  );
  const { out, query, keyPages, valuePages, pageTables, lengths } = operation;
  for (const buffer of [out, query.data, keyPages, valuePages, pageTables, lengths]) kernels.free(buffer);
}

for (const [sequences, length] of values.only && values.only !== "paged" ? [] : PAGED) {
  const pagesPerRow = Math.ceil(length / PAGE_SIZE);
  const pages = sequences * pagesPerRow;
  const width = kvHeads * headDim;
  const operation = {
    out: random(sequences * heads * headDim),
    query: { data: random(sequences * heads * headDim), stride: heads * headDim },
    keyPages: random(Math.min(pages, Math.floor((2 ** 29 - 1) / (PAGE_SIZE * width))) * PAGE_SIZE * width),
    valuePages: random(Math.min(pages, Math.floor((2 ** 29 - 1) / (PAGE_SIZE * width))) * PAGE_SIZE * width),
    pageTables: undefined,
    lengths: ints(Array.from({ length: sequences }, () => length)),
    rows: sequences,
    pagesPerRow,
    pageSize: PAGE_SIZE,
    shape: SHAPE,
  };
  // 7919 is a prime: pages in no order.
  const stored = operation.keyPages.length / (PAGE_SIZE * width);
  operation.pageTables = ints(Array.from({ length: pages }, (_, index) => (index * 7919) % stored));
  const bytes = 8 * sequences * length * width;
  await compare(
    `paged ${sequences} x ${length}`,
    partsFor(SHAPE, device, PARTS),
    (part) => attentionPaged(kernels, operation, part),
    (ms) => `${(bytes / ms / 1e6).toFixed(0)} GB/s`,
  );
  const { out, query, keyPages, valuePages, pageTables, lengths } = operation;
  for (const buffer of [out, query.data, keyPages, valuePages, pageTables, lengths]) kernels.free(buffer);
}
await kernels.close();
