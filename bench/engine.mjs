// The engine beside OpenBLAS and PyTorch in one run: matrix products, LoRA and full training, sampling.
// All sides take turns, several times for small models, and the best of each counts: other work on the machine only slows.
// `npm run bench -- engine [nano | 30M]`. PyTorch: TORCH_PYTHON names a Python with torch, transformers and peft; OpenBLAS: see bench/gemm.mjs.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createWasmKernels } from "../dist/local/engine/kernels/wasm-kernels.node.js";
import { startEngine } from "../dist/local/engine/start-engine.node.js";
import { FullTrainer } from "../scripts/full-trainer.mjs";
import { sized } from "./shared/sized.mjs";

const threads = 2;
const qwen3 = {
  model_type: "qwen3",
  rms_norm_eps: 1e-6,
  rope_theta: 1e4,
  hidden_act: "silu",
  tie_word_embeddings: true,
};
const models = [
  {
    name: "nano",
    passes: sized(3, 1),
    rounds: sized(5, 1),
    rows: 8,
    length: 128,
    config: {
      ...qwen3,
      hidden_size: 256,
      num_hidden_layers: 3,
      num_attention_heads: 8,
      num_key_value_heads: 4,
      head_dim: 32,
      intermediate_size: 704,
      vocab_size: 512,
      max_position_embeddings: 512,
    },
  },
  {
    name: "30M",
    passes: 1,
    rounds: sized(2, 1),
    rows: 4,
    length: 128,
    config: {
      ...qwen3,
      hidden_size: 512,
      num_hidden_layers: 8,
      num_attention_heads: 8,
      num_key_value_heads: 4,
      head_dim: 64,
      intermediate_size: 1408,
      vocab_size: 8192,
      max_position_embeddings: 512,
    },
  },
].slice(0, sized(undefined, 1));
const prompt = 16;
const steps = sized(48, 2);
const adam = { learningRate: 1e-4, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClipNorm: 0 };
const folder = mkdtempSync(join(tmpdir(), "tinkerts-engine-"));
const randomTokens = (length, vocabulary) =>
  Int32Array.from({ length }, () => Math.floor(Math.random() * vocabulary));

async function bestRate(count, rounds, action) {
  await action();
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < rounds; round += 1) {
    const start = performance.now();
    await action();
    best = Math.min(best, performance.now() - start);
  }
  return (count / best) * 1000;
}

async function ours({ name, config, rows, length, rounds }, relaxedSimd) {
  const path = join(folder, name);
  const kernels = createWasmKernels({ threads, relaxedSimd });
  const trainer = FullTrainer.create(kernels, config, { seed: 1 });
  await trainer.save(path, { dtype: "F32" });
  const vocabulary = config.vocab_size;
  const examples = Array.from({ length: rows }, () => ({
    tokens: randomTokens(length, vocabulary),
    targets: randomTokens(length, vocabulary),
  }));
  const full = await bestRate(rows * length, rounds, () => trainer.train(examples, adam));
  await kernels.close();

  const engine = await startEngine({ models: [{ name, path }], threads, relaxedSimd });
  await engine.createAdapter("a", name, {
    rank: 32,
    seed: 1,
    trainAttn: true,
    trainMlp: true,
    trainUnembed: true,
  });
  const data = examples.map(({ tokens, targets }) => ({
    tokens,
    targetTokens: targets,
    targetsPerToken: 1,
    weights: new Float32Array(length).fill(1),
  }));
  const lora = await bestRate(rows * length, rounds, async () => {
    await engine.forwardBackward({
      adapterId: "a",
      data,
      lossFn: "cross_entropy",
      lossFnConfig: {},
      forwardOnly: false,
    });
    await engine.optimStep("a", adam);
  });
  const rates = { full, lora };
  for (const batch of [1, 16]) {
    rates[`sample${batch}`] = await bestRate(batch * steps, rounds, () =>
      engine.sample({
        requestId: `sample-${Math.random()}`,
        baseModel: name,
        prompt: randomTokens(prompt, vocabulary),
        numSamples: batch,
        maxTokens: steps,
        temperature: 1,
        topK: -1,
        topP: 1,
        seed: 1,
        stopTokens: [],
        stopStrings: [],
        promptLogprobs: false,
        topkPromptLogprobs: 0,
        topkSampleLogprobs: 0,
        promptAltTokens: 0,
      }),
    );
  }
  await engine.close();
  return rates;
}

