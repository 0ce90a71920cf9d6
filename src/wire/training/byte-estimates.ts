import type { ModelInput, ModelInputChunk } from "../sampling/model-input.js";
import type { TensorData } from "../tensors/tensor-data.js";
import type { Datum } from "./datum.js";

const PROTO_BYTES_PER_TOKEN = 4;
const JSON_BYTES_PER_TOKEN = 10;
const SPARSE_INDEX_BYTES = 8;

/** About how many bytes a datum takes in a protobuf request, before compression. */
export function estimateDatumProtoBytes(datum: Datum): number {
  let bytes = 0;
  for (const chunk of datum.modelInput.chunks) bytes += estimateChunkBytes(chunk, PROTO_BYTES_PER_TOKEN);
  for (const tensor of Object.values(datum.lossFnInputs)) bytes += estimateTensorBytes(tensor);
  return bytes;
}

/** About how many bytes a prompt takes in a JSON request. */
export function estimateModelInputBytes(modelInput: ModelInput): number {
  let bytes = 0;
  for (const chunk of modelInput.chunks) bytes += estimateChunkBytes(chunk, JSON_BYTES_PER_TOKEN);
  return bytes;
}

function estimateTensorBytes(tensor: TensorData): number {
  const values = tensor.data.length * (tensor.dtype === "float32" ? 4 : 8);
  const indices = (tensor.sparseCrowIndices?.length ?? 0) + (tensor.sparseColIndices?.length ?? 0);
  return values + indices * SPARSE_INDEX_BYTES;
}

function estimateChunkBytes(chunk: ModelInputChunk, bytesPerToken: number): number {
  if (chunk.type === "encoded_text") return chunk.tokens.length * bytesPerToken;
  if (chunk.type === "image_asset_pointer") return chunk.location.length;
  return chunk.type === "image" ? chunk.data.length : chunk.dmel.length;
}
