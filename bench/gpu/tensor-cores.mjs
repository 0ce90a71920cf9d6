// Products on tensor cores by the GPU's clock: tiles beside one another, the way to float16 apart, the products of LoRA beside
// the exact ones. Needs `npm run build`, the package `webgpu` and a card with subgroup matrices.
// `node bench/gpu/tensor-cores.mjs`            times, in less than a minute
// `node bench/gpu/tensor-cores.mjs --values`   how far ragged products and rows of all sizes are off
// `node bench/gpu/tensor-cores.mjs --compile`  lets the compiler read every shader, on Dawn's null device, which needs no card
import { parseArgs } from "node:util";
import { dawnGpu } from "../../dist/local/engine/kernels/webgpu/dawn.node.js";
import { openGpuDevice } from "../../dist/local/engine/kernels/webgpu/gpu-device.js";
import { planProduct } from "../../dist/local/engine/kernels/webgpu/product-plan.js";
import { multiply } from "../../dist/local/engine/kernels/webgpu/products.js";
import {
  multiplyOnTensorCores,
  planTensorProduct,
} from "../../dist/local/engine/kernels/webgpu/tensor-cores.js";
import { TENSOR_SHADER, tensorTileName } from "../../dist/local/engine/kernels/webgpu/tensor-tiles.js";
import { createWebGpuKernels } from "../../dist/local/engine/kernels/webgpu/webgpu-kernels.js";
import { ShaderTimer } from "./shader-timer.mjs";

const tile = (rows, columns, depth, groupRows, groupColumns) => ({
  rows,
  columns,
  depth,
  groupRows,
  groupColumns,
});
const TILES = [tile(128, 128, 32, 64, 32), tile(128, 256, 16, 64, 64), tile(64, 64, 32, 32, 32)];
const WAYS = [
  ...TILES.map((each) => ({ tile: each, parts: 1 })),
  ...[2, 4, 7, 14].map((parts) => ({ tile: TILES[0], parts })),
  ...[7, 14, 20].map((parts) => ({ tile: TILES[1], parts })),
];
/** Of a model with 0.6 billion parameters and 8192 tokens: the base model's with the head's backward last, then fewer tokens, then cubes. */
const SHAPES = [
  [8192, 4096, 1024],
  [8192, 1024, 3072],
  [8192, 6144, 1024],
  [8192, 1024, 2048],
  [883, 1024, 151936],
  [1024, 1024, 3072],
  [64, 4096, 1024],
  [1024, 1024, 1024],
  [4096, 4096, 4096],
];
/** Of LoRA with rank 32, several layers' adapters side by side: x A, d(low rank), dA, dB and what is added to the layer's output. */
const LORA = [
  { name: "x A", m: 8192, n: 32, k: 2048 },
  { name: "x A", m: 8192, n: 64, k: 1024 },
  { name: "x A", m: 8192, n: 96, k: 1024 },
  { name: "dlow", m: 8192, n: 32, k: 3072, transB: true },
  { name: "dA", m: 1024, n: 64, k: 8192, transA: true },
  { name: "dA", m: 1024, n: 96, k: 8192, transA: true },
  { name: "dB", m: 32, n: 3072, k: 8192, transA: true },
  { name: "low B", m: 8192, n: 3072, k: 32, accumulate: true },
  { name: "dx +=", m: 8192, n: 1024, k: 96, transB: true, accumulate: true },
];
const DISTRIBUTIONS = {
  "activations N(0, 1)": () => normal(),
  "gradients 1e-6": () => normal() * 1e-6,
  "gradients 1e-12": () => normal() * 1e-12,
  "rows from 1e-10 to 1": (row) => normal() * 10 ** (-10 * (row / 63)),
  "N(0, 1), one in a hundred 1e4": () => normal() * (Math.random() < 0.01 ? 1e4 : 1),
  "N(0, 1), one in a row 1e6": (_, column) => normal() * (column === 5 ? 1e6 : 1),
};
const RIGHT_SIDES = ["k", "n"].map((rowsOfB) => ({ rowsOfB, dtype: "BF16", isPacked: false }));
const MAX_WORKGROUP_BYTES = 48 << 10;
/** Since the start of the process; what is not timed by then is left out. */
const DEADLINE_MS = 55_000;

const { values } = parseArgs({
  options: {
    values: { type: "boolean", default: false },
    compile: { type: "boolean", default: false },
  },
});
if (values.compile) await compile();
else await measure();

