import { ValidationError } from "../../errors.js";
import * as f from "../fields/index.js";
import type { SamplerInfo } from "../records/session-types.js";
import { type ModelInput, modelInputField } from "../sampling/model-input.js";
import { sampleConstraint } from "../sampling/sample-constraint.js";
import { sampleFuture } from "../sampling/sample-json.js";
import type { SamplingParams } from "../sampling/sampling-types.js";
import type { TensorData } from "../tensors/tensor-data.js";
import { tensorField } from "../tensors/tensor-json.js";
import { sessionSeqId, tinkerPathText } from "./common.js";
import { endpoint, json, operation } from "./endpoint.js";

const isStopText = (given: unknown) => typeof given === "string" && given !== "";
const isToken = (given: unknown) => Number.isSafeInteger(given) && (given as number) >= 0;

/** How to draw tokens. */
export const samplingParams = f.message({
  maxTokens: f.optional(f.positiveInteger),
  // Not a safe integer: other clients take 64 bits of chance.
  seed: f.optional(f.numberThat("an integer", Number.isInteger)),
  stop: f.optional(
    f.value<NonNullable<SamplingParams["stop"]>>(
      "a text that is not empty, a list of such texts or a list of token ids",
      (given) => {
        if (isStopText(given)) return true;
        return Array.isArray(given) && (given.every(isStopText) || given.every(isToken));
      },
    ),
  ),
  temperature: f.withDefault(f.nonNegative, 1),
  topK: f.withDefault(
    f.tolerant(
      f.numberThat("-1 or a positive integer", (given) => given === -1 || (isToken(given) && given !== 0)),
      // Some clients turn it off with 0.
      f.integerFrom(-1, Number.MAX_SAFE_INTEGER),
    ),
    -1,
  ),
  topP: f.withDefault(
    f.numberThat("a number above 0 and at most 1", (given) => given > 0 && given <= 1),
    1,
  ),
} satisfies f.FieldsOf<SamplingParams>);

/** Copies of a sampler number from 10^9 times a random number, which may lie beyond 2^53. */
const sampleSeqId: f.Field<number> = f.value(
  "a non-negative integer",
  (given) => Number.isInteger(given) && (given as number) >= 0,
);

/** The digits of a sample request's number, also of one beyond 2^53, which `JSON.parse` has rounded; undefined beyond 2^63. */
export function exactSeqId(given: number, bodyText: string): string | undefined {
  if (Number.isSafeInteger(given)) return String(given);
  return /"seq_id"\s*:\s*(\d{1,19})\s*[,}]/.exec(bodyText)?.[1];
}

/** Sent only when it asks for something, so that servers which do not know the field can be used. */
const newerCount: f.Field<number> = {
  ...f.nonNegativeInteger,
  write: (count) => (count === 0 ? undefined : count),
};

/** The request of a sample, whether its answer comes whole or token by token. */
const sampleQuestion = {
  tag: "sample",
  fields: {
    prompt: modelInputField,
    numSamples: f.withDefault(f.positiveInteger, 1),
    samplingParams: f.withDefault(samplingParams, { temperature: 1, topK: -1, topP: 1 }),
    baseModel: f.optional(f.text),
    modelPath: f.optional(tinkerPathText),
    samplingSessionId: f.optional(f.anyText),
    seqId: f.optional(sampleSeqId),
    promptLogprobs: f.optional(f.boolean),
    topkPromptLogprobs: f.withDefault(f.nonNegativeInteger, 0),
    topkSampleLogprobs: f.optional(newerCount),
    targetPromptLogprobs: f.optional(tensorField("int64")),
    promptAltTokensK: f.optional(newerCount),
    promptLogprobsLastN: f.optional(f.positiveInteger),
    recordStabilityInfo: f.optional(f.boolean),
  },
  rule({
    prompt,
    promptLogprobs,
    promptLogprobsLastN: lastN,
    targetPromptLogprobs: targets,
  }: {
    readonly prompt: ModelInput;
    readonly promptLogprobs?: boolean | undefined;
    readonly promptLogprobsLastN?: number | undefined;
    readonly targetPromptLogprobs?: TensorData | undefined;
  }) {
    const scored = prompt.isText ? prompt.length - 1 : undefined;
    const field = "promptLogprobsLastN";
    if (lastN !== undefined && promptLogprobs !== true)
      throw new ValidationError(field, `${field} needs prompt logprobs to be asked for`);
    if (lastN !== undefined && scored !== undefined && lastN > scored) {
      throw new ValidationError(
        field,
        `${field} must be at most ${scored}, the prompt's length less one, got ${lastN}`,
      );
    }
    if (targets !== undefined) checkTargets(targets, scored);
  },
};

/** Samplers and samples. */
export const samplingEndpoints = {
  createSamplingSession: endpoint("POST", "/api/v1/create_sampling_session", {
    pool: "session",
    tag: "create_sampling_session",
    fields: {
      sessionId: f.text,
      samplingSessionSeqId: sessionSeqId,
      baseModel: f.optional(f.text),
      modelPath: f.optional(tinkerPathText),
    },
    answer: json<{ readonly samplingSessionId: string }>(),
  }),
  joinSamplingSession: endpoint("POST", "/api/v1/join_sampling_session", {
    pool: "session",
    tag: "join_sampling_session",
    fields: { samplingSessionId: f.text },
    /** Unique among the clients of one sampling session; the first client is 0. */
    answer: json<{ readonly clientCounter: number }>(),
  }),
  getSampler: endpoint("GET", "/api/v1/samplers/:samplerId", {
    fields: { samplerId: f.text },
    answer: json<SamplerInfo>(),
  }),
  sample: operation("/api/v1/asample", { ...sampleQuestion, pool: "sample", future: sampleFuture }),
  /** Answers with server-sent events, see `SampleEvent`; a connection is held for as long as by a poll. */
  streamSample: endpoint("POST", "/api/v1/stream_sample", {
    ...sampleQuestion,
    fields: { ...sampleQuestion.fields, constraint: f.optional(sampleConstraint) },
    pool: "retrieve",
    answer: json<never>(),
  }),
} as const;

/** A sample request as it may be given; the server fills in what is left out. */
export type SampleRequest = f.GivenMessage<typeof samplingEndpoints.sample.request.shape>;

function checkTargets(targets: TensorData, rows: number | undefined): void {
  const field = "targetPromptLogprobs";
  if (targets.shape.length !== 2 || (rows !== undefined && targets.shape[0] !== rows)) {
    const got = targets.shape.join(", ");
    throw new ValidationError(
      field,
      `${field} must have the shape [${rows ?? "prompt length - 1"}, K], got [${got}]`,
    );
  }
  for (let index = 0; index < targets.data.length; index++) {
    if (targets.data[index]! >= -1) continue;
    const path = `${field}[${index}]`;
    throw new ValidationError(path, `${path} must be a token id, or -1 for none, got ${targets.data[index]}`);
  }
}
