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

/** A token, or what else stands between tokens. */
export type Item = number | Exclude<ModelInputChunk, { type: "encoded_text" }>;

/** An input as one list. */
export function itemsOf({ chunks }: ModelInput): Item[] {
  const items: Item[] = [];
  for (const chunk of chunks) {
    if (chunk.type !== "encoded_text") items.push(chunk);
    else for (let index = 0; index < chunk.tokens.length; index += 1) items.push(chunk.tokens[index]!);
  }
  return items;
}

/** The input that a list of items is. */
export function inputOf(items: readonly Item[]): ModelInput {
  const chunks: (Exclude<Item, number> | { readonly type: "encoded_text"; readonly tokens: Int32Array })[] =
    [];
  for (let start = 0, end = 0; start < items.length; start = end) {
    const first = items[start]!;
    if (typeof first !== "number") {
      chunks.push(first);
      end = start + 1;
      continue;
    }
    while (typeof items[end] === "number") end += 1;
    chunks.push({ type: "encoded_text", tokens: Int32Array.from(items.slice(start, end) as number[]) });
  }
  return ModelInput.from(chunks);
}

/** Whether an input begins with another; images are compared by their bytes. */
export function beginsWith(input: ModelInput, beginning: ModelInput): boolean {
  const expected = itemsOf(beginning);
  return commonLength(itemsOf(input), expected) === expected.length;
}

/** Number of equal items at the beginning of two lists. */
export function commonLength(items: readonly Item[], others: readonly Item[]): number {
  const shorter = Math.min(items.length, others.length);
  for (let index = 0; index < shorter; index += 1) {
    if (!isSame(items[index]!, others[index]!)) return index;
  }
  return shorter;
}

function isSame(item: Item, other: Item): boolean {
  if (item === other) return true;
  if (typeof item === "number" || typeof other === "number") return false;
  if (item.type !== "image" || other.type !== "image" || item.data.length !== other.data.length) return false;
  return item.data.every((byte, index) => byte === other.data[index]);
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
