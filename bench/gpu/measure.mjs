// One part of the GPU bench, in a process of its own: `node bench/gpu/measure.mjs PART [--tiny]` prints one JSON line.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { fromFloat32 } from "../../dist/checkpoints/safetensors.js";
import {
  countsPerToken,
  medianSeconds,
  openEngine,
  openKernels,
  sampleBatch,
  trainingStep,
} from "./engine.mjs";

/** Rows, outputs, inputs. */
const PRODUCTS = [
  [1024, 1024, 1024],
  [2048, 4096, 1024],
  [4096, 4096, 4096],
  [2048, 12288, 4096],
  [8192, 3072, 1024],
  [8192, 1024, 3072],
];
const isTiny = process.argv.includes("--tiny");
const gigabytes = (bytes) => Number((bytes / 1e9).toFixed(2));
const randomFloats = (length) => Float32Array.from({ length }, () => Math.random() - 0.5);
const round = (value) => Number(value.toPrecision(4));

/** Tokens per second of whole steps, forward, backward and optimizer. */
async function train(shape, rows, length, precision, { warmups = 2, times = 5 } = {}) {
  const { engine, kernels, loadSeconds } = await openEngine({ shape, precision });
  const step = await trainingStep(engine, { shape, rows, length });
  let loss = Number.NaN;
  const seconds = await medianSeconds(
    async () => {
      loss = await step();
    },
    { warmups, times },
  );
  const result = {
    model: shape,
    batch: `${rows} x ${length}`,
    precision,
    tokensPerSecond: Math.round((rows * length) / seconds),
    stepMs: round(1000 * seconds),
    // Of the step before the last, in nats per token.
    loss: round(loss),
    gigabytes: gigabytes(kernels.reservedBytes),
    loadSeconds: round(loadSeconds),
  };
  await engine.close();
  return result;
}

/** The base model greedily, as `generate` does it; then an adapter at temperature 1, as users sample; then after training. */
async function sampling(shape, precision, maxTokens = 64) {
  const { engine, kernels } = await openEngine({ shape, precision });
  const results = [];
  const measure = async (adapter, call) => {
    for (const batch of isTiny ? [1, 4] : [1, 64]) {
      const whole = { shape, batch, prompt: 32, maxTokens, ...call };
      const seconds = [];
      for (let round = 0; round < 4; round += 1)
        seconds.push(await medianSeconds(() => sampleBatch(engine, whole), { warmups: 0, times: 1 }));
      const [first, ...others] = seconds;
      const median = others.sort((a, b) => a - b)[1];
      const counts = await countsPerToken(engine, kernels, whole);
      results.push({
        model: shape,
        adapter,
        batch,
        precision,
        tokensPerSecond: round((batch * maxTokens) / median),
        stepMs: round((1000 * median) / maxTokens),
        // The first batch of a size has pipelines and bind groups to make.
        firstTokensPerSecond: round((batch * maxTokens) / first),
        runsPerToken: round(counts.runs),
        bindGroupsPerToken: round(counts.bindGroups),
        bytesPerToken: round(counts.writtenBytes + counts.readBytes),
      });
    }
  };
  const sampled = { adapterId: "a", temperature: 1 };
  await measure("none", {});
  const step = await trainingStep(
    engine,
    isTiny ? { shape, rows: 2, length: 20 } : { shape, rows: 16, length: 512 },
  );
  await measure("LoRA 32", sampled);
  await step();
  await measure("LoRA 32, after training", sampled);
  await engine.close();
  return results;
}

/** TFLOP/s of activations times frozen weights, as they are stored in float32 and in two bytes. */
async function products(precision) {
  const { kernels } = await openKernels({ precision });
  const results = [];
  for (const size of PRODUCTS) {
    const [m, n, k] = size.map((side) => (isTiny ? side / 64 : side));
    const row = { shape: `${m}x${n}x${k}` };
    const noise = randomFloats(m * k);
    const [a, c] = [kernels.alloc(m * k), kernels.alloc(m * n)];
    kernels.upload(a, noise);
    for (const dtype of ["F32", "BF16"]) {
      const weights = kernels.frozen(k, n, dtype);
      await kernels.fill(weights, 0, {
        dtype,
        shape: [n, k],
        bytes: fromFloat32(randomFloats(n * k), dtype),
      });
      // A tenth of a second at 50 TFLOP/s, so that the submission does not count.
      const repeats = isTiny ? 2 : Math.max(10, Math.min(2000, Math.round(5e12 / (2 * m * n * k))));
      const seconds = await medianSeconds(
        async () => {
          for (let i = 0; i < repeats; i += 1) kernels.matmul(c, a, weights, m, n, k);
          await kernels.queue.done();
        },
        { warmups: 1, times: 5 },
      );
      row[dtype === "F32" ? precision : `${precision}Bf16`] = round(
        (2 * m * n * k * repeats) / seconds / 1e12,
      );
    }
    for (const buffer of [a, c]) kernels.free(buffer);
    results.push(row);
  }
  await kernels.close();
  return results;
}

/** The quickstart of the command line, as a user runs it. */
function nano() {
  const cli = fileURLToPath(new URL("../../dist/bundle/cli.js", import.meta.url));
  const folder = mkdtempSync(join(tmpdir(), "tinkerts-gpu-"));
  try {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [cli, "quickstart", "--device", "gpu", "--json"],
      { encoding: "utf8", cwd: folder },
    );
    if (status !== 0) throw new Error(`the quickstart ended with ${status}: ${stderr.slice(-500)}`);
    return JSON.parse(stdout.trim().split("\n").at(-1));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const small = isTiny ? ["tiny", 3, 20] : ["Qwen3-0.6B", 16, 512];
const large = isTiny ? ["tiny", 2, 24] : ["Qwen3-8B", 4, 512];
const few = { warmups: 1, times: 3 };
const PARTS = {
  "train-exact": () => train(...small, "exact"),
  "train-fast": () => train(...small, "fast"),
  "sample-exact": () => sampling(small[0], "exact", isTiny ? 4 : 64),
  "sample-fast": () => sampling(small[0], "fast", isTiny ? 4 : 64),
  "products-exact": () => products("exact"),
  "products-fast": () => products("fast"),
  nano,
  "large-exact": () => train(...large, "exact", few),
  "large-fast": () => train(...large, "fast", few),
};

const part = PARTS[process.argv[2]];
if (!part) throw new Error(`a part is one of ${Object.keys(PARTS).join(", ")}, not ${process.argv[2]}`);
try {
  console.log(JSON.stringify(await part()));
} catch (error) {
  console.error(error);
  console.log(JSON.stringify({ error: error.message }));
  process.exitCode = 1;
}
