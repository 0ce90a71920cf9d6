import { EngineInputError } from "../engine.js";
import { type F32, type Kernels, sliceBuffer } from "../kernels/kernels.js";

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
  /** The matrix or vector that it is part of. */
  block: Range;
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
    const block = this.#take(rows * stride);
    let start = block.start;
    for (const part of parts) {
      const shape = [part.cols, rows];
      this.places.push({ name: part.name, shape, start, stride, transposed: true, block });
      start += part.cols;
    }
    return block;
  }

  /** A tensor stored as it is in the file. */
  plain(name: string, shape: number[]): Range {
    const block = this.#take(sizeOf({ shape }));
    const stride = shape.at(-1)!;
    this.places.push({ name, shape, start: block.start, stride, transposed: false, block });
    return block;
  }

  /** Vectors one after another. */
  vectors(parts: { name: string; length: number }[]): Range {
    const block = this.#take(parts.reduce((sum, part) => sum + part.length, 0));
    let start = block.start;
    for (const { name, length } of parts) {
      this.places.push({ name, shape: [length], start, stride: length, transposed: false, block });
      start += length;
    }
    return block;
  }

  #take(length: number): Range {
    const start = this.#length;
    this.#length += length;
    return { start, length };
  }
}

/** Values of a tensor. */
export const sizeOf = ({ shape }: { shape: number[] }) => shape.reduce((product, size) => product * size, 1);

/** Refuses a tensor that a file has in another shape. */
export function checkShape(place: TensorPlace, shape: readonly number[]): void {
  if (shape.length !== place.shape.length || shape.some((size, i) => size !== place.shape[i])) {
    throw new EngineInputError(`tensor ${place.name} has shape [${shape}], expected [${place.shape}]`);
  }
}

/** Puts tensors of a file into the flat buffer, a block at a time; the tensors of a block follow each other. */
export function writeTensors(
  kernels: Kernels,
  flat: F32,
  tensors: Iterable<readonly [TensorPlace, FileTensor]>,
): void {
  let block: Range | undefined;
  let values = new Float32Array(0);
  const store = () => block && kernels.upload(sliceBuffer(flat, block.start, block.length), values);
  for (const [place, tensor] of tensors) {
    checkShape(place, tensor.shape);
    if (place.block !== block) {
      store();
      block = place.block;
      values = new Float32Array(block.length);
    }
    writeTensor(values, place, tensor);
  }
  store();
}

function writeTensor(values: Float32Array, place: TensorPlace, tensor: FileTensor): void {
  const start = place.start - place.block.start;
  if (!place.transposed) {
    values.set(tensor.data, start);
    return;
  }
  const [outer, inner] = place.shape as [number, number];
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) values[start + i * place.stride + o] = tensor.data[o * inner + i]!;
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
