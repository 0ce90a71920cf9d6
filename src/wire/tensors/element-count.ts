/** Number of elements of a tensor of this shape. */
export function elementCount(shape: readonly number[]): number {
  let count = 1;
  for (const size of shape) count *= size;
  return count;
}
