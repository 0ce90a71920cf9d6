/** The hot messages as plain JSON, the way both sides describe them to each other: packed numbers as base64. */
import type {
  Datum,
  ForwardBackwardOutput,
  ForwardBackwardRequest,
  ModelInputChunk,
  ProvenanceSpan,
  SampleResponse,
  TensorData,
  TopkLogprobs,
} from "../../src/wire/index.js";
import { camelToSnake } from "../../src/wire/json-keys.js";

const base64 = (view: ArrayBufferView): string =>
  Buffer.from(view.buffer, view.byteOffset, view.byteLength).toString("base64");

/** JSON has no NaN and no infinities. */
function plainNumber(value: number): number | string {
  if (Number.isFinite(value)) return value;
  return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

export function plainTensor(tensor: TensorData) {
  const values =
    tensor.dtype === "float32" ? tensor.data : BigInt64Array.from(tensor.data as Int32Array, BigInt);
  return {
    dtype: tensor.dtype,
    shape: [...tensor.shape],
    data: base64(values),
    ...(tensor.sparseCrowIndices && { crow: Array.from(tensor.sparseCrowIndices) }),
    ...(tensor.sparseColIndices && { col: Array.from(tensor.sparseColIndices) }),
  };
}

function plainTensors(tensors: Readonly<Record<string, TensorData>>) {
  return Object.fromEntries(
    Object.entries(tensors)
      .map(([key, tensor]) => [camelToSnake(key), plainTensor(tensor)] as const)
      .sort(([left], [right]) => (left < right ? -1 : 1)),
  );
}

function plainChunk(chunk: ModelInputChunk) {
  switch (chunk.type) {
    case "encoded_text":
      return { type: chunk.type, tokens: Array.from(chunk.tokens) };
    case "image":
      return {
        type: chunk.type,
        data: base64(chunk.data),
        format: chunk.format,
        expected_tokens: chunk.expectedTokens,
      };
    case "image_asset_pointer":
      return { type: chunk.type, format: chunk.format, location: chunk.location };
    case "dmel":
      return { type: chunk.type, dmel: base64(chunk.dmel) };
    default:
      throw chunk satisfies never;
  }
}

function plainSpan(span: ProvenanceSpan) {
  return { type: span.type, sequence_id: span.sequenceId, offset: span.offset ?? 0, length: span.length };
}

function plainDatum(datum: Datum) {
  return {
    chunks: datum.modelInput.chunks.map(plainChunk),
    inputs: plainTensors(datum.lossFnInputs),
    model_input_spans: datum.modelInputSpans?.map(plainSpan),
    loss_fn_input_spans: datum.lossFnInputSpans?.map(plainSpan),
  };
}

export function plainRequest(request: ForwardBackwardRequest) {
  const config = Object.entries(request.lossFnConfig ?? {}).map(([key, value]) => [camelToSnake(key), value]);
  return {
    model_id: request.modelId,
    seq_id: request.seqId,
    loss_fn: request.lossFn,
    config: config.length === 0 ? undefined : Object.fromEntries(config),
    forward_only: request.forwardOnly,
    data: request.data.map(plainDatum),
  };
}

function plainTopk(rows: TopkLogprobs | null) {
  return rows?.map((row) => row?.map(([token, logprob]) => [token, plainNumber(logprob)]) ?? null) ?? null;
}

export function plainSample(response: SampleResponse) {
  const { promptAltTokens, targetPromptLogprobs } = response;
  return {
    sequences: response.sequences.map((sequence) => ({
      stop_reason: sequence.stopReason,
      tokens: Array.from(sequence.tokens),
      logprobs: sequence.logprobs && base64(sequence.logprobs),
      topk: plainTopk(sequence.topkLogprobs),
    })),
    prompt_logprobs: response.promptLogprobs?.map((value) => value && plainNumber(value)) ?? null,
    topk: plainTopk(response.topkPromptLogprobs),
    target: targetPromptLogprobs && plainTensor(targetPromptLogprobs),
    alternatives: promptAltTokens && [
      plainTensor(promptAltTokens.tokens),
      plainTensor(promptAltTokens.logprobs),
    ],
    cache_hits: response.promptCacheHitTokens,
  };
}

export function plainOutput(output: ForwardBackwardOutput) {
  const metrics = Object.entries(output.metrics).sort(([left], [right]) => (left < right ? -1 : 1));
  return {
    type: output.lossFnOutputType,
    outputs: output.lossFnOutputs.map((record) => plainTensors(record)),
    metrics: Object.fromEntries(metrics.map(([key, value]) => [key, plainNumber(value)])),
  };
}
