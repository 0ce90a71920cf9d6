import { create, fromBinary, mergeFromBinary } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { messageOf, ValidationError } from "../../errors.js";
import {
  type Chunk,
  type Datum as DatumMessage,
  DatumSchema,
  type ForwardBackwardRequest as ForwardBackwardRequestMessage,
  ForwardBackwardRequestSchema,
  type ProvenanceSpan as ProvenanceSpanMessage,
} from "../gen/tinker_public_pb.js";
import { snakeToCamel } from "../json-keys.js";
import { checkProtoLimits } from "../proto-limits.js";
import { type ImageFormat, ModelInput, type ModelInputChunkLike } from "../sampling/model-input.js";
import { unpackInt32s } from "../tensors/packed.js";
import type { TensorData } from "../tensors/tensor-data.js";
import { tensorFromProto, toSafeInteger } from "../tensors/tensor-proto.js";
import { Datum, type ProvenanceSpan } from "./datum.js";
import type { ForwardBackwardRequest } from "./training-types.js";

/** Parts of one request; datums of ordinary size stay far below. */
const LIMITS = {
  fields: 2 ** 18,
  fieldsOfOne: 2 ** 13,
  textBytes: 4096,
  messages: {
    Chunk: 2 ** 15,
    Tensor: 2 ** 15,
    ProvenanceSpan: 2 ** 16,
    "ForwardBackwardRequest.lossFnConfig": 64,
    "ForwardBackwardRequest.lossFnConfigV2": 64,
  },
};
const MAX_DATUMS = 4096;
/** All datums may come before the model and the number. */
const MAX_PEEKED_FIELDS = 2 * MAX_DATUMS;
const DATA_FIELD = ForwardBackwardRequestSchema.field.data.number;
const OPTIONS = { readUnknownFields: false };

/** Reads a request as a server gets it; what cannot be read is a ValidationError. Datums are not checked further. */
export function decodeForwardBackwardRequest(bytes: Uint8Array): ForwardBackwardRequest {
  const reading = readForwardBackwardRequest(bytes, MAX_DATUMS);
  for (;;) {
    const { done, value } = reading.next();
    if (done) return value;
  }
}

/** Reads a request in short steps, so that a server can do other work between them. Its parts are counted before any is read. */
export function* readForwardBackwardRequest(
  bytes: Uint8Array,
  maxDatums: number,
): Generator<undefined, ForwardBackwardRequest> {
  try {
    const messages = { ...LIMITS.messages, Datum: maxDatums };
    checkProtoLimits(ForwardBackwardRequestSchema, bytes, { ...LIMITS, messages });
    yield;
    const reader = new BinaryReader(bytes);
    const data: Datum[] = [];
    const request = create(ForwardBackwardRequestSchema);
    while (reader.pos < reader.len) {
      const start = reader.pos;
      const [field, wireType] = reader.tag();
      if (field === DATA_FIELD) {
        data.push(readDatum(fromBinary(DatumSchema, reader.bytes(), OPTIONS), `data[${data.length}]`));
      } else {
        reader.skip(wireType);
        mergeFromBinary(ForwardBackwardRequestSchema, request, bytes.subarray(start, reader.pos), OPTIONS);
      }
      yield;
    }
    return withData(request, data);
  } catch (error) {
    if (error instanceof ValidationError) throw error;
    throw new ValidationError("body", `the ForwardBackwardRequest cannot be read: ${messageOf(error)}`);
  }
}

/**
 * The model and the number of a request, as far as they can be read: an answer for one whose data is wrong needs them.
 * Looks at no more fields than an ordinary request has, because a refused one may have millions.
 */
export function peekRequest(bytes: Uint8Array): { modelId?: string; seqId?: number } {
  const found: { modelId?: string; seqId?: number } = {};
  const reader = new BinaryReader(bytes);
  try {
    for (let fields = 0; fields < MAX_PEEKED_FIELDS && reader.pos < reader.len; fields += 1) {
      const [field, wireType] = reader.tag();
      if (field === 1 && wireType === WireType.LengthDelimited) {
        const text = reader.bytes();
        if (text.length <= LIMITS.textBytes) found.modelId = new TextDecoder().decode(text);
      } else if (field === 2 && wireType === WireType.Varint) found.seqId = reader.int32();
      else reader.skip(wireType);
      if (found.modelId !== undefined && found.seqId !== undefined) break;
    }
  } catch {
    // The bytes end or make no sense here: what was found before stands.
  }
  return found;
}

function withData(message: ForwardBackwardRequestMessage, data: readonly Datum[]): ForwardBackwardRequest {
  const lossFnConfig = readConfig(message);
  return {
    modelId: message.modelId,
    seqId: message.seqId,
    data,
    lossFn: message.lossFn,
    forwardOnly: message.forwardOnly,
    ...(lossFnConfig && { lossFnConfig }),
  };
}

function readConfig(message: ForwardBackwardRequestMessage): Record<string, number | string> | undefined {
  const newer = Object.entries(message.lossFnConfigV2).map(([key, { value }]) => [key, value.value] as const);
  const entries = newer.length > 0 ? newer : Object.entries(message.lossFnConfig);
  const config: Record<string, number | string> = {};
  for (const [key, value] of entries) if (value !== undefined) config[snakeToCamel(key)] = value;
  return Object.keys(config).length > 0 ? config : undefined;
}

function readDatum(message: DatumMessage, field: string): Datum {
  const lossFnInputs: Record<string, TensorData> = {};
  for (const [key, tensor] of Object.entries(message.lossFnInputs)) {
    const name = snakeToCamel(key);
    lossFnInputs[name] = tensorFromProto(tensor, `${field}.lossFnInputs.${name}`);
  }
  const path = `${field}.modelInput`;
  const chunks = message.modelInput.map((chunk, index) => readChunk(chunk, `${path}.chunks[${index}]`));
  return Datum.received({
    modelInput: ModelInput.from({ chunks }, path),
    lossFnInputs,
    modelInputSpans: readSpans(message.modelInputSpans),
    lossFnInputSpans: readSpans(message.lossFnInputSpans),
  });
}

function readChunk(message: Chunk, field: string): ModelInputChunkLike {
  const { chunk } = message;
  switch (chunk.case) {
    case "encodedText":
      return { type: "encoded_text", tokens: unpackInt32s(chunk.value.tokens) };
    case "image":
      return {
        type: "image",
        // A copy: a view would keep the whole request in memory for as long as the image exists.
        data: chunk.value.data.slice(),
        format: chunk.value.format as ImageFormat,
        expectedTokens: chunk.value.expectedTokens,
      };
    case "dmel":
      return { type: "dmel", dmel: chunk.value.dmel.slice() };
    case undefined:
      throw new ValidationError(field, `${field} is a chunk of an unknown kind`);
    default:
      throw chunk satisfies never;
  }
}

function readSpans(spans: readonly ProvenanceSpanMessage[]): ProvenanceSpan[] | undefined {
  if (spans.length === 0) return undefined;
  return spans.flatMap(({ source }): ProvenanceSpan[] => {
    if (source.case === undefined) return [];
    const type = source.case === "promptTokens" ? "prompt" : "sampled";
    const { sequenceId, offset, length } = source.value;
    return [{ type, sequenceId, offset: toSafeInteger(offset), length: toSafeInteger(length) }];
  });
}
