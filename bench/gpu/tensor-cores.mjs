// Products on tensor cores: which tiles compile, how far they are off, how fast they are. One line each.
// Needs `npm run build`, the package `webgpu` and a card with subgroup matrices. `node bench/gpu/tensor-cores.mjs`
// With `--check` it only lets the compiler read every shader, on Dawn's null device, which needs no card.
import { dawnGpu } from "../../dist/local/engine/kernels/webgpu/dawn.node.js";
import { openGpuDevice } from "../../dist/local/engine/kernels/webgpu/gpu-device.js";
import { packHalf } from "../../dist/local/engine/kernels/webgpu/half-operand.js";
import {
  hasTensorCores,
  multiplyOnTensorCores,
  planTensorProduct,
  TENSOR_SHADER,
} from "../../dist/local/engine/kernels/webgpu/tensor-cores.js";
import { createWebGpuKernels } from "../../dist/local/engine/kernels/webgpu/webgpu-kernels.js";

const STAGED = { buffers: 2, isPrefetched: true, padding: 8, element: 4 };
const tile = (rows, columns, depth, groupRows, groupColumns, other = {}) => ({
  rows,
  columns,
  depth,
  groupRows,
  groupColumns,
  ...STAGED,
  ...other,
});
const one = { buffers: 1 };
const TILES = [
  tile(128, 128, 32, 64, 32),
  tile(128, 128, 32, 64, 32, one),
  tile(128, 128, 32, 64, 32, { ...one, isPrefetched: false }),
  tile(128, 128, 32, 64, 32, { element: 2 }),
  tile(128, 128, 32, 64, 32, { element: 1 }),
  tile(128, 128, 32, 64, 32, { padding: 0 }),
  tile(128, 128, 32, 64, 32, { ...one, padding: 16 }),
  tile(128, 128, 32, 32, 64),
  tile(128, 128, 32, 64, 64),
  tile(128, 128, 32, 64, 64, one),
  tile(128, 128, 32, 64, 64, { ...one, isPrefetched: false }),
  tile(128, 128, 16, 64, 32),
  tile(128, 128, 16, 64, 64),
  tile(128, 128, 64, 64, 32, one),
  tile(128, 128, 64, 64, 64, one),
  tile(128, 128, 32, 32, 32, one),
  tile(128, 256, 32, 64, 64, one),
  tile(128, 256, 16, 64, 64),
  tile(256, 128, 32, 64, 64, one),
  tile(256, 128, 16, 64, 64),
  tile(128, 64, 32, 64, 32),
  tile(128, 64, 64, 64, 32, one),
  tile(64, 128, 32, 32, 64),
  tile(64, 128, 32, 32, 32),
  tile(64, 64, 32, 32, 32),
  tile(64, 64, 32, 32, 32, one),
  tile(64, 64, 64, 32, 32),
  tile(64, 64, 32, 32, 16),
];
const SHAPES = [
  [1024, 1024, 1024],
  [2048, 4096, 1024],
  [8192, 4096, 1024],
  [8192, 1024, 3072],
  [8192, 6144, 1024],
  [4096, 4096, 4096],
];
const DISTRIBUTIONS = {
  "activations N(0, 1)": () => normal(),
  "gradients 1e-6": () => normal() * 1e-6,
  "gradients 1e-8": () => normal() * 1e-8,
  "gradients 1e-12": () => normal() * 1e-12,
  "rows from 1e-10 to 1": (row) => normal() * 10 ** (-10 * (row / 63)),
  "N(0, 1), one in a hundred 1e4": () => normal() * (Math.random() < 0.01 ? 1e4 : 1),
  "N(0, 1), one in a row 1e6": (_, column) => normal() * (column === 5 ? 1e6 : 1),
};

/** Since the start of the process; what is not timed by then is left out. */
const DEADLINE_MS = 52_000;

const RIGHT_SIDES = ["k", "n"].map((rowsOfB) => ({ rowsOfB, dtype: "BF16", isPacked: false }));

const label = ({ rows, columns, depth, groupRows, groupColumns, buffers, isPrefetched, padding, element }) =>
  `${rows}x${columns}x${depth} ${groupRows}x${groupColumns} ${buffers} buffers${isPrefetched ? "" : ", not prefetched"}` +
  `${padding === 8 ? "" : `, padding ${padding}`}${element === 4 ? "" : `, elements of ${element}`}`;

if (process.argv.includes("--check")) await check();
else await measure();

async function check() {
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
      console.log(label(each), JSON.stringify(side), messages.map(({ message }) => message).join("\n"));
    }
  }
  console.log(`${TILES.length * 3} shaders, ${wrong} with messages`);
  process.exit(wrong ? 1 : 0);
}

