import { rmSync } from "node:fs";
import { afterAll, describe, expect, it, vi } from "vitest";
import { CancelledError, type SampleCall } from "../../src/local/engine/engine.js";
import { readTokenizer } from "../../src/local/tokenizer.js";
import {
  adam,
  asHeard,
  crossEntropy,
  listener,
  lora,
  openEngine,
  randomTokens,
  sampleCall,
  trainingData,
} from "../engine/engines.js";
import { goldenModels } from "../engine/golden.js";
import { END, randomModel } from "../engine/random-model.js";
import { openKernels } from "./gpus.js";

const kernels = await openKernels();
const [cpu, gpu] = [await openEngine(), await openEngine({ kernels })];
afterAll(() => Promise.all([cpu.close(), gpu.close()]));

/** Trained on the CPU, so that both engines have the same weights. */
async function train(id: string, baseModel: string, seed: number) {
  await cpu.createAdapter(id, baseModel, { ...lora, seed });
  await cpu.forwardBackward(crossEntropy(id, trainingData(3, seed)));
  await cpu.optimStep(id, adam);
  const state = await cpu.exportAdapter(id, { optimizer: false });
  await gpu.importAdapter(id, baseModel, state, { optimizer: false });
  return state;
}
for (const model of goldenModels) await train(model, model, 3);
await train("other", "qwen3", 4);

function expectClose(actual: ArrayLike<number>, expected: ArrayLike<number>) {
  expect(actual.length).toBe(expected.length);
  Array.from(actual).forEach((value, index) => {
    if (Number.isNaN(expected[index]!)) expect(value).toBeNaN();
    else expect(Math.abs(value - expected[index]!)).toBeLessThan(1e-4);
  });
}

const both = (call: SampleCall) => Promise.all([cpu, gpu].map((engine) => engine.sample({ ...call })));