async function compile() {
  const { create } = await import("webgpu");
  const gpu = create(["backend=null", "enable-dawn-features=allow_unsafe_apis,disable_robustness"]);
  const adapter = await gpu.requestAdapter();
  globalThis.keepAlive = [gpu, adapter];
  const requiredFeatures = ["subgroups", "shader-f16", "chromium-experimental-subgroup-matrix"];
  const device = await adapter.requestDevice({ requiredFeatures });
  const packed = { rowsOfB: "k", dtype: "F16", isPacked: true };
  let wrong = 0;
  for (const each of TILES) {
    for (const side of [...RIGHT_SIDES, packed]) {
      device.pushErrorScope("validation");
      const module = device.createShaderModule({ code: TENSOR_SHADER({ ...each, ...side }).code });
      const { messages } = await module.getCompilationInfo();
      await device.popErrorScope();
      if (messages.length === 0) continue;
      wrong += 1;
      console.log(
        tensorTileName(each),
        JSON.stringify(side),
        messages.map(({ message }) => message).join("\n"),
      );
    }
  }
  console.log(`${TILES.length * 3} shaders, ${wrong} with messages`);
  process.exit(wrong ? 1 : 0);
}

async function measure() {
  // Without it, Dawn rounds timestamps to a tenth of a millisecond.
  const dawn = await dawnGpu("fast", { disable: ["timestamp_quantization"] });
  const gpu = await openGpuDevice(dawn, { precision: "fast", memoryBytes: 2 ** 35 });
  const kernels = createWebGpuKernels(gpu);
  const { name, subgroupSize, hasTensorCores, matrixProducts } = gpu.info;
  const bytes = gpu.device.limits.maxComputeWorkgroupStorageSize;
  console.log(`${name}, subgroups of ${subgroupSize}, ${bytes} bytes of workgroup memory`);
  console.log(`tensor cores ${hasTensorCores}: ${matrixProducts.join(", ")}`);
  if (values.values) await checkValues(kernels);
  else await timeAll(kernels);
  await kernels.close();
  process.exit(0);
}

async function timeAll(kernels) {
  const clock = gpuClock(kernels);
  const buffers = largeBuffers(kernels);
  const productOf = ([m, n, k], index, side) => ({
    c: buffers.c,
    a: buffers.a,
    b: buffers.weights[index][side],
    m,
    n,
    k,
    transB: side === 1,
  });
  console.log("\nTFLOP/s of the product alone, forward/backward, and the seconds that both took to compile");
  console.log("".padEnd(46), SHAPES.map((shape) => shape.join("x").padStart(15)).join(" "));
  const rows = [
    ["as planned", ([m, n, k]) => planTensorProduct(m, n, k, MAX_WORKGROUP_BYTES)],
    ...WAYS.map((way) => [wayName(way), () => way]),
  ];
  const packing = new Map();
  for (const [title, planOf] of rows) {
    if (performance.now() > DEADLINE_MS - 10_000) {
      console.log(title.padEnd(46), "left out: no time");
      continue;
    }
    let seconds = 0;
    const cells = [];
    for (const [index, shape] of SHAPES.entries()) {
      const rates = [];
      for (const side of [0, 1]) {
        const product = productOf(shape, index, side);
        const started = performance.now();
        multiplyOnTensorCores(kernels, product, planOf(shape));
        kernels.queue.flush();
        if (index === 0) seconds += (performance.now() - started) / 1000;
        const times = await clock.time(() => multiplyOnTensorCores(kernels, product, planOf(shape)));
        const products = times.filter(({ shader }) => isOfProduct(shader));
        const [m, n, k] = shape;
        rates.push((2 * m * n * k) / total(products) / 1e6);
        for (const { shader, us } of times) {
          if (isOfProduct(shader)) continue;
          const key = `${m}x${k} ${shader}`;
          packing.set(key, Math.min(us, packing.get(key) ?? us));
        }
      }
      cells.push(
        rates
          .map((rate) => rate.toFixed(0))
          .join("/")
          .padStart(15),
      );
    }
    console.log(title.padEnd(46), cells.join(" "), `${seconds.toFixed(1)} s`);
  }
  console.log("\nmicroseconds to float16, and GB/s of reading 4 bytes and writing 2");
  for (const [key, us] of packing) {
    const [m, k] = key.split(" ")[0].split("x");
    console.log(key.padEnd(46), us.toFixed(1).padStart(7), ((6 * m * k) / us / 1e3).toFixed(0).padStart(6));
  }

  console.log("\nLoRA: microseconds with tensor cores (the product, the rest), and exact");
  const plain = buffers.plain;
  for (const { name, m, n, k, ...options } of LORA) {
    if (performance.now() > DEADLINE_MS) {
      console.log(name, "left out: no time");
      continue;
    }
    const product = { c: buffers.c, a: buffers.a, b: plain, m, n, k, ...options };
    const tensorPlan =
      planTensorProduct(m, Math.max(n, 128), Math.max(k, 128), MAX_WORKGROUP_BYTES) ?? WAYS[2];
    const tensor = await clock.time(() => multiplyOnTensorCores(kernels, product, tensorPlan));
    const exact = await clock.time(() => multiply(kernels, product, planProduct(product, kernels.gpu)));
    const inProduct = total(tensor.filter(({ shader }) => isOfProduct(shader)));
    console.log(
      `${name} ${m}x${n}x${k}`.padEnd(24),
      `${total(tensor).toFixed(0)} (${inProduct.toFixed(0)}, ${(total(tensor) - inProduct).toFixed(0)})`.padEnd(
        20,
      ),
      total(exact).toFixed(0),
      planTensorProduct(m, n, k, MAX_WORKGROUP_BYTES) ? "now on tensor cores" : "now exact",
    );
  }
}