async function measure() {
  const gpu = await openGpuDevice(await dawnGpu("fast"), { precision: "fast", memoryBytes: 2 ** 35 });
  const kernels = createWebGpuKernels(gpu);
  console.log(
    `${gpu.info.name}, subgroups of ${gpu.subgroupSize}, ${gpu.device.limits.maxComputeWorkgroupStorageSize} bytes of workgroup memory`,
  );
  console.log(
    "matrices",
    JSON.stringify(
      [...(gpu.device.adapterInfo.subgroupMatrixConfigs ?? [])].map(
        ({ componentType, resultComponentType, M, N, K }) =>
          `${componentType} to ${resultComponentType} ${M}x${N}x${K}`,
      ),
    ),
  );
  console.log("has tensor cores", hasTensorCores(gpu));

  console.log("\nragged products against float64; 1 = the bound of rounding both sides to float16");
  const working = [];
  for (const each of TILES) {
    const errors = [];
    const started = performance.now();
    for (const transB of [false, true])
      errors.push(await caught(gpu, () => ragged(kernels, { tile: each, parts: 1 }, transB)));
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    console.log(
      label(each).padEnd(58),
      ...errors.map((error) => (typeof error === "number" ? error.toFixed(3) : `\n  ${error}`)),
      `(${seconds} s)`,
    );
    if (errors.every((error) => error < 1)) working.push(each);
  }
  const [first] = working;
  if (!first) return kernels.close();
  console.log("in 3 parts", await caught(gpu, () => ragged(kernels, { tile: first, parts: 3 }, false)));
  console.log(
    "float32 right side",
    await caught(gpu, () => ragged(kernels, { tile: first, parts: 1 }, false, "plain")),
    await caught(gpu, () => ragged(kernels, { tile: first, parts: 1 }, true, "plain")),
  );
  console.log(
    "float32 left side by columns",
    await caught(gpu, () => ragged(kernels, { tile: first, parts: 1 }, false, "plain", true)),
  );

  console.log("\nrelative errors (whole product, worst row) with bfloat16 weights, k = 1024");
  for (const [name, values] of Object.entries(DISTRIBUTIONS)) {
    const { whole, row } = await distribution(kernels, first, values);
    console.log(name.padEnd(40), whole.toExponential(2), row.toExponential(2));
  }

  const buffers = largeBuffers(kernels);
  console.log("\nmicroseconds to float16:", SHAPES.map(([m, , k]) => `${m}x${k}`).join(" "));
  const packing = [];
  for (const [m, , k] of SHAPES) {
    const operand = {
      handle: buffers.a,
      layout: { contiguous: "k", dtype: "f32", isVector: true },
      stride: k,
    };
    packing.push(
      await microseconds(kernels, () => {
        const mark = kernels.mark();
        packHalf(kernels, operand, { outer: m, k, rowMultiple: 128, columnMultiple: 64 });
        kernels.release(mark);
      }),
    );
  }
  console.log(packing.map((value) => value.toFixed(0)).join(" "));

  console.log(
    "\nTFLOP/s with the way to float16, forward/backward:",
    SHAPES.map((shape) => shape.join("x")).join("  "),
  );
  for (const each of working) {
    if (performance.now() > DEADLINE_MS) console.log(label(each), "left out: no time");
    else await timeTile(kernels, buffers, label(each), () => ({ tile: each, parts: 1 }));
  }
  await timeTile(kernels, buffers, "as planned", (m, n, k) => planTensorProduct(m, n, k));
  for (const parts of [2, 4])
    await timeTile(
      kernels,
      buffers,
      `${label(working.at(-1))} in ${parts} parts`,
      () => ({ tile: working.at(-1), parts }),
      SHAPES.slice(0, 1),
    );
  await kernels.close();
  process.exit(0);
}

async function timeTile(kernels, { a, c, weights }, name, planOf, shapes = SHAPES) {
  const rates = [];
  for (const [index, [m, n, k]] of shapes.entries()) {
    for (const [transB, b] of weights[index].entries()) {
      const product = { c, a, b, m, n, k, transB: transB === 1 };
      const time = await microseconds(kernels, () =>
        multiplyOnTensorCores(kernels, product, planOf(m, n, k)),
      );
      rates.push((2 * m * n * k) / time / 1e6);
    }
  }
  const cells = shapes.map((_, index) =>
    `${rates[2 * index].toFixed(0)}/${rates[2 * index + 1].toFixed(0)}`.padStart(9),
  );
  console.log(name.padEnd(58), cells.join(" "));
}

/** Of one run, from enough of them to last about 8 ms. */
async function microseconds(kernels, run) {
  run();
  await kernels.queue.done();
  let started = performance.now();
  for (let i = 0; i < 3; i++) run();
  await kernels.queue.done();
  const runs = Math.max(4, Math.min(400, Math.ceil(24 / (performance.now() - started))));
  started = performance.now();
  for (let i = 0; i < runs; i++) run();
  await kernels.queue.done();
  return ((performance.now() - started) * 1000) / runs;
}

function largeBuffers(kernels) {
  const noise = Float32Array.from({ length: 1 << 20 }, () => normal());
  const longest = (pick) => Math.max(...SHAPES.map(pick));
  const a = kernels.alloc(longest(([m, , k]) => m * k));
  for (let start = 0; start < a.length; start += noise.length) {
    const length = Math.min(noise.length, a.length - start);
    kernels.upload({ ...a, offset: a.offset + 4 * start, length }, noise.subarray(0, length));
  }
  const c = kernels.alloc(longest(([m, n]) => m * n));
  const weights = SHAPES.map(([, n, k]) => [
    weightsOf(kernels, k, n, noise),
    weightsOf(kernels, n, k, noise),
  ]);
  return { a, c, weights };
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
