import { reshape, sum, type Tensor } from "../autograd/index.js";

export type Dims = readonly number[] | null;

/** The options of a reduction; torch takes an empty list for all dimensions. */
export const over = (axis: Dims, keepDims: boolean) => ({
  axis: axis === null || axis.length === 0 ? undefined : axis,
  keepDims,
});

/** Sizes along dimensions, all of them without any. */
export function countOf({ shape }: Tensor, axis: Dims): number {
  const axes = axis === null || axis.length === 0 ? shape.map((_, index) => index) : axis;
  return axes.reduce((product, each) => product * (shape[each < 0 ? each + shape.length : each] ?? 1), 1);
}

/** A scalar has no dimensions, but torch lets it be reduced along 0 and -1. */
export function asVector(input: Tensor, axis: Dims): { tensor: Tensor; isScalar: boolean } {
  const isScalar = input.shape.length === 0 && axis !== null && axis.length > 0;
  return { tensor: isScalar ? reshape(input, [1]) : input, isScalar };
}

export function reduce(
  input: Tensor,
  axis: Dims,
  keepDims: boolean,
  run: (input: Tensor, options: ReturnType<typeof over>) => Tensor,
): Tensor {
  const { tensor, isScalar } = asVector(input, axis);
  const reduced = run(tensor, over(axis, keepDims));
  return isScalar ? reshape(reduced, []) : reduced;
}

export const total = (input: Tensor, axis: Dims, keep: boolean) => reduce(input, axis, keep, sum);
