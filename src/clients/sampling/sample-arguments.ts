import { TinkerError, ValidationError } from "../../errors.js";
import {
  endpoints,
  type ModelInputLike,
  optionTable,
  type SampleConstraint,
  type SampleRequest,
  type SampleResponse,
  type SamplingParams,
  samplingParams,
  type TensorData,
} from "../../wire/index.js";

/** Arguments of `sample`: a prompt, sampling parameters, and the extra results to return. */
export interface SampleArguments {
  prompt: ModelInputLike;
  /** Number of independent answers; 1 when absent. */
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

/** Arguments of `stream`: those of `sample`, and what the samples must be. */
export interface StreamArguments extends SampleArguments {
  /**
   * Every sample is such JSON, also where `maxTokens` cuts it short. Only with servers that can (`canConstrain`); logprobs
   * are those of the model without the constraint.
   */
  constraint?: SampleConstraint | undefined;
}

/** The checked arguments of `stream`. */
export type StreamRequest = SampleRequest & Pick<StreamArguments, "constraint">;

const { shape } = endpoints.sample.request;

const SAMPLE_FIELDS = {
  prompt: shape.prompt,
  numSamples: shape.numSamples,
  samplingParams: shape.samplingParams,
  includePromptLogprobs: shape.promptLogprobs,
  topkPromptLogprobs: shape.topkPromptLogprobs,
  topkSampleLogprobs: shape.topkSampleLogprobs,
  targetPromptLogprobs: shape.targetPromptLogprobs,
  promptAltTokensK: shape.promptAltTokensK,
  promptLogprobsLastN: shape.promptLogprobsLastN,
} satisfies Record<keyof SampleArguments, unknown>;
const SAMPLE_ARGUMENTS = optionTable(SAMPLE_FIELDS);
const STREAM_ARGUMENTS = optionTable({
  ...SAMPLE_FIELDS,
  constraint: endpoints.streamSample.request.shape.constraint,
} satisfies Record<keyof StreamArguments, unknown>);

/** Checks the arguments of `sample` and turns them into a request. */
export function checkSampleArguments(given: SampleArguments): SampleRequest {
  refuseMisplaced(given);
  return toRequest(SAMPLE_ARGUMENTS.check(given, "sample"));
}

/** Checks the arguments of `stream` and turns them into a request. */
export function checkStreamArguments(given: StreamArguments): StreamRequest {
  refuseMisplaced(given);
  const { constraint, ...sample } = STREAM_ARGUMENTS.check(given, "stream");
  return { ...toRequest(sample), ...(constraint !== undefined && { constraint }) };
}

function refuseMisplaced(given: SampleArguments): void {
  const misplaced = Object.keys(given ?? {}).find((key) => key in samplingParams.shape);
  if (misplaced !== undefined)
    throw new ValidationError(
      misplaced,
      `unknown field ${misplaced}; did you mean samplingParams.${misplaced}?`,
    );
}

function toRequest({
  includePromptLogprobs,
  ...rest
}: ReturnType<typeof SAMPLE_ARGUMENTS.check>): SampleRequest {
  return endpoints.sample.request.check({ ...rest, promptLogprobs: includePromptLogprobs }, "");
}

/** Some servers omit the first prompt token, which has no logprob; then all others would be off by one. */
export function withFirstToken(request: SampleRequest, response: SampleResponse): SampleResponse {
  const { promptLogprobs } = response;
  if (promptLogprobs === null || !request.prompt.isText) return response;
  const isShort = promptLogprobs.length === request.prompt.length - 1;
  return isShort ? { ...response, promptLogprobs: [null, ...promptLogprobs] } : response;
}

/** An old server ignores an unknown field; the caller must learn that instead of getting something else. */
export function checkHonoured(request: SampleRequest, response: SampleResponse): void {
  if ((request.promptAltTokensK ?? 0) > 0 && response.promptAltTokens === null) {
    throw new TinkerError(
      "promptAltTokensK was requested, but the server returned none: it does not support this option.",
    );
  }
  const lastN = request.promptLogprobsLastN;
  const scored = response.promptLogprobs;
  if (lastN !== undefined && scored?.slice(0, scored.length - lastN).some((logprob) => logprob !== null)) {
    throw new TinkerError(
      "promptLogprobsLastN was requested, but the server scored the whole prompt: it does not support this option.",
    );
  }
}
