import { ValidationError } from "../../errors.js";
import type { FutureKind } from "../endpoints/endpoint.js";
import { describe } from "../fields/describe.js";
import { toNumbers } from "../json-keys.js";
import { isRecord, protobuf, readAnswer } from "../reading.js";
import { tensorFromJson, tensorToJson } from "../tensors/tensor-json.js";
import { toTokens } from "./model-input.js";
import type { SampledSequence, SampleResponse, TopkLogprobs } from "./sampling-types.js";

/** What becomes of a sample; its result comes as protobuf where the server has it. */
export const sampleFuture: FutureKind<SampleResponse> = {
  requestType: "Sample",
  fromJson: sampleResponseFromJson,
  toJson: sampleResponseToJson,
  fromBytes: async (bytes) => (await protobuf()).decodeSampleResponse(bytes),
};

export function sampleResponseToJson(response: SampleResponse): Record<string, unknown> {
  const { promptAltTokens, targetPromptLogprobs } = response;
  return {
    type: "sample",
    sequences: response.sequences.map((sequence) => ({
      stop_reason: sequence.stopReason,
      ...(sequence.sequenceId !== null && { sequence_id: sequence.sequenceId }),
      tokens: toNumbers(sequence.tokens),
      logprobs: sequence.logprobs && Array.from(sequence.logprobs, finiteOrNull),
      ...(sequence.topkLogprobs && { topk_logprobs: sequence.topkLogprobs }),
    })),
    prompt_logprobs: response.promptLogprobs,
    topk_prompt_logprobs: response.topkPromptLogprobs,
    prompt_cache_hit_tokens: response.promptCacheHitTokens,
    ...(targetPromptLogprobs && { target_prompt_logprobs: tensorToJson(targetPromptLogprobs, "null") }),
    ...(promptAltTokens && {
      prompt_alt_tokens: {
        tokens: tensorToJson(promptAltTokens.tokens, "null"),
        logprobs: tensorToJson(promptAltTokens.logprobs, "null"),
      },
    }),
  };
}

function finiteOrNull(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

export function sampleResponseFromJson(json: unknown): SampleResponse {
  return readAnswer("SampleResponse", () => {
    const body = isRecord(json) ? json : {};
    const {
      sequences,
      prompt_logprobs: promptLogprobs,
      topk_prompt_logprobs: topkPromptLogprobs,
      target_prompt_logprobs: targetPromptLogprobs,
      prompt_cache_hit_tokens: cacheHits,
      prompt_alt_tokens: altTokens,
    } = body as Record<string, unknown>;
    if (!Array.isArray(sequences))
      throw new ValidationError("sequences", `sequences must be a list, got ${describe(sequences)}`);
    const hasAltTokens =
      isRecord(altTokens) && isRecord(altTokens["tokens"]) && isRecord(altTokens["logprobs"]);
    return {
      sequences: sequences.map((sequence, index) => readSequence(sequence, `sequences[${index}]`)),
      promptLogprobs: Array.isArray(promptLogprobs) ? promptLogprobs.map(numberOrNull) : null,
      topkPromptLogprobs: readTopk(topkPromptLogprobs),
      targetPromptLogprobs: isRecord(targetPromptLogprobs)
        ? tensorFromJson(targetPromptLogprobs, "targetPromptLogprobs")
        : null,
      promptCacheHitTokens: typeof cacheHits === "number" ? cacheHits : 0,
      promptAltTokens: hasAltTokens
        ? {
            tokens: tensorFromJson(altTokens["tokens"], "promptAltTokens.tokens"),
            logprobs: tensorFromJson(altTokens["logprobs"], "promptAltTokens.logprobs"),
          }
        : null,
    };
  });
}

function readSequence(json: unknown, field: string): SampledSequence {
  const sequence = isRecord(json) ? json : {};
  const {
    stop_reason: stopReason,
    sequence_id: sequenceId,
    tokens,
    logprobs,
  } = sequence as Record<string, unknown>;
  if (!Array.isArray(tokens)) {
    throw new ValidationError(
      `${field}.tokens`,
      `${field}.tokens must be a list of token ids, got ${describe(tokens)}`,
    );
  }
  return {
    stopReason: typeof stopReason === "string" ? stopReason : "stop",
    sequenceId: typeof sequenceId === "string" ? sequenceId : null,
    tokens: toTokens(tokens, `${field}.tokens`),
    logprobs: Array.isArray(logprobs)
      ? Float32Array.from(logprobs, (logprob: unknown) =>
          typeof logprob === "number" ? logprob : Number.NaN,
        )
      : null,
    topkLogprobs: readTopk(sequence["topk_logprobs"] ?? sequence["topk_sampled_logprobs"]),
  };
}

function numberOrNull(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}

/** Rows of `[token, logprob]` pairs; a row that is no list of pairs counts as not computed. */
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
