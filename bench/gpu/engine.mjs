// An engine on the machine's graphics card, in this thread, with one model of random weights.
import { EngineCore } from "../../dist/local/engine/engine-core.js";
import { openMachineGpu } from "../../dist/local/engine/kernels/webgpu/dawn.node.js";
import { createWebGpuKernels } from "../../dist/local/engine/kernels/webgpu/webgpu-kernels.js";
import { countParameters } from "../../dist/local/engine/model/base-model.js";
import { randomModel } from "../../scripts/random-model.mjs";
import { SHAPES } from "./shapes.mjs";

/** Of keys and values, for samples. */
const CACHE_BYTES = 2 ** 32;
const ADAM = {
  learningRate: 1e-4,
  beta1: 0.9,
  beta2: 0.95,
  eps: 1e-8,
  weightDecay: 0,
  gradClipNorm: 0,
};

/** DAWN_ENABLE and DAWN_DISABLE name toggles of Dawn to try, with commas between them. */
export async function openKernels({ precision, modelBytes = 0 }, toggles = {}) {
  const named = (name) => process.env[name]?.split(",") ?? [];
  const gpu = await openMachineGpu(
    { precision, modelBytes },
    { enable: named("DAWN_ENABLE"), disable: [...named("DAWN_DISABLE"), ...(toggles.disable ?? [])] },
  );
  return { gpu, kernels: createWebGpuKernels(gpu) };
}

/** @param {{ shape: keyof typeof SHAPES, precision: "exact" | "fast" }} options */
export async function openEngine({ shape, precision }, toggles) {
  const started = performance.now();
  const modelBytes = 2 * countParameters(SHAPES[shape], shape);
  const { gpu, kernels } = await openKernels({ precision, modelBytes }, toggles);
  const engine = await EngineCore.create({
    kernels,
    models: [{ name: shape, open: () => randomModel(SHAPES[shape]) }],
    cacheBytes: CACHE_BYTES,
    freshSeed: () => 1,
    now: () => performance.now(),
    pause: () => new Promise((resolve) => setImmediate(resolve)),
  });
  return { engine, kernels, gpu, loadSeconds: (performance.now() - started) / 1000 };
}

const randomTokens = (length, shape) =>
  Int32Array.from({ length }, () => Math.floor(Math.random() * SHAPES[shape].vocab_size));

/** The adapter `a`: LoRA of rank 32 on everything. */
export function createAdapter(engine, shape) {
  const trained = { trainAttn: true, trainMlp: true, trainUnembed: true };
  return engine.createAdapter("a", shape, { rank: 32, seed: 1, ...trained });
}

/** A training step of `rows` sequences as a function; of the adapter `a`. */
export async function trainingStep(engine, { shape, rows, length }) {
  await createAdapter(engine, shape);
  const data = Array.from({ length: rows }, () => ({
    tokens: randomTokens(length, shape),
    targetTokens: randomTokens(length, shape),
    targetsPerToken: 1,
    weights: new Float32Array(length).fill(1),
  }));
  const call = { adapterId: "a", data, lossFn: "cross_entropy", lossFnConfig: {}, forwardOnly: false };
  return async () => {
    const [{ metrics }] = await Promise.all([engine.forwardBackward(call), engine.optimStep("a", ADAM)]);
    return metrics["loss:sum"] / (rows * length);
  };
}

let batches = 0;

/** Samples of `batch` prompts at once, greedy unless told, each prompt its own: none can use another's cache. `onToken` hears of the first. */
export async function sampleBatch(
  engine,
  { shape, batch, prompt, maxTokens, adapterId, temperature = 0 },
  onToken,
) {
  batches += 1;
  const results = await Promise.all(
    Array.from({ length: batch }, (_, index) =>
      engine.sample(
        {
          requestId: `sample-${batches}-${index}`,
          baseModel: shape,
          ...(adapterId && { adapterId }),
          prompt: randomTokens(prompt, shape),
          numSamples: 1,
          maxTokens,
          temperature,
          topK: -1,
          topP: 1,
          seed: 1,
          stopTokens: [],
          stopStrings: [],
          promptLogprobs: false,
          topkPromptLogprobs: 0,
          topkSampleLogprobs: 0,
          promptAltTokens: 0,
        },
        index === 0 ? onToken : undefined,
      ),
    ),
  );
  const short = results.find(({ sequences }) => sequences[0].tokens.length !== maxTokens);
  if (short) throw new Error(`a sample of ${short.sequences[0].tokens.length} tokens, not ${maxTokens}`);
}

/** What a step of decoding asks of the GPU in the middle of a batch: runs, bind groups and pipelines made, bytes moved. */
export async function countsPerToken(engine, { queue }, batch) {
  const call = { ...batch, maxTokens: Math.max(12, batch.maxTokens) };
  const [first, last] = [Math.floor(call.maxTokens / 2), call.maxTokens - 2];
  let before;
  let after;
  await sampleBatch(engine, call, ({ position }) => {
    if (position === first) before = { ...queue.counts };
    if (position === last) after = { ...queue.counts };
  });
  const each = Object.entries(after).map(([name, count]) => [name, (count - before[name]) / (last - first)]);
  return Object.fromEntries(each);
}

/** Median seconds of an action. */
export async function medianSeconds(action, { warmups, times }) {
  for (let round = 0; round < warmups; round += 1) await action();
  const seconds = [];
  for (let round = 0; round < times; round += 1) {
    const start = performance.now();
    await action();
    seconds.push((performance.now() - start) / 1000);
  }
  return seconds.sort((a, b) => a - b)[Math.floor(times / 2)];
}
