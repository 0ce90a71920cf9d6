import { ValidationError } from "../../errors.js";
import { bytesToBase64 } from "../base64.js";
import { checkObject, subfield } from "../fields/check-keys.js";
import { describe } from "../fields/describe.js";
import type { Field } from "../fields/fields.js";
import { fromWireJson, toNumbers } from "../json-keys.js";
import { isRecord } from "../reading.js";
import {
  ModelInput,
  type ModelInputChunk,
  type ModelInputChunkLike,
  type ModelInputLike,
} from "./model-input.js";

/** A prompt or a model input as JSON carries it. */
export const modelInputField: Field<ModelInput> = {
  presence: "required",
  check: (given, path) => ModelInput.from(given as ModelInputLike, path),
  read: modelInputFromJson,
  write: modelInputToJson,
};

export function modelInputToJson(modelInput: ModelInput): { chunks: Record<string, unknown>[] } {
  return { chunks: modelInput.chunks.map(chunkToJson) };
}

function chunkToJson(chunk: ModelInputChunk): Record<string, unknown> {
  switch (chunk.type) {
    case "encoded_text":
      return { type: chunk.type, tokens: toNumbers(chunk.tokens) };
    case "image":
      return {
        type: chunk.type,
        data: bytesToBase64(chunk.data),
        format: chunk.format,
        ...expectedTokens(chunk),
      };
    case "image_asset_pointer":
      return { type: chunk.type, format: chunk.format, location: chunk.location, ...expectedTokens(chunk) };
    case "dmel":
      return { type: chunk.type, dmel: bytesToBase64(chunk.dmel) };
    default:
      throw chunk satisfies never;
  }
}

function expectedTokens(chunk: { readonly expectedTokens?: number | undefined }): {
  expected_tokens?: number;
} {
  return chunk.expectedTokens === undefined ? {} : { expected_tokens: chunk.expectedTokens };
}

function modelInputFromJson(json: unknown, field: string): ModelInput {
  checkObject(json, field);
  if (!Array.isArray(json["chunks"])) {
    const path = subfield(field, "chunks");
    throw new ValidationError(path, `${path} must be a list of chunks, got ${describe(json["chunks"])}`);
  }
  const chunks = json["chunks"].map((chunk: unknown): ModelInputChunkLike => {
    if (!isRecord(chunk)) return chunk as ModelInputChunkLike;
    // The oldest clients leave the type of a text chunk out.
    const type = chunk["type"] ?? ("tokens" in chunk ? "encoded_text" : undefined);
    // Tokens are long and hold no names: they are carried past the conversion.
    const { tokens, ...rest } = chunk;
    const converted = fromWireJson<Record<string, unknown>>({ ...rest, type });
    return (tokens === undefined ? converted : { ...converted, tokens }) as unknown as ModelInputChunkLike;
  });
  return ModelInput.from({ chunks }, field);
}
