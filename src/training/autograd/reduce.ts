import * as f from "../../wire/fields/index.js";
import { aroundAxis, describeTensor, resolveAxis, shapeError } from "./shape.js";
import { type Operand, result, type Tensor, toTensor } from "./tensor.js";
import { tracerOf } from "./tracer.js";

/** Over which axes to reduce, and whether they stay with size 1. */
export interface ReduceOptions {
  /** The axes to reduce; all of them when absent. Negative ones count from the back. */
  readonly axis?: number | readonly number[] | undefined;
  /** Keeps the reduced axes with size 1, so that the result broadcasts against the input. */
  readonly keepDims?: boolean | undefined;
}

const isAxis = (given: unknown) => Number.isSafeInteger(given);
const REDUCE_OPTIONS = f.optionTable({
  axis: f.optional(
    f.value<number | readonly number[]>(
      "an integer or a list of integers",
      (given) => isAxis(given) || (Array.isArray(given) && given.every(isAxis)),
    ),
  ),
  keepDims: f.withDefault(f.boolean, false),
} satisfies f.FieldsOf<ReduceOptions>);
const SOFTMAX_OPTIONS = f.optionTable({ axis: f.withDefault(f.integer, -1) });

interface Reduction {
  readonly input: Tensor;
  readonly shape: readonly number[];
  readonly groups: number;
  readonly groupSize: number;
  /** The group of each element, where groups are not simply runs of `groupSize` elements. */
  readonly groupOf: Int32Array | undefined;
}

/** The sum of all elements, or of those along some axes. */
export function sum(operand: Operand, options: ReduceOptions = {}): Tensor {
  const traced = tracedReduction("sum", operand, options);
  if (traced !== undefined) return traced;
  const reduction = plan("sum", operand, options);
  return weightedSum("sum", reduction, 1);
}

/** The mean of all elements, or of those along some axes. */
export function mean(operand: Operand, options: ReduceOptions = {}): Tensor {
  const traced = tracedReduction("mean", operand, options);
  if (traced !== undefined) return traced;
  const reduction = plan("mean", operand, options);
  refuseEmpty("mean", reduction);
  return weightedSum("mean", reduction, 1 / reduction.groupSize);
}

/** Computes log(sum(exp(x))) without overflow. */
export function logSumExp(operand: Operand, options: ReduceOptions = {}): Tensor {
  const traced = tracedReduction("logSumExp", operand, options);
  if (traced !== undefined) return traced;
  const reduction = plan("logSumExp", operand, options);
  refuseEmpty("logSumExp", reduction);
  const { input, shape, groups, groupSize, groupOf } = reduction;
  const x = input.values;
  const most = new Float64Array(groups).fill(Number.NEGATIVE_INFINITY);
  const y = new Float64Array(groups);
  for (let i = 0; i < x.length; i++) {
    const group = groupOf === undefined ? Math.floor(i / groupSize) : groupOf[i]!;
    // NaN must win, or it would be lost here.
    if (!(x[i]! <= most[group]!)) most[group] = x[i]!;
  }
  for (let i = 0; i < x.length; i++) {
    const group = groupOf === undefined ? Math.floor(i / groupSize) : groupOf[i]!;
    y[group]! += x[i] === most[group] ? 1 : Math.exp(x[i]! - most[group]!);
  }
  for (let group = 0; group < groups; group++) {
    const isInfinite = Math.abs(most[group]!) === Number.POSITIVE_INFINITY;
    y[group] = isInfinite ? most[group]! : most[group]! + Math.log(y[group]!);
  }
  return result("logSumExp", y, shape, [input], (dy, dx) => {
    for (let i = 0; i < x.length; i++) {
      const group = groupOf === undefined ? Math.floor(i / groupSize) : groupOf[i]!;
      dx[i] = x[i] === Number.NEGATIVE_INFINITY ? 0 : dy[group]! * Math.exp(x[i]! - y[group]!);
    }
  });
}

