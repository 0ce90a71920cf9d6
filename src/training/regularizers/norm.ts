/** Euclidean norm over several arrays. */
export function norm(arrays: readonly Float64Array[]): number {
  let squares = 0;
  for (const array of arrays) for (let i = 0; i < array.length; i++) squares += array[i]! * array[i]!;
  return Math.sqrt(squares);
}