/** The product and the sum of its parts, not the way to float16. */
function isOfProduct(shader) {
  return shader.startsWith("tensor-product") || shader.startsWith("product-sum-parts");
}

function wayName(way) {
  return `${tensorTileName(way.tile)}${way.parts > 1 ? ` in ${way.parts} parts` : ""}`;
}

function total(times) {
  return times.reduce((sum, { us }) => sum + us, 0);
}

/** Microseconds of each shader of one run: the least of several, once the card has come to its speed. */
function gpuClock(kernels) {
  const timer = new ShaderTimer(kernels);
  let isWarm = false;

  async function time(run) {
    const started = performance.now();
    const warmupMs = isWarm ? 20 : 1500;
    isWarm = true;
    do {
      for (let turn = 0; turn < 8; turn++) run();
      await kernels.queue.done();
    } while (performance.now() - started < warmupMs);
    const shaders = await timer.time(run, 12);
    return shaders.map(({ name, times }) => ({ shader: name, us: 1000 * Math.min(...times) }));
  }
  return { time };
}

function largeBuffers(kernels) {
  const noise = Float32Array.from({ length: 1 << 20 }, () => normal());
  const longest = (pick) => Math.max(...[...SHAPES, ...LORA.map(({ m, n, k }) => [m, n, k])].map(pick));
  const filled = (length) => {
    const buffer = kernels.alloc(length);
    for (let start = 0; start < length; start += noise.length) {
      const count = Math.min(noise.length, length - start);
      kernels.upload(
        { ...buffer, offset: buffer.offset + 4 * start, length: count },
        noise.subarray(0, count),
      );
    }
    return buffer;
  };
  const weights = SHAPES.map(([, n, k]) => [
    weightsOf(kernels, k, n, noise),
    weightsOf(kernels, n, k, noise),
  ]);
  return {
    a: filled(longest(([m, , k]) => m * k)),
    plain: filled(Math.max(...LORA.map(({ n, k }) => n * k))),
    c: kernels.alloc(longest(([m, n]) => m * n)),
    weights,
  };
}

function weightsOf(kernels, inputs, outputs, noise) {
  const matrix = kernels.frozen(inputs, outputs, "BF16");
  const words = bfloat16(noise.map((value) => value / 50));
  for (let start = 0; start < matrix.block.bytes; start += 2 * words.length) {
    const length = Math.min(words.length, (matrix.block.bytes - start) / 2);
    kernels.gpu.device.queue.writeBuffer(matrix.block.buffer, start, words, 0, length);
  }
  return matrix;
}

async function checkValues(kernels) {
  const { gpu } = kernels;
  console.log("\nragged products against float64; 1 = the bound of rounding both sides to float16");
  for (const each of TILES) {
    const errors = [];
    for (const transB of [false, true])
      errors.push(await caught(gpu, () => ragged(kernels, { tile: each, parts: 1 }, transB)));
    console.log(tensorTileName(each).padEnd(46), ...errors);
  }
  const [first] = TILES;
  console.log("in 3 parts", await caught(gpu, () => ragged(kernels, { tile: first, parts: 3 }, false)));
  for (const [transB, transA] of [
    [false, false],
    [true, false],
    [false, true],
  ]) {
    const plan = { tile: first, parts: 1 };
    const worst = await caught(gpu, () => ragged(kernels, plan, transB, "plain", transA));
    console.log("float32", JSON.stringify({ transA, transB }), worst);
  }
  console.log("\nrelative errors (whole product, worst row) with bfloat16 weights, k = 1024");
  for (const [name, draw] of Object.entries(DISTRIBUTIONS)) {
    const { whole, row } = await distribution(kernels, first, draw);
    console.log(name.padEnd(40), whole.toExponential(2), row.toExponential(2));
  }
}

