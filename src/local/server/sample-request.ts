import { z } from "zod";
import type { ModelInput } from "../../wire/model-input.js";
import type { SampleResponse, TopkLogprobs } from "../../wire/sampling-types.js";
import { TensorData } from "../../wire/tensor-data.js";
import type { BaseModelInfo, SampleCall, SampleResult, TopTokens } from "../engine/engine.js";
import { invalid } from "./http-error.js";
import type { Limits } from "./limits.js";
import { textTokens } from "./training-data.js";

const count = z.number().int().nonnegative();

/** Everything of a sample request but its prompt and tensors, which are too long to check one number at a time. */
export const sampleSchema = z.object({
  num_samples: z.number().int().positive().default(1),
  sampling_params: z
    .object({
      max_tokens: z.number().int().positive().nullish(),
      seed: z.number().refine(Number.isInteger, "must be a whole number").nullish(),
      stop: z.union([z.string(), z.array(z.string()), z.array(z.number().int().nonnegative())]).nullish(),
      temperature: z.number().nonnegative().default(1),
      top_k: z.number().int().min(-1).default(-1),
      top_p: z.number().gt(0).max(1).default(1),
    })
    .prefault({}),
  base_model: z.string().nullish(),
  model_path: z.string().nullish(),
  sampling_session_id: z.string().nullish(),
  // Not `int()`, which stops at 2^53: clones number from 10^9 times a random number.
  seq_id: z.number().nonnegative().refine(Number.isInteger, "must be a whole number").nullish(),
  prompt_logprobs: z.boolean().nullish(),
  topk_prompt_logprobs: count.default(0),
  topk_sample_logprobs: count.default(0),
  prompt_alt_tokens_k: count.default(0),
  prompt_logprobs_last_n: z.number().int().positive().nullish(),
  record_stability_info: z.boolean().nullish(),
});

export type SampleFields = z.output<typeof sampleSchema>;

/** Checks a sample request against the model and brings it into the engine's form. */
export function toSampleCall(
  fields: SampleFields,
  prompt: ModelInput,
  targets: TensorData | undefined,
  model: BaseModelInfo,
  limits: Limits,
): Omit<SampleCall, "requestId" | "adapterId"> {
  const tokens = textTokens(prompt, "prompt", model);
  const room = model.maxContextLength - tokens.length;
  const params = fields.sampling_params;
  const maxTokens = params.max_tokens ?? room;
  if (room < 1 || maxTokens > room) {
    throw invalid(
      "sampling_params.max_tokens",
      `is ${params.max_tokens ?? "not given"}, but ${tokens.length} prompt tokens leave room for ${room} of ${model.name}'s ${model.maxContextLength}`,
    );
  }
  if (fields.num_samples > limits.samplesPerRequest) {
    throw invalid("num_samples", `must be at most ${limits.samplesPerRequest}, got ${fields.num_samples}`);
  }
  for (const key of ["topk_prompt_logprobs", "topk_sample_logprobs", "prompt_alt_tokens_k"] as const) {
    if (fields[key] > limits.tokensPerPosition) {
      throw invalid(key, `must be at most ${limits.tokensPerPosition}, got ${fields[key]}`);
    }
  }
  const lastN = fields.prompt_logprobs_last_n ?? undefined;
  if (lastN !== undefined && fields.prompt_logprobs !== true) {
    throw invalid("prompt_logprobs_last_n", "applies to prompt logprobs: set prompt_logprobs too");
  }
  if (lastN !== undefined && lastN > tokens.length - 1) {
    throw invalid(
      "prompt_logprobs_last_n",
      `must be from 1 to ${tokens.length - 1}, the prompt's length less one, got ${lastN}`,
    );
  }
  const { stopTokens, stopStrings } = stopsOf(params.stop ?? undefined, limits);
  const call: Omit<SampleCall, "requestId" | "adapterId"> = {
    baseModel: model.name,
    prompt: tokens,
    numSamples: fields.num_samples,
    maxTokens,
    temperature: params.temperature,
    topK: params.top_k,
    topP: params.top_p,
    seed: params.seed ?? undefined,
    stopTokens,
    stopStrings,
    promptLogprobs: fields.prompt_logprobs ?? false,
    topkPromptLogprobs: Math.min(fields.topk_prompt_logprobs, model.vocabSize),
    topkSampleLogprobs: Math.min(fields.topk_sample_logprobs, model.vocabSize),
    promptAltTokens: fields.prompt_alt_tokens_k,
  };
  if (lastN !== undefined) call.promptLogprobsLastN = lastN;
  if (targets !== undefined) call.targetPromptTokens = targetTokens(targets, tokens.length, model, limits);
  return call;
}

