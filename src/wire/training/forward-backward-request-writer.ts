import { ValidationError } from "../../errors.js";
import { camelToSnake } from "../json-keys.js";
import { ProtoWriter } from "../proto-writer.js";
import type { ImageAssetPointerChunk, ModelInputChunk } from "../sampling/model-input.js";
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
  const { modelId, seqId, data, lossFn, lossFnConfig = {}, forwardOnly } = request;
  if ((seqId | 0) !== seqId || seqId < 0) {
    throw new ValidationError("seqId", `seqId must be an integer from 0 to 2147483647, got ${seqId}`);
  }
  return ProtoWriter.encode((writer) => {
    writer.text(1, modelId);
    if (seqId !== 0) writer.varint(2, seqId);
    for (const [index, datum] of data.entries()) writer.message(3, () => writeDatum(writer, datum, index));
    writer.text(4, lossFn);
    // Numbers go into both maps: servers that know the newer one prefer it, the others read the older one.
    for (const [key, value] of Object.entries(lossFnConfig))
      if (typeof value === "number") writeEntry(writer, 5, key, () => writer.double(2, value));
    if (forwardOnly) writer.varint(6, 1);
    for (const [key, value] of Object.entries(lossFnConfig))
      writeEntry(writer, 7, key, () => writer.message(2, () => writeConfigValue(writer, value)));
  });
}

function writeEntry(writer: ProtoWriter, field: number, key: string, writeValue: () => void): void {
  writer.message(field, () => {
    writer.text(1, camelToSnake(key));
    writeValue();
  });
}

function writeConfigValue(writer: ProtoWriter, value: number | string): void {
  if (typeof value === "number") writer.double(1, value);
  else if (value === "") writer.empty(2);
  else writer.text(2, value);
}

function writeDatum(writer: ProtoWriter, datum: Datum, place: number): void {
  const { modelInput, lossFnInputs, modelInputSpans = [], lossFnInputSpans = [] } = datum;
  for (const [index, chunk] of modelInput.chunks.entries()) {
    if (chunk.type === "image_asset_pointer") {
      const path = `data[${place}].modelInput.chunks[${index}]`;
      throw new ValidationError(
        path,
        `${path} is an image_asset_pointer, which training requests cannot carry; give the image's bytes instead`,
      );
    }
    writer.message(1, () => writeChunk(writer, chunk));
  }
  for (const [name, tensor] of Object.entries(lossFnInputs))
    writeEntry(writer, 2, name, () => writer.message(2, () => writeTensor(writer, tensor)));
  for (const span of modelInputSpans) writer.message(3, () => writeSpan(writer, span));
  for (const span of lossFnInputSpans) writer.message(4, () => writeSpan(writer, span));
}

function writeChunk(writer: ProtoWriter, chunk: Exclude<ModelInputChunk, ImageAssetPointerChunk>): void {
  switch (chunk.type) {
    case "encoded_text":
      writer.message(1, () => writer.words(1, chunk.tokens));
      return;
    case "image":
      writer.message(2, () => {
        writer.payload(1, chunk.data);
        writer.text(2, chunk.format);
        if (chunk.expectedTokens !== undefined) writer.varint(3, chunk.expectedTokens);
      });
      return;
    case "dmel":
      writer.message(3, () => writer.payload(1, chunk.dmel));
      return;
    default:
      throw chunk satisfies never;
  }
}

function writeTensor(writer: ProtoWriter, tensor: TensorData): void {
  const { data, dtype, shape, sparseCrowIndices, sparseColIndices } = tensor;
  if (sparseCrowIndices !== undefined && sparseColIndices !== undefined) {
    writer.message(2, () => {
      writer.tensorValues(1, data);
      writer.int64s(2, sparseCrowIndices);
      writer.int64s(3, sparseColIndices);
    });
  } else if (data.length === 0) {
    writer.empty(1);
  } else {
    writer.tensorValues(1, data);
  }
  writer.varint(3, dtype === "float32" ? DTYPE_FLOAT32 : DTYPE_INT64);
  writer.varints(4, shape);
}

function writeSpan(writer: ProtoWriter, span: ProvenanceSpan): void {
  writer.message(span.type === "prompt" ? 1 : 2, () => {
    writer.text(1, span.sequenceId);
    if (span.offset) writer.varint(2, span.offset);
    if (span.length > 0) writer.varint(3, span.length);
  });
}
