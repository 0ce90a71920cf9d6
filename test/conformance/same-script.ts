/** The script of same_script.py through our own SDK: gives back the same list of everything that came back. */

import type { SamplingClient } from "../../src/clients/sampling/sampling-client.js";
import { type AdamParams, type DatumLike, ServiceClient, type TrainingClient } from "../../src/index.js";
import { add, mul, sum } from "../../src/training/autograd/index.js";
import type { ForwardBackwardOutput, SampleResponse } from "../../src/wire/index.js";

const plain = (output: ForwardBackwardOutput) => ({
  logprobs: output.lossFnOutputs.map((record) => record["logprobs"]!.toNested()),
  metrics: output.metrics,
});

const tokensOf = (first: number, length = 6): number[] =>
  Array.from({ length }, (_, offset) => (first * 7 + offset) % 500);
const targetsOf = (tokens: readonly number[]) => tokens.map((token) => token + 1);

function supervised(first: number): DatumLike<"cross_entropy"> {
  const tokens = tokensOf(first, 4 + (first % 3));
  const weights = tokens.map(() => 0.5 + 0.25 * (first % 3));
  return { modelInput: tokens, lossFnInputs: { targetTokens: targetsOf(tokens), weights } };
}

function reinforced(first: number) {
  const tokens = tokensOf(first);
  return {
    modelInput: tokens,
    lossFnInputs: {
      targetTokens: targetsOf(tokens),
      logprobs: tokens.map((_, offset) => -6.25 + 0.125 * offset),
      advantages: [1, -0.5, 0, 2, -1, 0.25],
    },
  };
}

/** Given as tensors, as numpy arrays are in Python: lists of lists would be stored sparse. */
const soft = (first: number): DatumLike<"cross_entropy"> => ({
  modelInput: tokensOf(first, 3),
  lossFnInputs: {
    targetTokens: { data: [1, 2, 3, 4, 5, 6], shape: [3, 2] },
    weights: { data: [0.5, 0.5, 0.25, 0.75, 1, 0], shape: [3, 2] },
  },
});

const range = (count: number) => Array.from({ length: count }, (_, index) => index);

async function train(training: TrainingClient, seen: unknown[], hasCustomLoss: boolean): Promise<void> {
  const adam: AdamParams = { learningRate: 0.01, beta2: 0.99, gradClipNorm: 1 };
  const step = async (pass: ReturnType<TrainingClient["forwardBackward"]>) => {
    const stepped = training.optimStep(adam);
    seen.push(plain(await pass), (await stepped).metrics);
  };
  for (const round of range(3)) {
    await step(
      training.forwardBackward(
        range(10).map((index) => supervised(round * 10 + index)),
        "cross_entropy",
      ),
    );
  }
  await step(training.forwardBackward([soft(1)], "cross_entropy"));
  await step(training.forwardBackward(range(5).map(reinforced), "importance_sampling"));
  const clip = (low: number, high: number) => ({
    config: { clipLowThreshold: low, clipHighThreshold: high },
  });
  await step(training.forwardBackward(range(2).map(reinforced), "ppo", clip(0.8, 1.2)));
  await step(training.forwardBackward([reinforced(3)], "cispo", clip(0.5, 2)));
  await step(training.forwardBackward([reinforced(4)], "dro", { config: { beta: 0.1 } }));
  if (hasCustomLoss) {
    const custom = await training.forwardBackwardCustom([supervised(1), supervised(2)], (_, logprobs) => {
      const [first, second] = logprobs.map((each) => sum(mul(each, -0.5)));
      return { loss: add(first!, second!), metrics: { "halves:sum": 2 } };
    });
    seen.push(plain(custom));
    await training.optimStep({ learningRate: 0.001 });
  }
  seen.push(plain(await training.forward([supervised(5)], "cross_entropy")));
}

const answer = (response: SampleResponse) => ({
  sequences: response.sequences.map((sequence) => [
    sequence.stopReason,
    Array.from(sequence.tokens),
    sequence.logprobs && Array.from(sequence.logprobs),
    sequence.topkLogprobs,
  ]),
  prompt_logprobs: response.promptLogprobs,
  topk: response.topkPromptLogprobs,
  cache_hits: response.promptCacheHitTokens,
});

async function sample(sampler: SamplingClient, seen: unknown[]): Promise<void> {
  const prompt = tokensOf(3);
  seen.push(
    answer(
      await sampler.sample({
        prompt,
        numSamples: 3,
        samplingParams: { maxTokens: 8, seed: 42, temperature: 0.7, topP: 0.9, topK: 50 },
        includePromptLogprobs: true,
        topkPromptLogprobs: 2,
        topkSampleLogprobs: 2,
      }),
    ),
  );
  const samplingParams = { maxTokens: 4, temperature: 0, stop: [] };
  seen.push(answer(await sampler.sample({ prompt, numSamples: 1, samplingParams })));
  seen.push(
    await sampler.computeLogprobs(prompt),
    await sampler.computeLogprobs(prompt, { promptLogprobsLastN: 2 }),
  );
}

export async function runSameScript(
  baseURL: string,
  model: string,
  hasCustomLoss: boolean,
): Promise<unknown[]> {
  const seen: unknown[] = [];
  const service = new ServiceClient({
    baseURL,
    apiKey: "tml-local",
    userMetadata: { who: "both" },
    projectId: "proj",
    displayName: "One script",
  });
  seen.push((await service.getServerCapabilities()).supportedModels.map((each) => each.modelName));
  const training = await service.createLoraTrainingClient({
    baseModel: model,
    rank: 8,
    seed: 7,
    trainUnembed: false,
  });
  const info = await training.getInfo();
  seen.push([info.loraRank, info.modelName]);
  await train(training, seen, hasCustomLoss);
  const { path } = await training.saveState("state", { ttlSeconds: 7200, userMetadata: { step: "8" } });
  const { path: named } = await training.saveWeightsForSampler("sampler");
  await sample(await service.createSamplingClient({ modelPath: named }), seen);
  await sample(await training.saveWeightsAndGetSamplingClient(), seen);
  const loaded = await service.createTrainingClientFromStateWithOptimizer(path);
  seen.push(plain(await loaded.forwardBackward([supervised(5)], "cross_entropy")));
  await loaded.optimStep({ learningRate: 0.01 });
  await loaded.saveState("again");
  await service.close("success");
  return seen;
}