/** Absent keeps the model's own end of sequence; texts come on top of it; a list of ids or [] replaces it. */
function stopsOf(
  stop: string | string[] | number[] | undefined,
  limits: Limits,
): { stopTokens: number[] | undefined; stopStrings: string[] } {
  if (stop === undefined) return { stopTokens: undefined, stopStrings: [] };
  const list = typeof stop === "string" ? [stop] : stop;
  if (list.length > limits.stopSequences) {
    throw invalid(
      "sampling_params.stop",
      `has ${list.length} entries; at most ${limits.stopSequences} are supported`,
    );
  }
  if (list.length === 0) return { stopTokens: [], stopStrings: [] };
  const stopStrings = list.filter((entry) => typeof entry === "string");
  if (stopStrings.length === 0) return { stopTokens: list as number[], stopStrings: [] };
  if (stopStrings.includes(""))
    throw invalid("sampling_params.stop", "has an empty text, which would stop at once");
  return { stopTokens: undefined, stopStrings };
}

const NO_TARGET = -1;

function targetTokens(
  targets: TensorData,
  promptLength: number,
  model: BaseModelInfo,
  limits: Limits,
): { ids: Int32Array; columns: number } {
  const field = "target_prompt_logprobs";
  const [rows, columns] = targets.shape;
  if (targets.dtype !== "int64" || targets.shape.length !== 2 || rows !== promptLength - 1) {
    throw invalid(
      field,
      `must be an int64 tensor of shape [${promptLength - 1}, K], got ${targets.dtype} [${targets.shape.join(", ")}]`,
    );
  }
  if (columns! < 1 || columns! > limits.tokensPerPosition) {
    throw invalid(field, `must have 1 to ${limits.tokensPerPosition} columns, got ${columns}`);
  }
  const ids = Int32Array.from(targets.toDense({ padValue: NO_TARGET }).data);
  for (const id of ids) {
    if (id < NO_TARGET || id >= model.vocabSize) {
      throw invalid(
        field,
        `has token ${id}; ${model.name} has tokens 0 to ${model.vocabSize - 1}, and -1 asks for nothing`,
      );
    }
  }
  return { ids, columns: columns! };
}

/** The engine's result in the form that travels; `targets` is the request's tensor, whose layout the answer keeps. */
export function toSampleResponse(
  result: SampleResult,
  prompt: Int32Array,
  targets: TensorData | undefined,
): SampleResponse {
  return {
    sequences: result.sequences.map((sequence) => ({
      stopReason: sequence.stopReason,
      sequenceId: null,
      tokens: sequence.tokens,
      logprobs: sequence.logprobs,
      topkLogprobs: sequence.topk === undefined ? null : toTopk(sequence.topk),
    })),
    promptLogprobs:
      result.promptLogprobs === undefined
        ? null
        : Array.from(result.promptLogprobs, (value) => (Number.isNaN(value) ? null : value)),
    topkPromptLogprobs: result.topkPrompt === undefined ? null : toTopk(result.topkPrompt),
    targetPromptLogprobs:
      result.targetPrompt === undefined || targets === undefined
        ? null
        : likeTargets(result.targetPrompt, targets),
    promptCacheHitTokens: result.promptCacheHitTokens,
    promptAltTokens:
      result.alt === undefined
        ? null
        : {
            tokens: new TensorData({
              dtype: "int64",
              data: result.alt.tokens,
              shape: [prompt.length - 1, result.alt.columns],
            }),
            logprobs: new TensorData({
              dtype: "float32",
              data: result.alt.logprobs,
              shape: [prompt.length - 1, result.alt.columns],
            }),
          },
  };
}

const EMPTY_CELL_LOGPROB = -99999;

function toTopk(top: TopTokens): TopkLogprobs {
  const rows = top.columns === 0 ? 0 : top.tokens.length / top.columns;
  return Array.from({ length: rows }, (_, row) => {
    const cells: [number, number][] = [];
    for (let column = 0; column < top.columns; column += 1) {
      const index = row * top.columns + column;
      if (top.logprobs[index]! > EMPTY_CELL_LOGPROB) cells.push([top.tokens[index]!, top.logprobs[index]!]);
    }
    return cells.length === 0 ? null : cells;
  });
}

function likeTargets(dense: Float32Array, targets: TensorData): TensorData {
  const { sparseCrowIndices, sparseColIndices, shape } = targets;
  if (sparseCrowIndices === undefined || sparseColIndices === undefined) {
    return new TensorData({ dtype: "float32", data: dense, shape });
  }
  const data = new Float32Array(sparseColIndices.length);
  for (let row = 0; row + 1 < sparseCrowIndices.length; row += 1) {
    for (let at = sparseCrowIndices[row]!; at < sparseCrowIndices[row + 1]!; at += 1) {
      data[at] = dense[row * shape[1]! + sparseColIndices[at]!]!;
    }
  }
  return new TensorData({ dtype: "float32", data, shape, sparseCrowIndices, sparseColIndices });
}
