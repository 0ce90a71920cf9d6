import { fromBinary } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { messageOf, ValidationError } from "../../errors.js";
import {
  type Chunk,
  type Datum as DatumMessage,
  type ForwardBackwardRequest as ForwardBackwardRequestMessage,
  ForwardBackwardRequestSchema,
  type ProvenanceSpan as ProvenanceSpanMessage,
} from "../gen/tinker_public_pb.js";
import { snakeToCamel } from "../json-keys.js";
import { type ImageFormat, ModelInput, type ModelInputChunkLike } from "../sampling/model-input.js";
import { unpackInt32s } from "../tensors/packed.js";
import type { TensorData } from "../tensors/tensor-data.js";
import { tensorFromProto, toSafeInteger } from "../tensors/tensor-proto.js";
import { Datum, type ProvenanceSpan } from "./datum.js";
import type { ForwardBackwardRequest } from "./training-types.js";

/** Reads a request as a server gets it; what cannot be read is a ValidationError. Datums are not checked further. */
export function decodeForwardBackwardRequest(bytes: Uint8Array): ForwardBackwardRequest {
  try {
    return readRequest(fromBinary(ForwardBackwardRequestSchema, bytes));
  } catch (error) {
    if (error instanceof ValidationError) throw error;
    throw new ValidationError("body", `the ForwardBackwardRequest cannot be read: ${messageOf(error)}`);
  }
}

/** The model and the number of a request, as far as they can be read: an answer for one whose data is wrong needs them. */
export function peekRequest(bytes: Uint8Array): { modelId?: string; seqId?: number } {
  const found: { modelId?: string; seqId?: number } = {};
  const reader = new BinaryReader(bytes);
  try {
    while (reader.pos < reader.len && (found.modelId === undefined || found.seqId === undefined)) {
      const [field, wireType] = reader.tag();
      if (field === 1 && wireType === WireType.LengthDelimited) found.modelId = reader.string();
      else if (field === 2 && wireType === WireType.Varint) found.seqId = reader.int32();
      else reader.skip(wireType);
    }
  } catch {
    // The bytes end or make no sense here: what was found before stands.
  }
  return found;
}

function readRequest(message: ForwardBackwardRequestMessage): ForwardBackwardRequest {
  const lossFnConfig = readConfig(message);
  return {
    modelId: message.modelId,
    seqId: message.seqId,
    data: message.data.map((datum, index) => readDatum(datum, `data[${index}]`)),
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
        // A copy: a view would keep the whole request in memory for as long as the image lives.
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
