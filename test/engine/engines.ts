import { afterEach } from "vitest";
import type {
  AdamSettings,
  Engine,
  EngineDatum,
  LoraSettings,
  SampleCall,
  SampledToken,
  SampleResult,
} from "../../src/local/engine/engine.js";
import { EngineCore } from "../../src/local/engine/engine-core.js";
import { folderModel } from "../../src/local/engine/folder-model.node.js";
import type { Kernels } from "../../src/local/engine/kernels/kernels.js";
import { createWasmKernels } from "../../src/local/engine/kernels/wasm-kernels.node.js";
import { philox } from "../../src/local/engine/philox.js";
import { fixture, goldenModels } from "./golden.js";

export const lora: LoraSettings = { rank: 4, seed: 7, trainAttn: true, trainMlp: true, trainUnembed: true };
export const adam: AdamSettings = {
  learningRate: 1e-2,
  beta1: 0.9,
  beta2: 0.95,
  eps: 1e-8,
  weightDecay: 0.01,
  gradClipNorm: 1,
};

export function openEngine(
  options: { threads?: number; kernels?: Kernels; cacheBytes?: number; model?: string } = {},
): Promise<Engine> {
  let seeds = 1000;
  return EngineCore.create({
    kernels: options.kernels ?? createWasmKernels({ threads: options.threads ?? 1 }),
    models: options.model
      ? [folderModel({ name: "model", path: options.model })]
      : goldenModels.map((name) => folderModel({ name, path: fixture(name) })),
    cacheBytes: options.cacheBytes ?? 1 << 24,
    freshSeed: () => seeds++,
    now: () => performance.now(),
    pause: () => new Promise((resolve) => setImmediate(resolve)),
  });
}

export function randomTokens(length: number, seed: number, vocabSize = 64): Int32Array {
  return Int32Array.from({ length }, (_, i) => philox(seed, [i, 0, 0, 99])[0] % vocabSize);
}

/** Next-token data of different lengths, most of it with a beginning that does not count. */
export function trainingData(count: number, seed: number): EngineDatum[] {
  return Array.from({ length: count }, (_, index) => {
    const tokens = randomTokens(4 + ((seed + index * 5) % 17), seed * 100 + index);
    return {
      tokens,
      targetTokens: randomTokens(tokens.length, seed * 100 + index + 50),
      targetsPerToken: 1,
      weights: new Float32Array(tokens.length).fill(1).fill(0, 0, (index % 3) * 2),
    };
  });
}

let requests = 0;
export function sampleCall(prompt: Int32Array, changes: Partial<SampleCall> = {}): SampleCall {
  requests += 1;
  return {
    requestId: `request-${requests}`,
    baseModel: "qwen3",
    prompt,
    numSamples: 1,
    maxTokens: 20,
    temperature: 1,
    topK: -1,
    topP: 1,
    seed: 5,
    stopTokens: [],
    stopStrings: [],
    promptLogprobs: false,
    topkPromptLogprobs: 0,
    topkSampleLogprobs: 0,
    promptAltTokens: 0,
    ...changes,
  };
}

export const crossEntropy = (adapterId: string, data: EngineDatum[], forwardOnly = false) => ({
  adapterId,
  data,
  lossFn: "cross_entropy" as const,
  lossFnConfig: {},
  forwardOnly,
});

/** What a listener heard, in the form of a result; a token that comes twice or out of order is an error. */
export function listener() {
  const heard: { tokens: number[]; logprobs: number[]; topk: number[]; stopReason?: string }[] = [];
  return {
    heard,
    onToken({ index, position, token, logprob, topk, stopReason }: SampledToken) {
      heard[index] ??= { tokens: [], logprobs: [], topk: [] };
      if (heard[index].stopReason !== undefined) throw new Error("a token came behind the last one");
      if (stopReason !== undefined) heard[index].stopReason = stopReason;
      if (position !== heard[index].tokens.length) throw new Error(`token ${position} came out of order`);
      heard[index].tokens.push(token);
      heard[index].logprobs.push(logprob);
      heard[index].topk.push(...(topk?.tokens ?? []), ...(topk?.logprobs ?? []));
    },
  };
}

/** A result in the form of what a listener hears. */
export const asHeard = ({ sequences }: SampleResult) =>
  sequences.map(({ tokens, logprobs, topk, stopReason }) => ({
    stopReason,
    tokens: [...tokens],
    logprobs: [...logprobs],
    topk: [...tokens].flatMap((_, row) => {
      const columns = topk?.columns ?? 0;
      const cells = [row * columns, (row + 1) * columns] as const;
      return [...(topk?.tokens.slice(...cells) ?? []), ...(topk?.logprobs.slice(...cells) ?? [])];
    }),
  }));

/** Opens engines that end with the test that opened them. */
export function enginesForTests(): typeof openEngine {
  const open: Engine[] = [];
  afterEach(async () => {
    for (const engine of open.splice(0)) await engine.close();
  });
  return async (options) => {
    const engine = await openEngine(options);
    open.push(engine);
    return engine;
  };
}
