import { type ImageChunk, ModelInput, type ModelInputChunk } from "../wire/index.js";

/** Tokens, or an image between them. */
export type Piece = readonly number[] | ImageChunk;

const isTokens = (piece: Piece): piece is readonly number[] => Array.isArray(piece);

/** Neighbouring tokens become one chunk. */
export function modelInput(pieces: readonly Piece[]): ModelInput {
  const chunks: (ModelInputChunk | number[])[] = [];
  for (const piece of pieces) {
    const last = chunks.at(-1);
    if (!isTokens(piece)) chunks.push(piece);
    else if (Array.isArray(last)) for (const token of piece) last.push(token);
    else if (piece.length > 0) chunks.push([...piece]);
  }
  return ModelInput.from(
    chunks.map((chunk) =>
      Array.isArray(chunk) ? { type: "encoded_text" as const, tokens: Int32Array.from(chunk) } : chunk,
    ),
  );
}

/** Whether an input begins with another; images are compared by their bytes. */
export function beginsWith(input: ModelInput, beginning: ModelInput): boolean {
  const flat = ({ chunks }: ModelInput) =>
    chunks.flatMap((chunk): readonly (number | Uint8Array)[] => {
      if (chunk.type === "encoded_text") return Array.from(chunk.tokens);
      return chunk.type === "image" ? [chunk.data] : [];
    });
  const whole = flat(input);
  return flat(beginning).every((item, index) => isSame(item, whole[index]));
}

function isSame(item: number | Uint8Array, other: number | Uint8Array | undefined): boolean {
  if (typeof item === "number" || !(other instanceof Uint8Array)) return item === other;
  return item.length === other.length && item.every((byte, index) => byte === other[index]);
}

/** The weight of each piece for each of its positions. */
export function spread(pieces: readonly Piece[], weightOf: readonly number[]): Float32Array {
  const lengths = pieces.map((piece) => (isTokens(piece) ? piece.length : (piece.expectedTokens ?? 0)));
  const weights = new Float32Array(lengths.reduce((sum, length) => sum + length, 0));
  let position = 0;
  for (const [index, length] of lengths.entries()) {
    weights.fill(weightOf[index]!, position, position + length);
    position += length;
  }
  return weights;
}
