/** Elements of one slab: half a megabyte. */
const SLAB_ELEMENTS = 1 << 16;
const LARGEST_FROM_SLAB = SLAB_ELEMENTS / 4;
/** Smaller arrays stand alone: a number that somebody keeps must not keep a slab. */
const SMALLEST_FROM_SLAB = 256;

let slab = new Float64Array(0);
let used = 0;

/**
 * An array of zeros. A loss makes hundreds of arrays of a few thousand elements, and a buffer for each costs several
 * times more than the arithmetic; so they share slabs, which the garbage collector frees with their last array.
 */
export function zeros(length: number): Float64Array {
  if (length < SMALLEST_FROM_SLAB || length > LARGEST_FROM_SLAB) return new Float64Array(length);
  if (used + length > slab.length) {
    slab = new Float64Array(SLAB_ELEMENTS);
    used = 0;
  }
  const start = used;
  used += length;
  return slab.subarray(start, used);
}

/** A copy as 64-bit floats. Not by `Float64Array.from`, which goes through an iterator. */
export function copyOf(values: ArrayLike<number>): Float64Array {
  const copy = zeros(values.length);
  copy.set(values);
  return copy;
}
