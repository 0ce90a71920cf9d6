import { TinkerError, ValidationError } from "../../errors.js";
import { checkKeys, checkObject } from "../../wire/fields/check-keys.js";
import {
  endpoints,
  type ModelInputLike,
  type SampleRequest,
  type SampleResponse,
  type SamplingParams,
  type TensorData,
} from "../../wire/index.js";

/** What `sample` takes: a prompt, how to draw from it, and what else to return. */
export interface SampleArguments {
  prompt: ModelInputLike;
  /** How many independent answers; 1 when absent. */
  numSamples?: number | undefined;
  samplingParams?: SamplingParams | undefined;
  /** Also return the logprob of every prompt token. */
  includePromptLogprobs?: boolean | undefined;
  /** Also return the k likeliest tokens at every prompt position. */
  topkPromptLogprobs?: number | undefined;
  /** Also return the k likeliest tokens at every sampled position. */
  topkSampleLogprobs?: number | undefined;
  /** Token ids to score at each prompt position after the first, shape [prompt length - 1, K]; -1 = none. */
  targetPromptLogprobs?: TensorData | readonly (readonly number[])[] | undefined;
  /** Draw this many alternatives to every prompt token after the first. */
  promptAltTokensK?: number | undefined;
  /** Score only the last N prompt tokens. Needs `includePromptLogprobs`. */
  promptLogprobsLastN?: number | undefined;
}

const ARGUMENT_KEYS: ReadonlySet<string> = new Set([
  "prompt",
  "numSamples",
  "samplingParams",
  "includePromptLogprobs",
  "topkPromptLogprobs",
  "topkSampleLogprobs",
  "targetPromptLogprobs",
  "promptAltTokensK",
  "promptLogprobsLastN",
] satisfies (keyof SampleArguments)[]);

const PARAMETER_KEYS: ReadonlySet<string> = new Set([
  "maxTokens",
  "temperature",
  "topK",
  "topP",
  "seed",
  "stop",
] satisfies (keyof SamplingParams)[]);

/** The arguments as they travel, names and values checked. */
export function checkArguments(request: SampleArguments): SampleRequest {
  checkObject(request, "the argument of sample");
  for (const key of Object.keys(request)) {
    if (!PARAMETER_KEYS.has(key)) continue;
    throw new ValidationError(key, `unknown field ${key}; did you mean samplingParams.${key}?`);
  }
  checkKeys(request, ARGUMENT_KEYS, "");
  const { includePromptLogprobs, ...rest } = request;
  return endpoints.sample.request.check({ ...rest, promptLogprobs: includePromptLogprobs }, "");
}

/** Some servers leave the first prompt token, which has no logprob, out of the list; then all others would be off by one. */
export function withFirstToken(request: SampleRequest, response: SampleResponse): SampleResponse {
  const { promptLogprobs } = response;
  if (promptLogprobs === null || !request.prompt.isText) return response;
  const isShort = promptLogprobs.length === request.prompt.length - 1;
  return isShort ? { ...response, promptLogprobs: [null, ...promptLogprobs] } : response;
}

/** A server too old for a field ignores it; the caller should hear of that rather than get something else. */
export function checkHonoured(request: SampleRequest, response: SampleResponse): void {
  if ((request.promptAltTokensK ?? 0) > 0 && response.promptAltTokens === null) {
    throw new TinkerError(
      "promptAltTokensK was asked for, but the server returned none: it does not know this option.",
    );
  }
  const lastN = request.promptLogprobsLastN;
  const scored = response.promptLogprobs;
  if (lastN !== undefined && scored?.slice(0, scored.length - lastN).some((logprob) => logprob !== null)) {
    throw new TinkerError(
      "promptLogprobsLastN was asked for, but the server scored the whole prompt: it does not know this option.",
    );
  }
}