/** An error scope's message in place of the result, so that one broken shader does not end the run. */
async function caught({ device }, run) {
  for (const kind of ["validation", "internal", "out-of-memory"]) device.pushErrorScope(kind);
  let result;
  try {
    result = await run();
  } catch (error) {
    result = error.message;
  }
  for (let i = 0; i < 3; i++) {
    const error = await device.popErrorScope();
    if (error) result = error.message.split("\n").slice(0, 6).join(" ");
  }
  return result;
}

async function ragged(kernels, plan, transB, kind = "BF16", transA = false) {
  const [m, n, k] = [300, 277, 205];
  const [left, right] = [m, n].map((rows) => Float32Array.from({ length: rows * k }, () => normal()));
  const a = put(kernels, transA ? transposed(left, m, k) : left);
  let b;
  if (kind === "plain") b = put(kernels, transB ? right : transposed(right, n, k));
  else {
    const words = bfloat16(transB ? transposed(right, n, k) : right);
    const shape = transB ? [k, n] : [n, k];
    b = kernels.frozen(shape[1], shape[0], "BF16");
    await kernels.fill(b, 0, { dtype: "BF16", shape, bytes: new Uint8Array(words.buffer) });
    right.set(right.map(rounded));
  }
  const before = Float32Array.from({ length: m * n }, () => normal());
  const c = put(kernels, before);
  multiplyOnTensorCores(kernels, { c, a, b, m, n, k, transA, transB, accumulate: true }, plan);
  const actual = await kernels.download(c);
  let worst = 0;
  for (let row = 0; row < m; row++) {
    for (let column = 0; column < n; column++) {
      let [sum, size] = [before[row * n + column], 0];
      for (let i = 0; i < k; i++) {
        const term = left[row * k + i] * right[column * k + i];
        sum += term;
        size += Math.abs(term);
      }
      const off = Math.abs(actual[row * n + column] - sum) / (2 ** -10 * size + 2 ** -22 * Math.abs(sum));
      worst = Number.isNaN(off) ? Number.POSITIVE_INFINITY : Math.max(worst, off);
    }
  }
  return worst;
}

async function distribution(kernels, each, draw) {
  const [m, n, k] = [64, 128, 1024];
  const left = Float32Array.from({ length: m * k }, (_, index) => draw(Math.floor(index / k), index % k));
  const words = bfloat16(Float32Array.from({ length: n * k }, () => normal() / 50));
  const right = Float32Array.from(words, (word) => fromBits(word << 16));
  const b = kernels.frozen(k, n, "BF16");
  await kernels.fill(b, 0, { dtype: "BF16", shape: [n, k], bytes: new Uint8Array(words.buffer) });
  const [a, c] = [put(kernels, left), kernels.alloc(m * n)];
  multiplyOnTensorCores(kernels, { c, a, b, m, n, k }, { tile: each, parts: 1 });
  const actual = await kernels.download(c);
  let [squares, all, worst] = [0, 0, 0];
  for (let row = 0; row < m; row++) {
    let [rowSquares, rowAll] = [0, 0];
    for (let column = 0; column < n; column++) {
      let sum = 0;
      for (let i = 0; i < k; i++) sum += left[row * k + i] * right[column * k + i];
      rowSquares += (actual[row * n + column] - sum) ** 2;
      rowAll += sum ** 2;
    }
    squares += rowSquares;
    all += rowAll;
    worst = Math.max(worst, Math.sqrt(rowSquares / rowAll));
  }
  return { whole: Math.sqrt(squares / all), row: worst };
}

function put(kernels, values) {
  const buffer = kernels.alloc(values.length);
  kernels.upload(buffer, values);
  return buffer;
}

function normal() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}

function transposed(values, rows, columns) {
  return Float32Array.from(
    { length: values.length },
    (_, index) => values[(index % rows) * columns + Math.floor(index / rows)],
  );
}

function bfloat16(values) {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  return Uint16Array.from(bits, (word) => (word + 0x7fff + ((word >>> 16) & 1)) >>> 16);
}

function rounded(value) {
  return fromBits(bfloat16(Float32Array.of(value))[0] << 16);
}

function fromBits(bits) {
  return new Float32Array(Int32Array.of(bits).buffer)[0];
}
