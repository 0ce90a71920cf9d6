import { elementCount } from "../../wire/tensors/element-count.js";
import { aroundAxis, describeTensor, resolveAxis, sameShape, shapeError, shapeText } from "./shape.js";
import { type Operand, result, type Tensor, toTensor } from "./tensor.js";
import { tracerOf } from "./tracer.js";

/** Returns the elements in another shape; one size may be -1 and is then inferred. */
export function reshape(operand: Operand, shape: readonly number[]): Tensor {
  const tracer = tracerOf([operand]);
  if (tracer !== undefined) return tracer.record("reshape", [operand], { shape });
  const input = toTensor(operand, "reshape");
  const known = elementCount(shape.filter((size) => size !== -1));
  const wanted = shape.map((size) => (size === -1 ? input.size / known : size));
  const isPossible = wanted.every((size) => Number.isSafeInteger(size) && size >= 0);
  if (!isPossible || elementCount(wanted) !== input.size) {
    throw shapeError("reshape", `${describeTensor(input)} cannot become ${shapeText(shape)}`);
  }
  return result("reshape", input.values, wanted, [input], (dy, dx) => dx.set(dy));
}

/** Joins tensors along an axis they have; the other sizes must agree. */
export function concat(operands: readonly Operand[], options: { readonly axis?: number } = {}): Tensor {
  const tracer = tracerOf(operands);
  if (tracer !== undefined) return tracer.record("concat", operands, { axis: options.axis ?? 0 });
  const tensors = toTensors("concat", operands);
  const [first] = tensors as [Tensor];
  const axis = resolveAxis("concat", options.axis ?? 0, first);
  for (const { shape } of tensors) {
    const fits = shape.length === first.shape.length;
    if (fits && shape.every((size, index) => index === axis || size === first.shape[index])) continue;
    const shapes = tensors.map(describeTensor).join(", ");
    throw shapeError("concat", `all sizes but those of axis ${axis} must agree, got ${shapes}`);
  }
  const { outer, inner } = aroundAxis(first.shape, axis);
  const total = tensors.reduce((all, each) => all + each.shape[axis]!, 0);
  const shape = first.shape.map((size, index) => (index === axis ? total : size));
  return join("concat", tensors, { shape, outer, widths: tensors.map((each) => each.shape[axis]! * inner) });
}

/** Joins tensors of one shape along a new axis. */
export function stack(operands: readonly Operand[], options: { readonly axis?: number } = {}): Tensor {
  const tracer = tracerOf(operands);
  if (tracer !== undefined) return tracer.record("stack", operands, { axis: options.axis ?? 0 });
  const tensors = toTensors("stack", operands);
  const [first] = tensors as [Tensor];
  const rank = first.shape.length + 1;
  const axis = (options.axis ?? 0) < 0 ? options.axis! + rank : (options.axis ?? 0);
  if (!Number.isInteger(axis) || axis < 0 || axis >= rank) {
    throw shapeError("stack", `there is no place for axis ${options.axis} in ${describeTensor(first)}`);
  }
  for (const each of tensors) {
    if (sameShape(each.shape, first.shape)) continue;
    throw shapeError(
      "stack",
      `all shapes must agree, got ${describeTensor(first)} and ${describeTensor(each)}`,
    );
  }
  const shape = [...first.shape.slice(0, axis), tensors.length, ...first.shape.slice(axis)];
  const inner = elementCount(first.shape.slice(axis));
  const widths = tensors.map(() => inner);
  return join("stack", tensors, { shape, outer: elementCount(first.shape.slice(0, axis)), widths });
}

