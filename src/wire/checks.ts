import { ttlSeconds } from "./endpoints/common.js";
import { samplingEndpoints, samplingParams } from "./endpoints/sampling.js";
import { adamParams, loraConfig, optimizerConfig, optimParams } from "./endpoints/training.js";
import type { ModelInputLike } from "./model-input.js";
import type { SampleRequest, SamplingParams } from "./sampling-types.js";
import type { TensorLike } from "./tensor-data.js";
import type { AdamParams, LoraConfig, OptimizerConfig, OptimParams } from "./training-types.js";

export function checkAdamParams(params: AdamParams, field = "adamParams"): Required<AdamParams> {
  return adamParams.check(params, field);
}

export function checkOptimParams(params: OptimParams, field = "optimParams"): OptimParams {
  return optimParams.check(params, field);
}

export function checkOptimizerConfig(config: OptimizerConfig, field = "optimizerConfig"): OptimizerConfig {
  return optimizerConfig.check(config, field);
}

export function checkLoraConfig(config: LoraConfig, field = "loraConfig"): LoraConfig {
  return loraConfig.check(config, field);
}

export function checkSamplingParams(params: SamplingParams, field = "samplingParams"): SamplingParams {
  return samplingParams.check(params, field);
}

/** A sample request as it may be given: the prompt as tokens, the targets as lists. */
export type SampleRequestLike = Omit<SampleRequest, "prompt" | "targetPromptLogprobs"> & {
  readonly prompt: ModelInputLike;
  readonly targetPromptLogprobs?: TensorLike | undefined;
};

export function checkSampleRequest(request: SampleRequestLike): SampleRequest {
  return samplingEndpoints.sample.request.check(request, "");
}

/** Undefined means that nothing was said, and passes. */
export function checkTtlSeconds(given: number | undefined, field = "ttlSeconds"): void {
  if (given !== undefined) ttlSeconds.check(given, field);
}
