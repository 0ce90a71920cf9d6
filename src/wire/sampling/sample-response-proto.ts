import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { TinkerError } from "../../errors.js";
import {
  type SampledSequence as SampledSequenceMessage,
  type SampledSequenceSchema,
  SampleResponseSchema,
  StopReason as StopReasonEnum,
  type Tensor,
  type TopkLogprobs as TopkLogprobsMessage,
  type TopkLogprobsSchema,
} from "../gen/tinker_public_pb.js";
import { readAnswer } from "../reading.js";
import { packWords, unpackFloat32s, unpackInt32s } from "../tensors/packed.js";
import type { TensorData } from "../tensors/tensor-data.js";
import { tensorFromProto, tensorToProto } from "../tensors/tensor-proto.js";
import type { SampledSequence, SampleResponse, StopReason, TopkLogprobs } from "./sampling-types.js";

const EMPTY_CELL_TOKEN = 0;
const EMPTY_CELL_LOGPROB = -99999;

export function decodeSampleResponse(bytes: Uint8Array): SampleResponse {
  return readAnswer("SampleResponse", () => {
    const message = fromBinary(SampleResponseSchema, bytes);
    const { promptLogprobs, promptAltTokens } = message;
    const altTokens = readTensor(promptAltTokens?.tokens, "promptAltTokens.tokens");
    const altLogprobs = readTensor(promptAltTokens?.logprobs, "promptAltTokens.logprobs");
    return {
      sequences: message.sequences.map(readSequence),
      promptLogprobs: promptLogprobs?.length ? readPromptLogprobs(promptLogprobs) : null,
      topkPromptLogprobs: readTopk(message.topkPromptLogprobs),
      targetPromptLogprobs: readTensor(message.targetPromptLogprobs, "targetPromptLogprobs"),
      promptCacheHitTokens: message.promptCacheHitTokens,
      promptAltTokens: altTokens && altLogprobs && { tokens: altTokens, logprobs: altLogprobs },
    };
  });
}

function readTensor(tensor: Tensor | undefined, field: string): TensorData | null {
  return tensor === undefined ? null : tensorFromProto(tensor, field);
}

function readSequence(sequence: SampledSequenceMessage): SampledSequence {
  return {
    stopReason: readStopReason(sequence.stopReason),
    // Not part of the message: it was given when the request was accepted, and the client puts it in.
    sequenceId: null,
    tokens: unpackInt32s(sequence.tokens),
    logprobs: sequence.logprobs?.length ? unpackFloat32s(sequence.logprobs) : null,
    topkLogprobs: readTopk(sequence.topkSampledLogprobs),
  };
}

function readStopReason(reason: StopReasonEnum): StopReason {
  if (reason === StopReasonEnum.STOP) return "stop";
  return reason === StopReasonEnum.LENGTH ? "length" : `stop_reason_${reason}`;
}

function readPromptLogprobs(bytes: Uint8Array): (number | null)[] {
  return Array.from(unpackFloat32s(bytes), (logprob) => (Number.isNaN(logprob) ? null : logprob));
}

function readTopk(message: TopkLogprobsMessage | undefined): TopkLogprobs | null {
  if (message === undefined || message.k === 0 || message.length === 0) return null;
  const { k, length } = message;
  const tokenIds = unpackInt32s(message.tokenIds);
  const logprobs = unpackFloat32s(message.logprobs);
  if (tokenIds.length !== k * length || logprobs.length !== k * length) {
    throw new TinkerError(
      `top-k logprobs of ${length} x ${k} have ${tokenIds.length} tokens, ${logprobs.length} logprobs`,
    );
  }
  const isEmpty = (cell: number) =>
    tokenIds[cell] === EMPTY_CELL_TOKEN && logprobs[cell] === EMPTY_CELL_LOGPROB;
  return Array.from({ length }, (_, row) => {
    const begin = row * k;
    if (isEmpty(begin)) return null;
    let filled = k;
    while (isEmpty(begin + filled - 1)) filled--;
    return Array.from({ length: filled }, (_, column): [number, number] => {
      return [tokenIds[begin + column]!, logprobs[begin + column]!];
    });
  });
}

export function encodeSampleResponse(response: SampleResponse): Uint8Array {
  const { promptLogprobs, topkPromptLogprobs, targetPromptLogprobs, promptAltTokens } = response;
  const message = create(SampleResponseSchema, {
    sequences: response.sequences.map(writeSequence),
    promptCacheHitTokens: response.promptCacheHitTokens,
    ...(promptLogprobs && {
      promptLogprobs: packWords(Float32Array.from(promptLogprobs, (logprob) => logprob ?? Number.NaN)),
    }),
    ...(topkPromptLogprobs && { topkPromptLogprobs: writeTopk(topkPromptLogprobs) }),
    ...(targetPromptLogprobs && { targetPromptLogprobs: tensorToProto(targetPromptLogprobs) }),
    ...(promptAltTokens && {
      promptAltTokens: {
        tokens: tensorToProto(promptAltTokens.tokens),
        logprobs: tensorToProto(promptAltTokens.logprobs),
      },
    }),
  });
  return toBinary(SampleResponseSchema, message);
}

function writeSequence(sequence: SampledSequence): MessageInitShape<typeof SampledSequenceSchema> {
  return {
    // The wire knows two reasons; every other end is one the model chose.
    stopReason: sequence.stopReason === "length" ? StopReasonEnum.LENGTH : StopReasonEnum.STOP,
    tokens: packWords(sequence.tokens),
    ...(sequence.logprobs && { logprobs: packWords(sequence.logprobs) }),
    ...(sequence.topkLogprobs && { topkSampledLogprobs: writeTopk(sequence.topkLogprobs) }),
  };
}

function writeTopk(rows: TopkLogprobs): MessageInitShape<typeof TopkLogprobsSchema> {
  // One column at least: a matrix without columns would read as one that was not asked for.
  const k = rows.reduce((most, row) => Math.max(most, row?.length ?? 0), 1);
  const tokenIds = new Int32Array(rows.length * k).fill(EMPTY_CELL_TOKEN);
  const logprobs = new Float32Array(rows.length * k).fill(EMPTY_CELL_LOGPROB);
  for (const [rowIndex, row] of rows.entries()) {
    for (const [column, [tokenId, logprob]] of (row ?? []).entries()) {
      tokenIds[rowIndex * k + column] = tokenId;
      logprobs[rowIndex * k + column] = logprob;
    }
  }
  return { tokenIds: packWords(tokenIds), logprobs: packWords(logprobs), k, length: rows.length };
}
