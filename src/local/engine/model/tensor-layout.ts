import { EngineInputError } from "../engine.js";
import type { F32, Kernels } from "../kernels/kernels.js";

/** Where a named tensor of a file sits inside one flat buffer: linear layers are stored [in, out], some side by side. */
export interface TensorPlace {
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

/** A tensor as a file holds it. */
export interface FileTensor {
  shape: number[];
  data: Float32Array;
}

/** Part of a flat buffer. */
export interface Range {
  start: number;
  length: number;
}

/** Gives every tensor its place in a flat buffer, one after another. */
export class LayoutBuilder {
  readonly places: TensorPlace[] = [];
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** A block of rows x cols, in which `parts` sit side by side as columns, in order; returns where it is. */
  linear(rows: number, parts: { name: string; cols: number }[]): Range {
    const stride = parts.reduce((sum, part) => sum + part.cols, 0);
    const start = this.#length;
    let column = 0;
    for (const part of parts) {
      const shape = [part.cols, rows];
      this.places.push({ name: part.name, shape, start: start + column, stride, transposed: true });
      column += part.cols;
    }
    return this.#take(rows * stride);
  }

  /** A tensor stored as it is in the file. */
  plain(name: string, shape: number[]): Range {
    const stride = shape.at(-1)!;
    this.places.push({ name, shape, start: this.#length, stride, transposed: false });
    return this.#take(sizeOf({ shape }));
  }

  /** Vectors one after another. */
  vectors(parts: { name: string; length: number }[]): Range {
    const start = this.#length;
    for (const part of parts) this.plain(part.name, [part.length]);
    return { start, length: this.#length - start };
  }

  #take(length: number): Range {
    const start = this.#length;
    this.#length += length;
    return { start, length };
  }
}

/** Values of a tensor. */
export const sizeOf = ({ shape }: { shape: number[] }) => shape.reduce((product, size) => product * size, 1);

/** Puts tensors of a file into the flat buffer, each as it comes. */
export function writeTensors(
  kernels: Kernels,
  flat: F32,
  tensors: Iterable<readonly [TensorPlace, FileTensor]>,
): void {
  for (const [place, tensor] of tensors) writeTensor(kernels.view(flat), place, tensor);
}

function writeTensor(flat: Float32Array, place: TensorPlace, tensor: FileTensor): void {
  if (tensor.shape.length !== place.shape.length || tensor.shape.some((n, i) => n !== place.shape[i])) {
    throw new EngineInputError(`tensor ${place.name} has shape [${tensor.shape}], expected [${place.shape}]`);
  }
  if (!place.transposed) {
    flat.set(tensor.data, place.start);
    return;
  }
  const [outer, inner] = place.shape as [number, number];
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) flat[place.start + i * place.stride + o] = tensor.data[o * inner + i]!;
  }
}

/** The tensors of a flat buffer by name, as a file holds them. */
export async function readTensors(
  kernels: Kernels,
  flat: F32,
  places: TensorPlace[],
): Promise<Record<string, FileTensor>> {
  const values = await kernels.download(flat);
  return Object.fromEntries(
    places.map((place) => [place.name, { shape: place.shape, data: readTensor(values, place) }]),
  );
}

function readTensor(flat: Float32Array, place: TensorPlace): Float32Array {
  const [outer, inner = 1] = place.shape as [number, number?];
  if (!place.transposed) return flat.slice(place.start, place.start + outer * inner);
  const out = new Float32Array(outer * inner);
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) out[o * inner + i] = flat[place.start + i * place.stride + o]!;
  }
  return out;
}

/** A new buffer with the rows of a matrix as its columns. */
export function transposedCopy(kernels: Kernels, matrix: F32, rows: number, cols: number): F32 {
  const copy = kernels.alloc(rows * cols);
  const from = kernels.view(matrix);
  const to = kernels.view(copy);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < cols; column++) to[column * rows + row] = from[row * cols + column]!;
  }
  return copy;
}
