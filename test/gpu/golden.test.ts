import { afterAll, describe, expect, it } from "vitest";
import { encodeSafetensors, toFloat32 } from "../../src/checkpoints/safetensors.js";
import type { Kernels } from "../../src/local/engine/kernels/kernels.js";
import { createWasmKernels } from "../../src/local/engine/kernels/wasm-kernels.node.js";
import { loadBaseModel } from "../../src/local/engine/model/base-model.js";
import { modelFilesOf } from "../../src/local/engine/model/model-files.js";
import { openModelFolder } from "../../src/local/engine/model/model-folder.node.js";
import { LoraAdapter } from "../../src/local/engine/training/adapter.js";
import { openEngine, sampleCall } from "../engine/engines.js";
import {
  fixture,
  type GoldenModel,
  goldenCall,
  goldenModels,
  largestDifference,
  loadFixture,
  readGolden,
  readPeftAdapter,
  relativeError,
  runPass,
} from "../engine/golden.js";
import { goldenSuite, logitsOf } from "../engine/golden-suite.js";
import { openKernels } from "./gpus.js";

const ADAM = { learningRate: 3e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.1, gradClipNorm: 0.5 };

const gpu = await openKernels();
const cpu = createWasmKernels({ threads: 1 });
afterAll(() => Promise.all([gpu.close(), cpu.close()]));

describe("on the GPU", () => {
  goldenSuite(gpu, { logits: 1e-4, gradients: 1e-3, weights: 1e-5 });
});

describe.each(["BF16", "F16"] as const)("weights stored as %s", (dtype) => {
  /** The fixture's weights, rounded to two bytes. */
  async function adapterOn(kernels: Kernels, name: GoldenModel): Promise<LoraAdapter> {
    const files = openModelFolder(fixture(name));
    const values = [...files.tensors].map(([tensor, { shape, dtype: stored }]) => {
      const data = toFloat32(files.read(tensor).bytes, stored, tensor);
      return [tensor, { shape, data }] as const;
    });
    const weights = [encodeSafetensors(Object.fromEntries(values), { dtype })];
    files.close();
    const model = await loadBaseModel(kernels, name, modelFilesOf({ ...files, weights }));
    return LoraAdapter.restore(kernels, model, readPeftAdapter(name), false);
  }

  it.each(goldenModels)("give %s the logits and gradients of the CPU", async (name) => {
    const golden = readGolden(name);
    const [expected, actual] = [await adapterOn(cpu, name), await adapterOn(gpu, name)];
    const tokens = Int32Array.from(golden.tensors["tokens.0"]!.data);
    const logits = await logitsOf(cpu, expected, tokens, true);
    expect(relativeError(await logitsOf(gpu, actual, tokens, true), logits)).toBeLessThan(1e-4);
    const call = goldenCall(golden, "cross_entropy");
    await runPass(cpu, expected, call);
    await runPass(gpu, actual, call);
    const gradients = await actual.exportGradients();
    for (const [tensor, gradient] of Object.entries(await expected.exportGradients())) {
      expect(relativeError(gradients[tensor]!, gradient), tensor).toBeLessThan(1e-3);
    }
  });
});

it("gives the same bits twice: logprobs, loss, gradients and the weights after a step", async () => {
  const model = await loadFixture(gpu, "qwen3");
  const call = goldenCall(readGolden("qwen3"), "ppo_tokens");
  const run = async () => {
    const adapter = LoraAdapter.restore(gpu, model, readPeftAdapter("qwen3"), false);
    const result = await runPass(gpu, adapter, call);
    const gradients = await adapter.exportGradients();
    const { gradNorm } = await adapter.step(ADAM);
    return { ...result, gradients, gradNorm, ...(await adapter.export({ optimizer: true })) };
  };
  const first = await run();
  expect(Object.keys(first.gradients).length).toBeGreaterThan(0);
  expect(await run()).toEqual(first);
});

it("samples with the logprobs that training computes for the same sequence", async () => {
  const engine = await openEngine({ kernels: gpu });
  await engine.importAdapter("a", "qwen3", readPeftAdapter("qwen3"), { optimizer: false });
  const prompt = Int32Array.from(readGolden("qwen3").tensors["tokens.0"]!.data);
  const { sequences } = await engine.sample(sampleCall(prompt, { adapterId: "a", numSamples: 3 }));
  const data = sequences.map(({ tokens }) => {
    const text = Int32Array.of(...prompt, ...tokens);
    return { tokens: text.slice(0, -1), targetTokens: text.slice(1), targetsPerToken: 1 };
  });
  const { logprobs } = await engine.forwardBackward({
    adapterId: "a",
    data,
    lossFn: "cross_entropy",
    lossFnConfig: {},
    forwardOnly: true,
  });
  sequences.forEach((sequence, index) => {
    const trained = logprobs[index]!.subarray(prompt.length - 1);
    expect(largestDifference(trained, sequence.logprobs)).toBeLessThan(1e-4);
  });
});
