import type { ModelInputChunk } from "../../src/wire/index.js";

/** Text, or an image of so many tokens, as both sides read it from JSON. */
export type Chunk =
  | { readonly tokens: readonly number[] }
  | { readonly length: number; readonly image?: string };

export const lengthOf = (chunk: Chunk): number => ("tokens" in chunk ? chunk.tokens.length : chunk.length);

export function modelChunk(chunk: Chunk): ModelInputChunk {
  if ("tokens" in chunk) return { type: "encoded_text", tokens: Int32Array.from(chunk.tokens) };
  const data = new TextEncoder().encode(chunk.image ?? "image");
  return { type: "image", data, format: "jpeg", expectedTokens: chunk.length };
}

export function plainChunk(chunk: ModelInputChunk): Chunk {
  return chunk.type === "encoded_text"
    ? { tokens: [...chunk.tokens].map(Number) }
    : { length: "expectedTokens" in chunk ? (chunk.expectedTokens ?? 0) : 0 };
}
