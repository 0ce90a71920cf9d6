import { ValidationError } from "../errors.js";
import { describe } from "./describe.js";
import { fromWireJson, toNumbers, toWireJson } from "./json-keys.js";
import { toTokens } from "./model-input.js";
import { modelInputFromJson, modelInputToJson } from "./model-input-json.js";
import { isRecord, readAnswer } from "./reading.js";
import type { SampledSequence, SampleRequest, SampleResponse, TopkLogprobs } from "./sampling-types.js";
import { tensorFromJson, tensorToJson } from "./tensor-json.js";

/** Newer fields are sent only when they ask for something, so that servers which do not know them can be used. */
export function sampleRequestToJson(request: SampleRequest): Record<string, unknown> {
  const { prompt, samplingParams, targetPromptLogprobs, topkSampleLogprobs, promptAltTokensK, ...rest } =
    request;
  return {
    ...(toWireJson({
      numSamples: 1,
      topkPromptLogprobs: 0,
      ...rest,
      topkSampleLogprobs: topkSampleLogprobs || undefined,
      promptAltTokensK: promptAltTokensK || undefined,
    }) as Record<string, unknown>),
    prompt: modelInputToJson(prompt),
    sampling_params: toWireJson({ temperature: 1, topK: -1, topP: 1, ...definedOnly(samplingParams ?? {}) }),
    ...(targetPromptLogprobs && {
      target_prompt_logprobs: tensorToJson(targetPromptLogprobs, "refuse", "targetPromptLogprobs"),
    }),
    type: "sample",
  };
}

function definedOnly<T extends object>(value: T): Partial<T> {
  return Object.fromEntries(Object.entries(value).filter(([, item]) => item !== undefined)) as Partial<T>;
}

/** Reads a body as a server gets it; prompt and tensors are checked, the rest is taken as it is. */
export function sampleRequestFromJson(json: unknown): SampleRequest {
  if (!isRecord(json)) throw new ValidationError("body", `body must be an object, got ${describe(json)}`);
  const { prompt, target_prompt_logprobs: targets, type: _, ...rest } = json as Record<string, unknown>;
  const given = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== null));
  return {
    ...fromWireJson<Omit<SampleRequest, "prompt">>(given),
    prompt: modelInputFromJson(prompt, "prompt"),
    ...(targets !== undefined &&
      targets !== null && { targetPromptLogprobs: tensorFromJson(targets, "targetPromptLogprobs") }),
  };
}

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