/** The elements from `start` up to but without `end` along an axis (the first); negative positions count from the end. */
export function slice(
  operand: Operand,
  start: number,
  end?: number,
  options: { readonly axis?: number } = {},
): Tensor {
  const tracer = tracerOf([operand]);
  if (tracer !== undefined) return tracer.record("slice", [operand], { start, end, axis: options.axis ?? 0 });
  const input = toTensor(operand, "slice");
  const axis = resolveAxis("slice", options.axis ?? 0, input);
  const { outer, size, inner } = aroundAxis(input.shape, axis);
  const from = start < 0 ? start + size : start;
  const to = end === undefined ? size : end < 0 ? end + size : end;
  if (!Number.isInteger(from) || !Number.isInteger(to) || from < 0 || to > size || from > to) {
    const range = `${start} to ${end ?? "the end"}`;
    throw shapeError("slice", `${range} is not within axis ${axis} of ${describeTensor(input)}`);
  }
  const width = (to - from) * inner;
  const y = new Float64Array(outer * width);
  const place = (block: number) => (block * size + from) * inner;
  for (let block = 0; block < outer; block++) {
    y.set(input.data.subarray(place(block), place(block) + width), block * width);
  }
  const shape = input.shape.map((each, index) => (index === axis ? to - from : each));
  const backward = (dy: Float64Array, dx: Float64Array) => {
    for (let block = 0; block < outer; block++) {
      const offset = place(block);
      for (let i = 0; i < width; i++) dx[offset + i]! += dy[block * width + i]!;
    }
  };
  return result("slice", y, shape, [input], backward, { accumulates: true });
}

/**
 * Picks elements along an axis (the last). The indices have as many dimensions as the input and the same sizes but
 * on that axis, as in torch.gather: out[i][j] = input[i][indices[i][j]].
 */
export function gather(operand: Operand, indices: Operand, options: { readonly axis?: number } = {}): Tensor {
  const tracer = tracerOf([operand, indices]);
  if (tracer !== undefined) return tracer.record("gather", [operand, indices], { axis: options.axis ?? -1 });
  const input = toTensor(operand, "gather");
  const picks = toTensor(indices, "gather");
  const axis = resolveAxis("gather", options.axis ?? -1, input);
  const fits =
    picks.shape.length === input.shape.length &&
    picks.shape.every((size, index) => index === axis || size === input.shape[index]);
  if (!fits) {
    throw shapeError(
      "gather",
      `indices of shape ${shapeText(picks.shape)} do not fit axis ${axis} of ${describeTensor(input)}`,
    );
  }
  const { size, inner } = aroundAxis(input.shape, axis);
  const picked = picks.shape[axis]!;
  const sources = new Int32Array(picks.size);
  for (let i = 0; i < sources.length; i++) {
    const index = picks.data[i]!;
    if (!Number.isInteger(index) || index < 0 || index >= size) {
      throw shapeError("gather", `index ${index} is not within axis ${axis} of ${describeTensor(input)}`);
    }
    sources[i] = (Math.floor(i / (picked * inner)) * size + index) * inner + (i % inner);
  }
  const y = new Float64Array(sources.length);
  for (let i = 0; i < y.length; i++) y[i] = input.data[sources[i]!]!;
  const backward = (dy: Float64Array, dx: Float64Array) => {
    for (let i = 0; i < sources.length; i++) dx[sources[i]!]! += dy[i]!;
  };
  return result("gather", y, picks.shape, [input], backward, { accumulates: true });
}

function toTensors(operation: string, operands: readonly Operand[]): Tensor[] {
  if (operands.length === 0) throw shapeError(operation, "expected at least one tensor, got none");
  return operands.map((operand) => toTensor(operand, operation));
}

/** Puts `outer` blocks together, each of one run of `widths` elements from every tensor. */
function join(
  operation: string,
  tensors: readonly Tensor[],
  plan: {
    readonly shape: readonly number[];
    readonly outer: number;
    readonly widths: readonly number[];
  },
): Tensor {
  const { shape, outer, widths } = plan;
  let total = 0;
  const starts = widths.map((width) => {
    total += width;
    return total - width;
  });
  const y = new Float64Array(outer * total);
  for (const [input, { values }] of tensors.entries()) {
    const [start, width] = [starts[input]!, widths[input]!];
    for (let block = 0; block < outer; block++) {
      const [from, to] = [block * width, block * total + start];
      for (let i = 0; i < width; i++) y[to + i] = values[from + i]!;
    }
  }
  return result(operation, y, shape, tensors, (dy, into, input) => {
    const [start, width] = [starts[input]!, widths[input]!];
    for (let block = 0; block < outer; block++) {
      const [from, to] = [block * total + start, block * width];
      for (let i = 0; i < width; i++) into[to + i] = dy[from + i]!;
    }
  });
}
