import type { F32, Frozen, I32, Kernels } from "./kernels.js";

/** Uniform in -1..1, the same for the same seed. */
export function randomFloats(length: number, seed: number): Float32Array {
  let state = (seed * 2_654_435_761 + 12_345) >>> 0;
  const values = new Float32Array(length);
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    values[i] = (state >>> 8) / 2 ** 23 - 1;
  }
  return values;
}

/** A buffer with these values. */
export function put(kernels: Kernels, data: Float32Array): F32 {
  const buffer = kernels.alloc(data.length);
  kernels.upload(buffer, data);
  return buffer;
}

/** A buffer with these whole numbers. */
export function putInts(kernels: Kernels, data: readonly number[]): I32 {
  const buffer = kernels.allocInts(data.length);
  kernels.uploadInts(buffer, Int32Array.from(data));
  return buffer;
}

/** A frozen matrix with these values, [inputs, outputs], filled from two tensors. */
export async function freeze(
  kernels: Kernels,
  values: Float32Array,
  inputs: number,
  outputs: number,
): Promise<Frozen> {
  const matrix = kernels.frozen(inputs, outputs, "F32");
  const middle = Math.ceil(outputs / 3);
  for (const [start, end] of [
    [0, middle],
    [middle, outputs],
  ] as const) {
    const part = new Float32Array((end - start) * inputs);
    for (let i = 0; i < part.length; i++) {
      part[i] = values[(i % inputs) * outputs + start + Math.floor(i / inputs)]!;
    }
    const bytes = new Uint8Array(part.buffer);
    await kernels.fill(matrix, start, { dtype: "F32", shape: [end - start, inputs], bytes });
  }
  return matrix;
}

/** Kernels whose memory can be looked into. */
export interface ViewedKernels extends Kernels {
  view(buffer: F32): Float32Array;
}

/** The values of a buffer. */
export const read = (kernels: ViewedKernels, buffer: F32) => Array.from(kernels.view(buffer));

/** Largest difference relative to the largest value of `expected`. */
export function relativeError(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  if (actual.length !== expected.length)
    throw new Error(`${actual.length} values, expected ${expected.length}`);
  let largest = 1e-30;
  let difference = 0;
  for (let i = 0; i < expected.length; i++) {
    largest = Math.max(largest, Math.abs(expected[i]!));
    const delta = Math.abs(actual[i]! - expected[i]!);
    difference = Number.isNaN(delta) ? Number.POSITIVE_INFINITY : Math.max(difference, delta);
  }
  return difference / largest;
}

/** Where two results differ in their bits, or null. */
export function firstBitDifference(a: Float32Array, b: Float32Array): string | null {
  const [x, y] = [new Uint32Array(a.slice().buffer), new Uint32Array(b.slice().buffer)];
  if (x.length !== y.length) return `lengths ${x.length} and ${y.length}`;
  for (let i = 0; i < x.length; i++) if (x[i] !== y[i]) return `[${i}]: ${a[i]} and ${b[i]}`;
  return null;
}
