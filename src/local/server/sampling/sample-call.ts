import { randomUUID } from "node:crypto";
import type { endpoints } from "../../../wire/endpoints/index.js";
import type { FilledMessage } from "../../../wire/fields/fields.js";
import type {
  PromptAltTokens,
  SampleResponse,
  SamplingParams,
  TopkLogprobs,
} from "../../../wire/sampling/sampling-types.js";
import { TensorData } from "../../../wire/tensors/tensor-data.js";
import type { BaseModelInfo, OnToken, SampleCall, SampleResult, TopTokens } from "../../engine/engine.js";
import { invalid } from "../http/http-error.js";
import type { Limits } from "../http/limits.js";
import type { RequestOwner } from "../http/route.js";
import { textTokens } from "../sessions/base-models.js";
import type { LiveSession } from "../sessions/live-sessions.js";
import type { SampledModel, SampledWeights } from "./sampling-sessions.js";

/** A sample request on its way: the call that the engine gets, without the id and the weights, and whose it is. */
export interface SampleJob {
  readonly requestId: string;
  readonly owner: string;
  /** The row of a trace that shows it. */
  readonly track: string;
  readonly session: LiveSession | undefined;
  readonly weights: SampledWeights;
  readonly call: Omit<SampleCall, "requestId" | "session" | "adapterId">;
  readonly targets?: TensorData | undefined;
  /** Called with each token of each sample once and in order, however often the engine begins again. */
  readonly onToken?: OnToken | undefined;
}

/** A job that belongs to no session. */
export function jobAlone(
  { owner }: RequestOwner,
  { info, weights }: SampledModel,
  call: SampleJob["call"],
  more: Pick<SampleJob, "targets" | "onToken"> = {},
): SampleJob {
  const requestId = `sample-${randomUUID()}`;
  return { requestId, owner, track: info.name, session: undefined, weights, call, ...more };
}

type Request = FilledMessage<typeof endpoints.sample.request.shape>;

/** Checks a sample request against the model and brings it into the engine's form. */
export function toSampleCall(request: Request, model: BaseModelInfo, limits: Limits): SampleJob["call"] {
  const { numSamples, samplingParams, topkPromptLogprobs, promptLogprobsLastN } = request;
  const { topkSampleLogprobs = 0, promptAltTokensK = 0, targetPromptLogprobs: targets } = request;
  const { temperature, topK, topP } = samplingParams;
  const prompt = textTokens(request.prompt, "prompt", model);
  // The last token is not read again, so it needs no place in the context.
  const room = model.maxContextLength + 1 - prompt.length;
  const maxTokens = samplingParams.maxTokens ?? room;
  if (maxTokens > room) {
    throw invalid(
      "samplingParams.maxTokens",
      `is ${maxTokens}, but ${prompt.length} prompt tokens leave room for ${room} of ${model.name}'s ${model.maxContextLength}`,
    );
  }
  if (numSamples > limits.samplesPerRequest)
    throw invalid("numSamples", `must be at most ${limits.samplesPerRequest}, got ${numSamples}`);
  const perPosition = { topkPromptLogprobs, topkSampleLogprobs, promptAltTokensK };
  for (const [field, count] of Object.entries(perPosition)) {
    if (count > limits.tokensPerPosition)
      throw invalid(field, `must be at most ${limits.tokensPerPosition}, got ${count}`);
  }
  // Each of them is an object in memory before it is sent.
  const columns = topkPromptLogprobs + promptAltTokensK + (targets?.shape[1] ?? 0);
  const likeliest = prompt.length * columns + numSamples * maxTokens * topkSampleLogprobs;
  const most = Math.max(limits.likeliestTokens, model.maxContextLength * limits.tokensPerPosition);
  if (likeliest > most) {
    const field = numSamples * topkSampleLogprobs > columns ? "topkSampleLogprobs" : "topkPromptLogprobs";
    throw invalid(
      field,
      `asks for ${likeliest} likeliest tokens over all positions, and one request may have ${most}; ask for fewer, or for fewer samples at a time`,
    );
  }
  return {
    baseModel: model.name,
    prompt,
    numSamples,
    maxTokens,
    temperature,
    topK,
    topP,
    seed: samplingParams.seed,
    ...stopsOf(samplingParams.stop, limits),
    promptLogprobs: request.promptLogprobs ?? false,
    topkPromptLogprobs: Math.min(topkPromptLogprobs, model.vocabSize),
    topkSampleLogprobs: Math.min(topkSampleLogprobs, model.vocabSize),
    promptAltTokens: promptAltTokensK,
    ...(promptLogprobsLastN === undefined ? {} : { promptLogprobsLastN }),
    ...(targets === undefined ? {} : { targetPromptTokens: targetTokens(targets, model, limits) }),
  };
}

/** Absent keeps the model's own end of sequence; texts come on top of it; a list of ids or [] replaces it. */
function stopsOf(
  stop: SamplingParams["stop"],
  limits: Limits,
): Pick<SampleCall, "stopTokens" | "stopStrings"> {
  if (stop === undefined) return { stopStrings: [] };
  const list = typeof stop === "string" ? [stop] : stop;
  if (list.length > limits.stopSequences) {
    throw invalid(
      "samplingParams.stop",
      `has ${list.length} entries; at most ${limits.stopSequences} are supported`,
    );
  }
  return typeof list[0] === "string"
    ? { stopStrings: list as string[] }
    : { stopTokens: list as number[], stopStrings: [] };
}

const NO_TARGET = -1;

function targetTokens(
  targets: TensorData,
  model: BaseModelInfo,
  limits: Limits,
): { ids: Int32Array; columns: number } {
  const field = "targetPromptLogprobs";
  const columns = targets.shape[1]!;
  if (targets.dtype !== "int64") throw invalid(field, `must be int64, got ${targets.dtype}`);
  if (columns < 1 || columns > limits.tokensPerPosition)
    throw invalid(field, `must have 1 to ${limits.tokensPerPosition} columns, got ${columns}`);
  const { data } = targets.toDense({ padValue: NO_TARGET });
  for (const id of data) {
    if (id < model.vocabSize) continue;
    throw invalid(
      field,
      `has token ${id}; ${model.name} has tokens 0 to ${model.vocabSize - 1}, and -1 asks for nothing`,
    );
  }
  return { ids: Int32Array.from(data), columns };
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
    promptAltTokens: result.alt === undefined ? null : toAltTokens(result.alt, prompt.length - 1),
  };
}

function toAltTokens({ tokens, logprobs, columns }: TopTokens, rows: number): PromptAltTokens {
  const shape = [rows, columns];
  return {
    tokens: new TensorData({ dtype: "int64", data: tokens, shape }),
    logprobs: new TensorData({ dtype: "float32", data: logprobs, shape }),
  };
}

const EMPTY_CELL_LOGPROB = -99999;

/** Rows of the engine as they travel. */
export function toTopk(top: TopTokens): TopkLogprobs {
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
