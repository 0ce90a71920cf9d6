// From which size on a model gains from the graphics card: `node bench/gpu/threshold.mjs [--tiny]` trains and samples models
// of growing size on the CPU and on the card, and prints a JSON line for each. MIN_GPU_PARAMETERS of choose-device.ts stands on it.
import { EngineCore } from "../../dist/local/engine/engine-core.js";
import { createWasmKernels } from "../../dist/local/engine/kernels/wasm-kernels.node.js";
import { randomModel } from "../../scripts/random-model.mjs";
import { medianSeconds, openKernels, sampleBatch, trainingStep } from "./engine.mjs";
import { SHAPES } from "./shapes.mjs";

const isTiny = process.argv.includes("--tiny");
/** Width and layers; the vocabulary is small, so that the blocks decide. */
const SIZES = isTiny
  ? [[64, 2]]
  : [
      [192, 5],
      [384, 6],
      [512, 10],
      [768, 12],
    ];
const [ROWS, LENGTH, SAMPLED] = isTiny ? [2, 8, 2] : [16, 64, 16];
const VOCABULARY = 8192;
const round = (value) => Number(value.toPrecision(3));

async function measure(shape, kernels) {
  const engine = await EngineCore.create({
    kernels,
    models: [{ name: shape, open: () => randomModel(SHAPES[shape]) }],
    cacheBytes: 2 ** 28,
    freshSeed: () => 1,
    now: () => performance.now(),
    pause: () => new Promise((resolve) => setImmediate(resolve)),
  });
  const [{ parameters }] = await engine.models();
  const rounds = { warmups: 1, times: 3 };
  const step = await trainingStep(engine, { shape, rows: ROWS, length: LENGTH });
  const tokensPerSecond = { train: (ROWS * LENGTH) / (await medianSeconds(step, rounds)) };
  for (const batch of [1, 16]) {
    const sample = () => sampleBatch(engine, { shape, batch, prompt: 16, maxTokens: SAMPLED });
    tokensPerSecond[`sample${batch}`] = (batch * SAMPLED) / (await medianSeconds(sample, rounds));
  }
  await engine.close();
  return { parameters, tokensPerSecond };
}

for (const [width, layers] of SIZES) {
  const shape = `${width}x${layers}`;
  SHAPES[shape] = {
    ...SHAPES["Qwen3-0.6B"],
    hidden_size: width,
    num_hidden_layers: layers,
    num_attention_heads: width / 32,
    num_key_value_heads: width / 32,
    head_dim: 32,
    intermediate_size: 3 * width,
    vocab_size: isTiny ? 256 : VOCABULARY,
    max_position_embeddings: 512,
  };
  const cpu = await measure(shape, createWasmKernels({ threads: 8 }));
  const gpu = await measure(shape, (await openKernels({ precision: "exact" })).kernels);
  const gains = Object.entries(gpu.tokensPerSecond).map(([name, value]) => [
    name,
    round(value / cpu.tokensPerSecond[name]),
  ]);
  const figures = ({ tokensPerSecond }) =>
    Object.fromEntries(Object.entries(tokensPerSecond).map(([name, value]) => [name, round(value)]));
  const result = { shape, parameters: cpu.parameters, cpu: figures(cpu), gpu: figures(gpu) };
  console.log(JSON.stringify({ ...result, gain: Object.fromEntries(gains) }));
}