/** exp(x) / sum(exp(x)) along one axis, by default the last one. */
export function softmax(operand: Operand, options: { readonly axis?: number | undefined } = {}): Tensor {
  const { axis: given } = SOFTMAX_OPTIONS.check(options, "softmax");
  const tracer = tracerOf([operand]);
  if (tracer !== undefined) return tracer.record("softmax", [operand], { axis: given });
  const input = toTensor(operand, "softmax");
  const axis = resolveAxis("softmax", given, input);
  const { outer, size, inner } = aroundAxis(input.shape, axis);
  const x = input.values;
  const y = new Float64Array(x.length);
  for (let block = 0; block < outer * inner; block++) {
    const start = Math.floor(block / inner) * size * inner + (block % inner);
    let most = Number.NEGATIVE_INFINITY;
    for (let k = 0, i = start; k < size; k++, i += inner) if (!(x[i]! <= most)) most = x[i]!;
    let total = 0;
    for (let k = 0, i = start; k < size; k++, i += inner) {
      y[i] = Math.exp(x[i]! - most);
      total += y[i]!;
    }
    for (let k = 0, i = start; k < size; k++, i += inner) y[i]! /= total;
  }
  return result("softmax", y, input.shape, [input], (dy, dx) => {
    for (let block = 0; block < outer * inner; block++) {
      const start = Math.floor(block / inner) * size * inner + (block % inner);
      let dot = 0;
      for (let k = 0, i = start; k < size; k++, i += inner) dot += dy[i]! * y[i]!;
      for (let k = 0, i = start; k < size; k++, i += inner) dx[i] = y[i]! * (dy[i]! - dot);
    }
  });
}

function tracedReduction(operation: string, operand: Operand, options: ReduceOptions): Tensor | undefined {
  return tracerOf([operand])?.record(operation, [operand], { ...REDUCE_OPTIONS.check(options, operation) });
}

function weightedSum(operation: string, reduction: Reduction, factor: number): Tensor {
  const { input, shape, groups, groupSize, groupOf } = reduction;
  const x = input.values;
  const y = new Float64Array(groups);
  if (groupOf === undefined) {
    for (let group = 0, i = 0; group < groups; group++) {
      let total = 0;
      for (const end = i + groupSize; i < end; i++) total += x[i]!;
      y[group] = total * factor;
    }
  } else {
    for (let i = 0; i < x.length; i++) y[groupOf[i]!]! += x[i]!;
    for (let group = 0; group < groups; group++) y[group]! *= factor;
  }
  return result(operation, y, shape, [input], (dy, dx) => {
    if (groupOf === undefined) {
      for (let group = 0; group < groups; group++) {
        dx.fill(dy[group]! * factor, group * groupSize, (group + 1) * groupSize);
      }
    } else {
      for (let i = 0; i < dx.length; i++) dx[i] = dy[groupOf[i]!]! * factor;
    }
  });
}

function plan(operation: string, operand: Operand, options: ReduceOptions): Reduction {
  const { axis, keepDims } = REDUCE_OPTIONS.check(options, operation);
  const input = toTensor(operand, operation);
  const rank = input.shape.length;
  if (axis === undefined) {
    const shape = keepDims ? input.shape.map(() => 1) : [];
    return { input, shape, groups: 1, groupSize: input.size, groupOf: undefined };
  }
  const axes = [axis].flat();
  const reduced = new Set(axes.map((each) => resolveAxis(operation, each, input)));
  if (reduced.size !== axes.length) throw shapeError(operation, `an axis is named twice in [${axes}]`);
  const kept = input.shape.map((size, each) => (reduced.has(each) ? 1 : size));
  const shape = keepDims ? kept : input.shape.filter((_, each) => !reduced.has(each));
  let groups = 1;
  let groupSize = 1;
  for (const [each, size] of input.shape.entries()) {
    if (reduced.has(each)) groupSize *= size;
    else groups *= size;
  }
  const areLast = [...reduced].every((each) => each >= rank - reduced.size);
  return {
    input,
    shape,
    groups,
    groupSize,
    groupOf: areLast ? undefined : groupIndices(input.shape, reduced),
  };
}

function groupIndices(shape: readonly number[], reduced: ReadonlySet<number>): Int32Array {
  const indices = new Int32Array(shape.reduce((product, size) => product * size, 1));
  let inner = 1;
  let stride = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    const size = shape[axis]!;
    if (!reduced.has(axis)) {
      for (let i = 0; i < indices.length; i++) indices[i]! += (Math.floor(i / inner) % size) * stride;
      stride *= size;
    }
    inner *= size;
  }
  return indices;
}

function refuseEmpty(operation: string, { input, groups, groupSize }: Reduction): void {
  if (groups > 0 && groupSize === 0) {
    throw shapeError(operation, `of no elements, in a tensor of shape ${describeTensor(input)}`);
  }
}