describe("sampling on the GPU", () => {
  it.each(goldenModels)("goes the CPU's way at temperature 0, and scores as it does (%s)", async (model) => {
    const prompt = randomTokens(21, 1);
    const ids = Int32Array.from({ length: 20 * 2 }, (_, cell) => (cell % 3 === 0 ? -1 : (7 * cell) % 64));
    const call = sampleCall(prompt, {
      adapterId: model,
      baseModel: model,
      temperature: 0,
      maxTokens: 4,
      promptLogprobs: true,
      topkPromptLogprobs: 3,
      topkSampleLogprobs: 70,
      targetPromptTokens: { ids, columns: 2 },
      promptAltTokens: 2,
    });
    const [expected, actual] = await both(call);
    expect(actual!.sequences[0]!.tokens).toEqual(expected!.sequences[0]!.tokens);
    expectClose(actual!.sequences[0]!.logprobs, expected!.sequences[0]!.logprobs);
    expectClose(actual!.sequences[0]!.topk!.logprobs, expected!.sequences[0]!.topk!.logprobs);
    expectClose(actual!.promptLogprobs!, expected!.promptLogprobs!);
    expect(actual!.topkPrompt!.tokens).toEqual(expected!.topkPrompt!.tokens);
    expectClose(actual!.topkPrompt!.logprobs, expected!.topkPrompt!.logprobs);
    expectClose(actual!.targetPrompt!, expected!.targetPrompt!);
    expect(actual!.alt!.tokens).toEqual(expected!.alt!.tokens);
  });

  it("gives the logprobs that the trainer gives for the same sequence", async () => {
    const prompt = randomTokens(18, 2);
    const call = sampleCall(prompt, { adapterId: "qwen3", maxTokens: 10, promptLogprobs: true });
    const { sequences, promptLogprobs } = await gpu.sample(call);
    const all = Int32Array.from([...prompt, ...sequences[0]!.tokens]);
    const datum = { tokens: all.slice(0, -1), targetTokens: all.slice(1), targetsPerToken: 1 };
    const { logprobs } = await gpu.forwardBackward(crossEntropy("qwen3", [datum], true));
    expectClose(sequences[0]!.logprobs, logprobs[0]!.slice(prompt.length - 1));
    expectClose(promptLogprobs!.slice(1), logprobs[0]!.slice(0, prompt.length - 1));
  });

  it("serves several adapters side by side, each as if alone", async () => {
    const calls = [undefined, "qwen3", "other", "qwen3", undefined].map((adapterId, index) =>
      sampleCall(randomTokens(9 + 5 * index, 5), { adapterId, temperature: 0, maxTokens: 6 }),
    );
    const together = await Promise.all(calls.map((call) => gpu.sample(call)));
    for (const [index, call] of calls.entries()) {
      const [alone] = (await cpu.sample({ ...call, requestId: `alone-${index}` })).sequences;
      expect(together[index]!.sequences[0]!.tokens).toEqual(alone!.tokens);
      expectClose(together[index]!.sequences[0]!.logprobs, alone!.logprobs);
    }
    expect(together[1]!.sequences[0]!.tokens).not.toEqual(together[2]!.sequences[0]!.tokens);
  });

  it("reuses the beginning of a prompt that it has seen", async () => {
    const prompt = randomTokens(40, 6);
    const call = () => gpu.sample(sampleCall(prompt, { adapterId: "other", temperature: 0, maxTokens: 4 }));
    const [first, second] = [await call(), await call()];
    expect([first.promptCacheHitTokens, second.promptCacheHitTokens]).toEqual([0, 32]);
    expect(second.sequences[0]!.tokens).toEqual(first.sequences[0]!.tokens);
    expectClose(second.sequences[0]!.logprobs, first.sequences[0]!.logprobs);
  });

  it("advances 256 samples at once, with one small download a step", async () => {
    const download = vi.spyOn(kernels, "download");
    const call = sampleCall(randomTokens(12, 7), { numSamples: 256, maxTokens: 3 });
    const [expected, actual] = await both(call);
    const downloads = await Promise.all(
      download.mock.results.map(({ value }) => value as Promise<Float32Array>),
    );
    download.mockRestore();
    expect(downloads).toHaveLength(3);
    // A draw has a token, a logprob, a sum and a target; each of these parts is a little longer than 256.
    for (const { length } of downloads) expect(length).toBeLessThan(4 * (256 + 64));
    const same = actual!.sequences.filter(
      ({ tokens }, index) => String(tokens) === String(expected!.sequences[index]!.tokens),
    );
    expect(same.length).toBeGreaterThanOrEqual(252);
    expect(new Set(actual!.sequences.map(({ tokens }) => String(tokens))).size).toBeGreaterThan(200);
  });

  it("keeps to top-k and top-p", async () => {
    const call = sampleCall(randomTokens(7, 8), {
      numSamples: 16,
      maxTokens: 4,
      topK: 3,
      topP: 0.9,
      topkSampleLogprobs: 3,
    });
    for (const { tokens, topk } of (await gpu.sample(call)).sequences) {
      tokens.forEach((token, position) => {
        expect(topk!.tokens.slice(3 * position, 3 * position + 3)).toContain(token);
      });
    }
  });

  it("tells of each token as soon as it is drawn", async () => {
    const { heard, onToken } = listener();
    const call = sampleCall(randomTokens(5, 9), { numSamples: 3, maxTokens: 5, topkSampleLogprobs: 2 });
    expect(asHeard(await gpu.sample(call, onToken))).toEqual(heard);
  });

  it("ends a request that is cancelled, or whose adapter has diverged, and goes on with the others", async () => {
    const state = await gpu.exportAdapter("other", { optimizer: false });
    Object.values(state.tensors)[0]!.data.fill(Number.NaN);
    await gpu.importAdapter("broken", "qwen3", state, { optimizer: false });
    const prompt = randomTokens(20, 1);
    const long = sampleCall(prompt, { maxTokens: 200, numSamples: 3 });
    const cancelled = gpu.sample(long, () => gpu.cancelSample(long.requestId));
    const fine = gpu.sample(sampleCall(prompt, { adapterId: "qwen3", maxTokens: 5 }));
    const broken = gpu.sample(sampleCall(prompt, { adapterId: "broken", topK: 5, topP: 0.5 }));
    await expect(broken).rejects.toThrow(/not finite/);
    await expect(cancelled).rejects.toBeInstanceOf(CancelledError);
    expect((await fine).sequences[0]!.tokens).toHaveLength(5);
  });
});

it("writes JSON that fits its schema on the GPU, token for token as the CPU does", async () => {
  const model = await randomModel(1);
  const tokenizer = readTokenizer(model)!;
  const engines = [await openEngine({ model }), await openEngine({ model, kernels: await openKernels() })];
  const schema = {
    type: "object",
    properties: { good: { type: "boolean" }, size: { enum: ["small", "large"] } },
    required: ["good", "size"],
    additionalProperties: false,
  };
  const call = sampleCall(Int32Array.from(tokenizer.encode("Write JSON: ")), {
    baseModel: "model",
    numSamples: 2,
    maxTokens: 40,
    temperature: 0,
    constraint: { type: "json_schema", schema },
    stopTokens: [END],
  });
  const [expected, actual] = await Promise.all(engines.map((engine) => engine.sample({ ...call })));
  for (const [index, { tokens, logprobs, stopReason }] of actual!.sequences.entries()) {
    expect(stopReason).toBe("stop");
    const value = JSON.parse(tokenizer.decode([...tokens.slice(0, -1)]));
    expect(value).toEqual({ good: expect.any(Boolean), size: expect.stringMatching(/^(small|large)$/) });
    expect(tokens).toEqual(expected!.sequences[index]!.tokens);
    expectClose(logprobs, expected!.sequences[index]!.logprobs);
  }
  for (const engine of engines) await engine.close();
  rmSync(model, { recursive: true });
});
