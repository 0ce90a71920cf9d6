// How near the operations on rows and whole buffers come to the speed of the card's memory: one line each with the bytes that
// must be read and written at least, per second. Needs `npm run build`. `node bench/gpu/rows.mjs [folder of the build] [only these names]`
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const build = resolve(process.argv[2] ?? "dist");
const only = process.argv[3];
const load = (path) => import(pathToFileURL(join(build, "local/engine/kernels", path)).href);
const { dawnGpu } = await load("webgpu/dawn.node.js");
const { openGpuDevice } = await load("webgpu/gpu-device.js");
const { createWebGpuKernels } = await load("webgpu/webgpu-kernels.js");

const gpu = await dawnGpu("exact");
const device = gpu && (await openGpuDevice(gpu));
if (!device) throw new Error("there is no GPU");
console.log(device.info.name);
const kernels = createWebGpuKernels(device);
// Software is slow: there the sizes only show that everything runs.
const shrink = device.info.isSoftware ? 64 : 1;
const roundMs = device.info.isSoftware ? 1 : 60;
const bestOf = device.info.isSoftware ? 1 : 3;

const taken = [];
const floats = (length) => {
  const buffer = kernels.alloc(length);
  taken.push(buffer);
  return buffer;
};
const ints = (values) => {
  const buffer = kernels.allocInts(values.length);
  taken.push(buffer);
  kernels.uploadInts(buffer, Int32Array.from(values));
  return buffer;
};
const range = (length, value) => Array.from({ length }, (_, index) => value(index));

/** `make` takes its buffers and returns what to run; `values` are the float32 read and written at least. */
async function measure(name, values, make) {
  if (only && !name.includes(only)) return;
  const run = make();
  run();
  await kernels.queue.done();
  let [turns, best] = [1, Number.POSITIVE_INFINITY];
  for (let round = 0; round < bestOf; ) {
    const start = performance.now();
    for (let turn = 0; turn < turns; turn++) run();
    await kernels.queue.done();
    const milliseconds = performance.now() - start;
    if (milliseconds < roundMs) {
      turns *= 2;
      continue;
    }
    best = Math.min(best, milliseconds / turns);
    round += 1;
  }
  for (const buffer of taken.splice(0)) kernels.free(buffer);
  const rate = (4 * values) / best / 1e6;
  console.log(
    `${name.padEnd(44)} ${(1000 * best).toFixed(1).padStart(9)} us ${rate.toFixed(0).padStart(6)} GB/s`,
  );
}

const rows = 8192 / shrink;
for (const cols of [1024, 2048, 6144]) {
  const size = rows * cols;
  const of = (name) => `${name} [${rows}, ${cols}]`;
  await measure(of("zero"), size, () => {
    const x = floats(size);
    return () => kernels.zero(x);
  });
  await measure(of("copy"), 2 * size, () => {
    const [out, x] = [floats(size), floats(size)];
    return () => kernels.copy(out, x);
  });
  await measure(of("add"), 3 * size, () => {
    const [out, a, b] = [floats(size), floats(size), floats(size)];
    return () => kernels.add(out, a, b);
  });
  await measure(of("add in place"), 3 * size, () => {
    const [out, x] = [floats(size), floats(size)];
    return () => kernels.add(out, out, x);
  });
  await measure(of("scale"), 2 * size, () => {
    const x = floats(size);
    return () => kernels.scale(x, 1.5);
  });
  await measure(of("adamw"), 7 * size, () => {
    const [weights, grad, first, second] = range(4, () => floats(size));
    const step = {
      learningRate: 1e-4,
      beta1: 0.9,
      beta2: 0.95,
      eps: 1e-8,
      weightDecay: 0,
      step: 3,
      gradScale: 1,
    };
    return () => kernels.adamw(weights, grad, first, second, step);
  });
  await measure(of("rmsNorm"), 2 * size, () => {
    const [out, x, rstd, weight] = [floats(size), floats(size), floats(rows), floats(cols)];
    return () => kernels.rmsNorm({ out, rstd, x, weight, rows, cols, eps: 1e-6 });
  });
  await measure(of("rmsNormBackward"), 4 * size, () => {
    const [dx, dout, x] = range(3, () => floats(size));
    const [rstd, weight] = [floats(rows), floats(cols)];
    return () => kernels.rmsNormBackward({ dx, dout, x, rstd, weight, rows, cols });
  });
  await measure(of("rmsNormBackward with dweight"), 4 * size, () => {
    const [dx, dout, x] = range(3, () => floats(size));
    const [rstd, weight, dweight] = [floats(rows), floats(cols), floats(cols)];
    return () => kernels.rmsNormBackward({ dx, dweight, dout, x, rstd, weight, rows, cols });
  });
  await measure(of("swiglu"), 3 * size, () => {
    const [out, gateUp] = [floats(size), floats(2 * size)];
    return () => kernels.swiglu(out, gateUp, rows, cols);
  });
  await measure(of("swigluBackward"), 5 * size, () => {
    const [dgateUp, dout, gateUp] = [floats(2 * size), floats(size), floats(2 * size)];
    return () => kernels.swigluBackward(dgateUp, dout, gateUp, rows, cols);
  });
  await measure(of("gatherRows"), 2 * size, () => {
    const [out, table, indices] = [floats(size), floats(size), ints(range(rows, (row) => (row * 97) % rows))];
    return () => kernels.gatherRows(out, table, indices, rows, cols);
  });
  await measure(of("scatterRows"), 2 * size, () => {
    const [table, x, indices] = [floats(size), floats(size), ints(range(rows, (row) => (row * 97) % rows))];
    return () => kernels.scatterRows(table, { data: x, stride: cols }, indices, rows, cols);
  });
  await measure(of("scatterAddRows"), 3 * size, () => {
    const [table, x, indices] = [floats(size), floats(size), ints(range(rows, (row) => (row * 97) % rows))];
    return () => kernels.scatterAddRows(table, x, indices, rows, cols);
  });
  const headDim = 128;
  const heads = cols / headDim;
  for (const isNormed of [true, false]) {
    const shared = () => ({
      x: { data: floats(size), stride: cols },
      rstd: isNormed ? floats(rows * heads) : undefined,
      weight: isNormed ? floats(headDim) : undefined,
      angles: {
        cos: floats((512 * headDim) / 2),
        sin: floats((512 * headDim) / 2),
        positions: ints(range(rows, (row) => row % 512)),
      },
      rows,
      heads,
      headDim,
    });
    await measure(of(isNormed ? "normRope" : "normRope without norm"), 2 * size, () => {
      const operation = { ...shared(), out: { data: floats(size), stride: cols }, eps: 1e-6 };
      return () => kernels.normRope(operation);
    });
    await measure(
      of(isNormed ? "normRopeBackward" : "normRopeBackward without norm"),
      (isNormed ? 3 : 2) * size,
      () => {
        const [dx, dout] = range(2, () => ({ data: floats(size), stride: cols }));
        const operation = { ...shared(), dx, dout };
        return () => kernels.normRopeBackward(operation);
      },
    );
    if (isNormed) {
      await measure(of("normRopeBackward with dweight"), 3 * size, () => {
        const [dx, dout] = range(2, () => ({ data: floats(size), stride: cols }));
        const operation = { ...shared(), dx, dout, dweight: floats(headDim) };
        return () => kernels.normRopeBackward(operation);
      });
    }
  }
}