function torch(model) {
  const python = process.env.TORCH_PYTHON;
  if (!python) return undefined;
  const script = fileURLToPath(new URL("engine-torch.py", import.meta.url));
  const { status, stdout, stderr } = spawnSync(
    python,
    [script, JSON.stringify({ ...model, threads, prompt, steps })],
    {
      encoding: "utf8",
    },
  );
  if (status !== 0) throw new Error(stderr);
  return JSON.parse(stdout.trim().split("\n").at(-1));
}

const round = (value) => (value === undefined ? null : Number(value.toPrecision(3)));
const workloads = {
  "LoRA training": "lora",
  "full training": "full",
  "sampling, one at a time": "sample1",
  "sampling, 16 at a time": "sample16",
};
const results = [];
/** 16 at a time over one at a time. */
const batchGains = {};
const bestOf = (best, rates) =>
  rates &&
  Object.fromEntries(Object.entries(rates).map(([key, rate]) => [key, Math.max(rate, best?.[key] ?? 0)]));
const [only] = process.argv.slice(2);
for (const model of models.filter(({ name }) => only === undefined || name === only)) {
  let plain;
  let relaxed;
  let peer;
  for (let pass = 0; pass < model.passes; pass += 1) {
    plain = bestOf(plain, await ours(model, false));
    relaxed = bestOf(relaxed, await ours(model, true));
    peer = bestOf(peer, torch(model));
  }
  for (const [what, key] of Object.entries(workloads)) {
    const row = {
      model: model.name,
      what,
      plain: round(plain[key]),
      relaxed: round(relaxed[key]),
      torch: round(peer?.[key]),
      ratio: round(peer && plain[key] / peer[key]),
      relaxedRatio: round(peer && relaxed[key] / peer[key]),
    };
    console.error(JSON.stringify(row));
    results.push(row);
  }
  batchGains[model.name] = round(plain.sample16 / plain.sample1);
}
rmSync(folder, { recursive: true, force: true });
if (!process.env.TORCH_PYTHON)
  console.error("PyTorch is left out: set TORCH_PYTHON to a Python with torch, transformers and peft.");

const gemm = spawnSync(process.execPath, [fileURLToPath(new URL("gemm.mjs", import.meta.url))], {
  encoding: "utf8",
  stdio: ["ignore", "pipe", "inherit"],
});
const {
  results: products,
  limit,
  limitFused,
  reachable,
  pass,
} = JSON.parse(gemm.stdout.trim().split("\n").at(-1));
/** null without a peer to hold it against. */
const everyRatio = (workload, ratio, met) =>
  process.env.TORCH_PYTHON
    ? results.filter(({ what }) => what === workload).every((row) => met(row[ratio]))
    : null;
const bars = {
  "products: 0.5 of OpenBLAS plain, 0.65 relaxed": pass,
  "LoRA training at 0.8 of PyTorch": everyRatio("LoRA training", "ratio", (ratio) => ratio >= 0.8),
  "LoRA training at 0.8 of PyTorch, relaxed SIMD": everyRatio(
    "LoRA training",
    "relaxedRatio",
    (ratio) => ratio >= 0.8,
  ),
  "sampling above PyTorch, one at a time": everyRatio(
    "sampling, one at a time",
    "ratio",
    (ratio) => ratio > 1,
  ),
  "sampling 16 at a time 3 times as fast as one": Object.values(batchGains).every((gain) => gain >= 3),
};
const outcomes = Object.values(bars);
console.log(
  JSON.stringify({
    bench: "engine",
    unit: "tokens/s; products in GFLOP/s",
    threads,
    batchGains,
    limit,
    limitFused,
    reachable,
    results,
    products,
    bars,
    pass: outcomes.includes(false) ? false : outcomes.includes(null) ? null : true,
  }),
);
