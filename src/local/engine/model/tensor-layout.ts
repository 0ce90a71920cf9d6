/** Where named tensors of a file sit inside one flat buffer: linear layers are stored [in, out], some side by side. */
import { EngineInputError } from "../engine.js";
import type { F32, Kernels } from "../kernels/kernels.js";

export interface Piece {
  /** The name in the file. */
  name: string;
  /** The shape in the file: one or two sizes. */
  shape: number[];
  /** First element in the flat buffer. */
  start: number;
  /** Distance between stored rows in the flat buffer. */
  stride: number;
  /** The file has [out, in], the buffer [in, out]. */
  transposed: boolean;
}

export class LayoutBuilder {
  readonly pieces: Piece[] = [];
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** A block of rows x cols, in which `parts` sit side by side as columns, in order; returns where it starts. */
  linear(rows: number, parts: { name: string; cols: number }[]): { start: number; length: number } {
    const stride = parts.reduce((sum, part) => sum + part.cols, 0);
    const start = this.#length;
    let column = 0;
    for (const part of parts) {
      const shape = [part.cols, rows];
      this.pieces.push({ name: part.name, shape, start: start + column, stride, transposed: true });
      column += part.cols;
    }
    return this.#take(rows * stride);
  }

  /** A tensor stored as it is in the file. */
  plain(name: string, shape: number[]): { start: number; length: number } {
    const stride = shape.at(-1)!;
    this.pieces.push({ name, shape, start: this.#length, stride, transposed: false });
    return this.#take(shape.reduce((product, size) => product * size, 1));
  }

  /** Vectors one after another. */
  vectors(parts: { name: string; length: number }[]): { start: number; length: number } {
    const start = this.#length;
    for (const part of parts) this.plain(part.name, [part.length]);
    return { start, length: this.#length - start };
  }

  #take(length: number): { start: number; length: number } {
    const start = this.#length;
    this.#length += length;
    return { start, length };
  }
}

export function writePiece(
  flat: Float32Array,
  piece: Piece,
  tensor: { shape: number[]; data: Float32Array },
): void {
  if (tensor.shape.length !== piece.shape.length || tensor.shape.some((n, i) => n !== piece.shape[i])) {
    throw new EngineInputError(`tensor ${piece.name} has shape [${tensor.shape}], expected [${piece.shape}]`);
  }
  if (!piece.transposed) {
    flat.set(tensor.data, piece.start);
    return;
  }
  const [outer, inner] = piece.shape as [number, number];
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) flat[piece.start + i * piece.stride + o] = tensor.data[o * inner + i]!;
  }
}

export function readPiece(flat: Float32Array, piece: Piece): Float32Array {
  const [outer, inner = 1] = piece.shape as [number, number?];
  if (!piece.transposed) return flat.slice(piece.start, piece.start + outer * inner);
  const out = new Float32Array(outer * inner);
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) out[o * inner + i] = flat[piece.start + i * piece.stride + o]!;
  }
  return out;
}

export function readPieces(kernels: Kernels, flat: F32, pieces: Piece[]): Record<string, Float32Array> {
  const view = kernels.view(flat);
  return Object.fromEntries(pieces.map((piece) => [piece.name, readPiece(view, piece)]));
}
