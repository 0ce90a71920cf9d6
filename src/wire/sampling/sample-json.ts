import type { FutureKind } from "../endpoints/endpoint.js";
import { customField, list } from "../fields/fields.js";
import { convertKeys, toWireJson } from "../json-keys.js";
import { isRecord, protobuf, readAnswer } from "../reading.js";
import type { TensorData } from "../tensors/tensor-data.js";
import { tensorFromJson } from "../tensors/tensor-json.js";
import { toTokens } from "./model-input.js";
import type { SampledSequence, SampleResponse, TopkLogprobs } from "./sampling-types.js";

/** The result of a sample, as protobuf if the server supports it. */
export const sampleFuture: FutureKind<SampleResponse> = {
  requestType: "Sample",
  fromJson: sampleResponseFromJson,
  toJson: sampleResponseToJson,
  fromBytes: async (bytes) => (await protobuf()).decodeSampleResponse(bytes),
};

/** Newer fields go only where there is something in them, so that older clients can be served. */
function sampleResponseToJson(response: SampleResponse): unknown {
  return toWireJson({
    type: "sample",
    ...response,
    sequences: response.sequences.map((sequence) => ({
      ...sequence,
      sequenceId: sequence.sequenceId ?? undefined,
      topkLogprobs: sequence.topkLogprobs ?? undefined,
    })),
    targetPromptLogprobs: response.targetPromptLogprobs ?? undefined,
    promptAltTokens: response.promptAltTokens ?? undefined,
  });
}

/** Servers differ in what they leave out: what is not there, or not of the right kind, is null. */
function sampleResponseFromJson(json: unknown): SampleResponse {
  return readAnswer("SampleResponse", () => {
    const body = camelKeys(json);
    const { tokens, logprobs } = camelKeys(body["promptAltTokens"]);
    const altTokens = readTensor(tokens, "promptAltTokens.tokens");
    const altLogprobs = readTensor(logprobs, "promptAltTokens.logprobs");
    return {
      sequences: list(customField(readSequence)).read(body["sequences"], "sequences"),
      promptLogprobs: Array.isArray(body["promptLogprobs"]) ? body["promptLogprobs"].map(numberOrNull) : null,
      topkPromptLogprobs: readTopk(body["topkPromptLogprobs"]),
      targetPromptLogprobs: readTensor(body["targetPromptLogprobs"], "targetPromptLogprobs"),
      promptCacheHitTokens: numberOrNull(body["promptCacheHitTokens"]) ?? 0,
      promptAltTokens: altTokens && altLogprobs && { tokens: altTokens, logprobs: altLogprobs },
    };
  });
}

function readSequence(json: unknown, path: string): SampledSequence {
  const { stopReason, sequenceId, tokens, logprobs, ...rest } = camelKeys(json);
  return {
    stopReason: typeof stopReason === "string" ? stopReason : "stop",
    sequenceId: typeof sequenceId === "string" ? sequenceId : null,
    tokens: toTokens(tokens, `${path}.tokens`),
    logprobs: Array.isArray(logprobs)
      ? Float32Array.from(logprobs, (logprob) => numberOrNull(logprob) ?? Number.NaN)
      : null,
    topkLogprobs: readTopk(rest["topkLogprobs"] ?? rest["topkSampledLogprobs"]),
  };
}

function camelKeys(json: unknown): Record<string, unknown> {
  return isRecord(json) ? convertKeys(json, "camel") : {};
}

function readTensor(json: unknown, path: string): TensorData | null {
  return isRecord(json) ? tensorFromJson(json, path) : null;
}

function numberOrNull(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}

/** Rows of `[token, logprob]` pairs; a row that is not a list of pairs counts as not computed. */
function readTopk(json: unknown): TopkLogprobs | null {
  if (!Array.isArray(json)) return null;
  return json.map((row: unknown) => {
    if (!Array.isArray(row)) return null;
    return row.flatMap((pair: unknown): [number, number][] => {
      const [tokenId, logprob] = Array.isArray(pair) ? pair : [];
      return typeof tokenId === "number" && typeof logprob === "number" ? [[tokenId, logprob]] : [];
    });
  });
}
