import { ValidationError } from "../../errors.js";
import { camelToSnake } from "../json-keys.js";
import { ProtoWriter } from "../proto-writer.js";
import type { DmelChunk, EncodedTextChunk, ImageChunk, ModelInputChunk } from "../sampling/model-input.js";
import type { TensorData } from "../tensors/tensor-data.js";
import type { Datum, ProvenanceSpan } from "./datum.js";
import type { ForwardBackwardRequest } from "./training-types.js";

// The one message that is large on the way out, and that every client writes: the protobuf library would have to be
// loaded for it, and copies every nested message once per level.

// Values of the DType enum, which stands in the generated code.
const DTYPE_FLOAT32 = 1;
const DTYPE_INT64 = 2;

/** The bytes of a pass over a batch. */
export function encodeForwardBackwardRequest(request: ForwardBackwardRequest): Uint8Array {
  const { seqId, data } = request;
  if ((seqId | 0) !== seqId || seqId < 0) {
    throw new ValidationError("seqId", `seqId must be an integer from 0 to 2147483647, got ${seqId}`);
  }
  for (const [index, datum] of data.entries()) checkChunks(datum, index);
  return ProtoWriter.encode(writeRequest, request);
}

function checkChunks({ modelInput }: Datum, place: number): void {
  const index = modelInput.chunks.findIndex(({ type }) => type === "image_asset_pointer");
  if (index < 0) return;
  const path = `data[${place}].modelInput.chunks[${index}]`;
  throw new ValidationError(
    path,
    `${path} is an image_asset_pointer, which training requests cannot carry; give the image's bytes instead`,
  );
}

type Entry<T> = readonly [name: string, value: T];

function writeRequest(
  writer: ProtoWriter,
  { modelId, seqId, data, lossFn, lossFnConfig = {}, forwardOnly }: ForwardBackwardRequest,
): void {
  writer.text(1, modelId);
  if (seqId !== 0) writer.varint(2, seqId);
  for (const datum of data) writer.message(3, writeDatum, datum);
  writer.text(4, lossFn);
  const config = Object.entries(lossFnConfig);
  // Numbers go into both maps: servers that know the newer one prefer it, the others read the older one.
  for (const entry of config)
    if (typeof entry[1] === "number") writer.message(5, writeNumber, entry as Entry<number>);
  if (forwardOnly) writer.varint(6, 1);
  for (const entry of config) writer.message(7, writeConfig, entry);
}

function writeNumber(writer: ProtoWriter, [key, value]: Entry<number>): void {
  writer.text(1, camelToSnake(key));
  writer.double(2, value);
}

function writeConfig(writer: ProtoWriter, [key, value]: Entry<number | string>): void {
  writer.text(1, camelToSnake(key));
  writer.message(2, writeConfigValue, value);
}

function writeConfigValue(writer: ProtoWriter, value: number | string): void {
  if (typeof value === "number") writer.double(1, value);
  else if (value === "") writer.empty(2);
  else writer.text(2, value);
}

function writeDatum(writer: ProtoWriter, datum: Datum): void {
  const { modelInput, lossFnInputs, modelInputSpans = [], lossFnInputSpans = [] } = datum;
  for (const chunk of modelInput.chunks) writer.message(1, writeChunk, chunk);
  for (const entry of Object.entries(lossFnInputs)) writer.message(2, writeInput, entry);
  for (const span of modelInputSpans) writer.message(3, writeSpan, span);
  for (const span of lossFnInputSpans) writer.message(4, writeSpan, span);
}

function writeChunk(writer: ProtoWriter, chunk: ModelInputChunk): void {
  switch (chunk.type) {
    case "encoded_text":
      writer.message(1, writeText, chunk);
      return;
    case "image":
      writer.message(2, writeImage, chunk);
      return;
    case "dmel":
      writer.message(3, writeDmel, chunk);
      return;
    case "image_asset_pointer":
      // Refused by checkChunks.
      return;
    default:
      throw chunk satisfies never;
  }
}

function writeText(writer: ProtoWriter, { tokens }: EncodedTextChunk): void {
  writer.words(1, tokens);
}

function writeImage(writer: ProtoWriter, { data, format, expectedTokens }: ImageChunk): void {
  writer.payload(1, data);
  writer.text(2, format);
  if (expectedTokens !== undefined) writer.varint(3, expectedTokens);
}

function writeDmel(writer: ProtoWriter, { dmel }: DmelChunk): void {
  writer.payload(1, dmel);
}

function writeInput(writer: ProtoWriter, [name, tensor]: Entry<TensorData>): void {
  writer.text(1, camelToSnake(name));
  writer.message(2, writeTensor, tensor);
}

function writeTensor(writer: ProtoWriter, tensor: TensorData): void {
  const { data, dtype, shape, sparseCrowIndices, sparseColIndices } = tensor;
  const isSparse = sparseCrowIndices !== undefined && sparseColIndices !== undefined;
  if (isSparse) writer.message(2, writeSparse, tensor);
  else if (data.length === 0) writer.empty(1);
  else writer.tensorValues(1, data);
  writer.varint(3, dtype === "float32" ? DTYPE_FLOAT32 : DTYPE_INT64);
  writer.varints(4, shape);
}

function writeSparse(writer: ProtoWriter, tensor: TensorData): void {
  writer.tensorValues(1, tensor.data);
  writer.int64s(2, tensor.sparseCrowIndices!);
  writer.int64s(3, tensor.sparseColIndices!);
}

function writeSpan(writer: ProtoWriter, span: ProvenanceSpan): void {
  writer.message(span.type === "prompt" ? 1 : 2, writeRun, span);
}

function writeRun(writer: ProtoWriter, { sequenceId, offset, length }: ProvenanceSpan): void {
  writer.text(1, sequenceId);
  if (offset) writer.varint(2, offset);
  if (length > 0) writer.varint(3, length);
}
