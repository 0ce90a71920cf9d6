import { describe, expect, it } from "vitest";
import { ValidationError } from "../../errors.js";
import { TensorData } from "../tensors/tensor-data.js";
import { ttlSeconds } from "./common.js";
import { samplingEndpoints, samplingParams } from "./sampling.js";
import { adamParams, loraConfig, optimizerConfig, optimParams } from "./training.js";

const checkAdamParams = (given: unknown) => adamParams.check(given, "adamParams");
const checkOptimParams = (given: unknown) => optimParams.check(given, "optimParams");
const checkOptimizerConfig = (given: unknown) => optimizerConfig.check(given, "optimizerConfig");
const checkLoraConfig = (given: unknown) => loraConfig.check(given, "loraConfig");
const checkSamplingParams = (given: unknown) => samplingParams.check(given, "samplingParams");
const checkSampleRequest = (given: unknown) => samplingEndpoints.sample.request.check(given, "");
const checkTtlSeconds = (given: unknown) => ttlSeconds.check(given, "ttlSeconds");

const refuses = (check: () => unknown, message: string) => {
  expect(check).toThrow(message);
  expect(check).toThrow(ValidationError);
};

describe("optimizer parameters", () => {
  it("get the defaults of the service", () => {
    expect(checkAdamParams({ learningRate: 1e-3, beta1: undefined })).toEqual({
      learningRate: 1e-3,
      beta1: 0.9,
      beta2: 0.95,
      eps: 1e-12,
      weightDecay: 0,
      gradClipNorm: 0,
    });
    expect(checkOptimParams({})).toEqual(checkAdamParams({}));
    expect(checkOptimParams({ type: "dimuon", learningRate: 0.1 })).toEqual({
      type: "dimuon",
      learningRate: 0.1,
      gradClipNorm: 0,
      beta1: 0.9,
    });
    const unknown = { type: "lion", learningRate: 1, anything: [1] };
    expect(checkOptimParams(unknown)).toEqual(unknown);
  });

  it.each<[object, string]>([
    [{ learningrate: 1 }, "unknown field optimParams.learningrate; did you mean learningRate?"],
    [{ learning_rate: 1 }, "did you mean learningRate?"],
    [{ lr: 1 }, "unknown field optimParams.lr; did you mean learningRate?"],
    [{ learningRate: -1 }, "optimParams.learningRate must be a non-negative number, got -1"],
    [{ learningRate: Number.NaN }, "got NaN"],
    [{ learningRate: "1" }, 'got "1"'],
    [{ beta2: 1 }, "optimParams.beta2 must be a number from 0 to below 1, got 1"],
    [{ type: "dimuon" }, "optimParams.learningRate must be a non-negative number, got undefined"],
    [{ type: "dimuon", learningRate: 1, eps: 1 }, "unknown field optimParams.eps"],
    [{ type: "" }, "optimParams.type must be a non-empty string"],
    [[], "optimParams must be an object, got a list of 0"],
  ])("that are %j are refused", (params, message) => refuses(() => checkOptimParams(params), message));

  it("choose the optimizer of a model", () => {
    expect(checkOptimizerConfig({ type: "dimuon", version: 1 })).toEqual({ type: "dimuon", version: 1 });
    expect(checkOptimizerConfig({ type: "lion", size: 3 })).toEqual({ type: "lion", size: 3 });
    refuses(
      () => checkOptimizerConfig({ type: "dimuon", version: 2 as 1 }),
      "optimizerConfig.version must be 1, got 2",
    );
    refuses(() => checkOptimizerConfig({ type: "adamw", beta1: 1 }), "unknown field optimizerConfig.beta1");
  });
});

describe("LoRA configs", () => {
  it("train everything by default", () => {
    expect(checkLoraConfig({ rank: 8, trainMlp: false, seed: undefined })).toEqual({
      rank: 8,
      trainUnembed: true,
      trainMlp: false,
      trainAttn: true,
    });
  });

  it.each<[object, string]>([
    [{}, "loraConfig.rank must be a positive integer, got undefined"],
    [{ rank: 0 }, "loraConfig.rank must be a positive integer, got 0"],
    [{ rank: 1.5 }, "got 1.5"],
    [{ rank: 1, seed: 0.5 }, "loraConfig.seed must be an integer, got 0.5"],
    [{ rank: 1, trainMlp: 1 }, "loraConfig.trainMlp must be true or false, got 1"],
    [{ rank: 1, trainMLP: true }, "did you mean trainMlp?"],
    [{ rank: 1, trainMlp: false, trainAttn: false, trainUnembed: false }, "loraConfig trains nothing"],
  ])("that are %j are refused", (config, message) => refuses(() => checkLoraConfig(config), message));
});

