import { afterAll, beforeAll, expect, it } from "vitest";
import { randomModel } from "../../scripts/random-model.mjs";
import { EngineCore } from "../../src/local/engine/engine-core.js";
import type { Kernels } from "../../src/local/engine/kernels/kernels.js";
import type { QueueCounts } from "../../src/local/engine/kernels/webgpu/command-queue.js";
import type { GpuContext } from "../../src/local/engine/kernels/webgpu/webgpu-kernels.js";
import { adam, crossEntropy, lora, randomTokens, sampleCall, trainingData } from "../engine/engines.js";
import { openKernels } from "./gpus.js";

const LAYERS = 3;
const CONFIG = {
  model_type: "qwen3",
  hidden_size: 32,
  num_hidden_layers: LAYERS,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 8,
  intermediate_size: 48,
  vocab_size: 64,
  max_position_embeddings: 256,
  tie_word_embeddings: true,
};
const PROMPT = 9;
const TOKENS = 20;

const kernels = (await openKernels()) as Kernels & GpuContext;
let engine: EngineCore;
beforeAll(async () => {
  engine = await EngineCore.create({
    kernels,
    models: [{ name: "model", open: () => randomModel(CONFIG, { values: 40_009 }) }],
    cacheBytes: 1 << 20,
    freshSeed: () => 1,
    now: () => performance.now(),
    pause: () => new Promise((resolve) => setImmediate(resolve)),
  });
  await engine.createAdapter("a", "model", lora);
});
afterAll(() => engine.close());

let seed = 0;

/** What each step of a batch asked of the GPU, the prompt's first; each prompt is new. */
async function stepsOf(adapterIds: (string | undefined)[]): Promise<QueueCounts[]> {
  let last = { ...kernels.queue.counts };
  const steps: QueueCounts[] = [];
  const calls = adapterIds.map((adapterId) => {
    seed += 1;
    return sampleCall(randomTokens(PROMPT, seed), { adapterId, baseModel: "model", maxTokens: TOKENS });
  });
  await Promise.all(
    calls.map((call, index) =>
      engine.sample(call, () => {
        if (index > 0) return;
        const counts = { ...kernels.queue.counts };
        const step = Object.entries(counts).map(([name, count]) => [name, count - last[name as "runs"]]);
        steps.push(Object.fromEntries(step));
        last = counts;
      }),
    ),
  );
  expect(steps).toHaveLength(TOKENS);
  return steps;
}

/** Without the steps of the prompt and of the start of samples. */
const decoding = (steps: QueueCounts[]) => steps.slice(2);
const total = (steps: QueueCounts[], count: keyof QueueCounts) =>
  steps.reduce((sum, step) => sum + step[count], 0);

/** All steps that decode, and that all of them ask the same of the GPU. */
function expectSteady(steps: QueueCounts[], runs: number): void {
  for (const step of decoding(steps)) {
    expect(step.runs).toBe(runs);
    expect(step.pipelines + step.bindGroups).toBe(0);
    // Parameters of the runs, and tables of positions, pages and draws.
    expect(step.writtenBytes).toBeLessThan(256 * runs + 8192);
    expect(step.readBytes).toBeLessThan(2048);
  }
}

/** A batch after one like it makes nothing new, not even where it begins. */
function expectNothingMade(steps: QueueCounts[]): void {
  expect(total(steps, "pipelines")).toBe(0);
  expect(total(steps, "bindGroups")).toBe(0);
}

/** Six for each block; the embedding, the head with its norm and A, B of the head, two for the sums, two for the draw. */
const FEW_ROWS = 6 * LAYERS + 7;
/** Norms, attention and activation; of four groups product, A and B; rows of the head, its norm and its product beside that. */
const MANY_ROWS = 17 * LAYERS + 10;

it("decodes a row with an adapter in six runs a block, and makes nothing new for it", async () => {
  expectSteady(await stepsOf(["a"]), FEW_ROWS);
  const again = await stepsOf(["a"]);
  expectSteady(again, FEW_ROWS);
  expectNothingMade(again);
});

it("decodes a few rows in as many runs, whose bind groups serve any number of them", async () => {
  expectSteady(await stepsOf(["a", "a", "a"]), FEW_ROWS);
  expectNothingMade(await stepsOf(["a", "a", "a"]));
  const four = await stepsOf(["a", "a", "a", "a"]);
  expectSteady(four, FEW_ROWS);
  // Where the results of the draws lie; their prompts are more rows than those before.
  expect(total(four.slice(1), "bindGroups")).toBeLessThan(10);
});

it("decodes many rows with bind groups that serve other numbers of rows too", async () => {
  const adapters = (count: number) => Array.from({ length: count }, () => "a");
  expectSteady(await stepsOf(adapters(12)), MANY_ROWS);
  expectNothingMade(await stepsOf(adapters(12)));
  const steps = await stepsOf(adapters(11));
  expectSteady(steps, MANY_ROWS);
  expect(total(steps.slice(1), "bindGroups")).toBeLessThan(10);
});

it("keeps what it has made when another adapter goes", async () => {
  await stepsOf(["a"]);
  await engine.createAdapter("other", "model", lora);
  await stepsOf(["other"]);
  await engine.removeAdapter("other");
  expectNothingMade(await stepsOf(["a"]));
});

it("asks no more of the GPU after training", async () => {
  await engine.forwardBackward(crossEntropy("a", trainingData(3, 1)));
  await engine.optimStep("a", adam);
  expectSteady(await stepsOf(["a"]), FEW_ROWS);
  await engine.forwardBackward(crossEntropy("a", trainingData(3, 1)));
  await engine.optimStep("a", adam);
  const again = await stepsOf(["a"]);
  expectSteady(again, FEW_ROWS);
  expectNothingMade(again);
});