for (const [cols, dtype] of [
  [1024, "BF16"],
  [4096, "BF16"],
  [1024, "F32"],
]) {
  await measure(
    `gatherRows of frozen ${dtype} [${rows}, ${cols}]`,
    (dtype === "BF16" ? 1.5 : 2) * rows * cols,
    () => {
      const table = kernels.frozen(cols, 16_384 / shrink, dtype);
      const [out, indices] = [
        floats(rows * cols),
        ints(range(rows, (row) => (row * 97) % (16_384 / shrink))),
      ];
      return () => kernels.gatherRows(out, table, indices, rows, cols);
    },
  );
}

const vocabSize = 151_936 / shrink;
for (const [count, perRow] of [
  [512, 1],
  [512, 20],
  [8, 1],
  [1, 1],
]) {
  const shared = () => ({
    logits: floats(count * vocabSize),
    logSumExp: floats(count),
    targets: ints(range(count * perRow, (index) => (index * 7919) % vocabSize)),
    rows: count,
    vocabSize,
    targetsPerRow: perRow,
  });
  const of = (name) => `${name} [${count}, ${vocabSize}] ${perRow} targets`;
  await measure(of("logSoftmaxGather"), count * vocabSize, () => {
    const operation = { ...shared(), logprobs: floats(count * perRow) };
    return () => kernels.logSoftmaxGather(operation);
  });
  await measure(of("logitsGradient"), 2 * count * vocabSize, () => {
    const operation = { ...shared(), coefficients: floats(count * perRow) };
    return () => kernels.logitsGradient(operation);
  });
}

for (const count of [1, 64, 256]) {
  const shared = () => {
    // As a model's are: a few tokens weigh most.
    const logits = floats(count * vocabSize);
    const row = Float32Array.from({ length: vocabSize }, (_, token) => 14 * Math.sin(token * token) ** 9 - 6);
    for (let start = 0; start < logits.length; start += vocabSize) {
      kernels.upload({ ...logits, offset: logits.offset + 4 * start, length: vocabSize }, row);
    }
    return { logits, logSumExp: floats(count), vocabSize };
  };
  const of = (name) => `${name} [${count}, ${vocabSize}]`;
  for (const [name, choice] of Object.entries({
    "chooseTokens freely": {},
    "chooseTokens, likeliest": { temperature: 0 },
    "chooseTokens, top-k 50": { topK: 50 },
    "chooseTokens, top-p 0.9": { topP: 0.9 },
    "chooseTokens, both": { topK: 50, topP: 0.9 },
  })) {
    await measure(of(name), count * vocabSize, () => {
      const draws = range(count, (row) => ({
        row,
        temperature: 1,
        topK: -1,
        topP: 1,
        random: 0.7,
        ...choice,
      }));
      const operation = { ...shared(), tokens: ints(range(count, () => 0)), logprobs: floats(count), draws };
      return () => kernels.chooseTokens(operation);
    });
  }
  for (const columns of [5, 20]) {
    await measure(of(`topTokens, ${columns} columns`), count * vocabSize, () => {
      const tokens = ints(range(count * columns, () => 0));
      const operation = { ...shared(), tokens, logprobs: floats(count * columns), rows: count, columns };
      return () => kernels.topTokens(operation);
    });
  }
}

for (const length of [40_000_000 / shrink, 4_000_000 / shrink]) {
  if (only && !"sumSquares".includes(only)) continue;
  const x = kernels.alloc(length);
  await kernels.sumSquares(x);
  const turns = 10;
  const start = performance.now();
  for (let turn = 0; turn < turns; turn++) await kernels.sumSquares(x);
  const milliseconds = (performance.now() - start) / turns;
  kernels.free(x);
  console.log(`sumSquares of ${length}, with its download: ${milliseconds.toFixed(2)} ms`);
}
await kernels.close();