describe("sampling parameters", () => {
  it("pass in all their forms", () => {
    const params = { maxTokens: 5, seed: -3, temperature: 0, topK: -1, topP: 0.5 };
    for (const stop of ["\n", ["a", "b"], [1, 0], []]) {
      expect(checkSamplingParams({ ...params, stop })).toEqual({ ...params, stop });
    }
    expect(checkSamplingParams({ maxTokens: undefined })).toEqual({ temperature: 1, topK: -1, topP: 1 });
  });

  it.each<[object, string]>([
    [{ maxTokens: -1 }, "samplingParams.maxTokens must be a positive integer, got -1"],
    [{ maxToken: 1 }, "unknown field samplingParams.maxToken; did you mean maxTokens?"],
    [{ max_tokens: 1 }, "did you mean maxTokens?"],
    [{ temperature: -0.1 }, "samplingParams.temperature must be a non-negative number, got -0.1"],
    [{ topK: 0 }, "samplingParams.topK must be -1 or a positive integer, got 0"],
    [{ topP: 0 }, "samplingParams.topP must be a number above 0 and at most 1, got 0"],
    [{ topP: 1.1 }, "got 1.1"],
    [
      { stop: ["a", 1] },
      "samplingParams.stop must be a text that is not empty, a list of such texts or a list of token ids, got a list of 2",
    ],
    [{ stop: "" }, 'got ""'],
    [{ stop: [-1] }, "samplingParams.stop must be"],
    [{ seed: 1.5 }, "samplingParams.seed must be an integer, got 1.5"],
  ])("that are %j are refused", (params, message) => refuses(() => checkSamplingParams(params), message));
});

describe("sample requests", () => {
  it("turn lists into inputs and tensors", () => {
    const checked = checkSampleRequest({
      prompt: [1, 2, 3],
      targetPromptLogprobs: [
        [4, -1],
        [5, 6],
      ],
      numSamples: undefined,
    });
    expect(checked.prompt.toInts()).toEqual([1, 2, 3]);
    expect(checked.targetPromptLogprobs?.dtype).toBe("int64");
    expect(checked.samplingParams).toEqual({ temperature: 1, topK: -1, topP: 1 });
    expect(checked.numSamples).toBe(1);
    expect(
      checkSampleRequest({ prompt: [1, 2, 3], promptLogprobs: true, promptLogprobsLastN: 2 })
        .promptLogprobsLastN,
    ).toBe(2);
  });

  it.each<[object, string]>([
    [{ numSamples: 0 }, "numSamples must be a positive integer, got 0"],
    [{ numSample: 1 }, "unknown field numSample; did you mean numSamples?"],
    [{ samplingParams: { maxTokens: 0 } }, "samplingParams.maxTokens must be a positive integer, got 0"],
    [{ prompt: [Number.NaN] }, "prompt[0] must be a token id"],
    [{ topkPromptLogprobs: -1 }, "topkPromptLogprobs must be a non-negative integer, got -1"],
    [{ promptAltTokensK: 1.5 }, "promptAltTokensK must be a non-negative integer, got 1.5"],
    [{ promptLogprobsLastN: 1 }, "promptLogprobsLastN needs prompt logprobs"],
    [
      { promptLogprobs: true, promptLogprobsLastN: 0 },
      "promptLogprobsLastN must be a positive integer, got 0",
    ],
    [
      { promptLogprobs: true, promptLogprobsLastN: 3 },
      "must be at most 2, the prompt's length less one, got 3",
    ],
    [{ targetPromptLogprobs: [1, 2] }, "targetPromptLogprobs must have the shape [2, K], got [2]"],
    [{ targetPromptLogprobs: [[1]] }, "targetPromptLogprobs must have the shape [2, K], got [1, 1]"],
    [
      { targetPromptLogprobs: [[1], [-2]] },
      "targetPromptLogprobs[1] must be a token id, or -1 for none, got -2",
    ],
    [{ targetPromptLogprobs: TensorData.from([[0.5], [1]]) }, "targetPromptLogprobs must be int64"],
    [{ modelPath: "run/weights" }, 'modelPath must begin with "tinker://", got "run/weights"'],
  ])("with %j are refused", (change, message) => {
    refuses(() => checkSampleRequest({ prompt: [1, 2, 3], ...change }), message);
  });
});

it("checks times to live", () => {
  checkTtlSeconds(3600);
  for (const ttl of [-1, 0, 1.5, Number.NaN])
    refuses(() => checkTtlSeconds(ttl), "ttlSeconds must be a positive integer");
});
