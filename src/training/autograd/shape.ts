import { ValidationError } from "../../errors.js";
import { elementCount } from "../../wire/tensors/element-count.js";
import type { Tensor } from "./tensor.js";

export const shapeText = (shape: readonly number[]): string => `[${shape.join(", ")}]`;

export function sameShape(left: readonly number[], right: readonly number[]): boolean {
  if (left.length !== right.length) return false;
  for (let axis = 0; axis < left.length; axis++) if (left[axis] !== right[axis]) return false;
  return true;
}

const MOST_ORIGINS_NAMED = 3;

/** The labels of the variables a tensor was computed from, as " (from data[3].logprobs)"; empty when it has none. */
export function originText(tensor: Tensor): string {
  const labels = new Set<string>();
  const seen = new Set<Tensor>([tensor]);
  for (const current of seen) {
    if (current.label !== undefined) labels.add(current.label);
    for (const input of current.node?.inputs ?? []) seen.add(input);
  }
  if (labels.size === 0) return "";
  const named = [...labels].sort().slice(0, MOST_ORIGINS_NAMED).join(", ");
  const others = labels.size > MOST_ORIGINS_NAMED ? ` and ${labels.size - MOST_ORIGINS_NAMED} more` : "";
  return ` (from ${named}${others})`;
}

export const describeTensor = (tensor: Tensor): string => shapeText(tensor.shape) + originText(tensor);

export function shapeError(operation: string, message: string): ValidationError {
  return new ValidationError(operation, `${operation}: ${message}`);
}

/** The axis counted from the front; negative ones count from the back. */
export function resolveAxis(operation: string, axis: number, tensor: Tensor): number {
  const { length } = tensor.shape;
  const resolved = axis < 0 ? axis + length : axis;
  if (!Number.isInteger(axis) || resolved < 0 || resolved >= length) {
    throw shapeError(operation, `there is no axis ${axis} in the shape ${describeTensor(tensor)}`);
  }
  return resolved;
}

/** The shape seen from one axis: so many blocks before it, its own size, so many elements behind it. */
export function aroundAxis(shape: readonly number[], axis: number) {
  return {
    outer: elementCount(shape.slice(0, axis)),
    size: shape[axis]!,
    inner: elementCount(shape.slice(axis + 1)),
  };
}

export function broadcastShape(operation: string, tensors: readonly Tensor[]): readonly number[] {
  const rank = Math.max(...tensors.map(({ shape }) => shape.length));
  const sizes = new Array<number>(rank).fill(1);
  for (const { shape } of tensors) {
    for (const [axis, size] of shape.entries()) {
      const place = axis + rank - shape.length;
      if (size === 1 || size === sizes[place]) continue;
      if (sizes[place] !== 1) {
        const shapes = tensors.map(describeTensor).join(" and ");
        throw shapeError(operation, `the shapes ${shapes} cannot be broadcast together`);
      }
      sizes[place] = size;
    }
  }
  return sizes;
}

/** For each element of `shape`, the element of a tensor of the smaller shape `source` that stands there. */
export function broadcastIndices(source: readonly number[], shape: readonly number[]): Int32Array {
  const indices = new Int32Array(elementCount(shape));
  const offset = shape.length - source.length;
  let stride = 1;
  let inner = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    const size = shape[axis]!;
    const sourceSize = axis >= offset ? source[axis - offset]! : 1;
    if (sourceSize !== 1) {
      for (let index = 0; index < indices.length; index++) {
        indices[index]! += (Math.floor(index / inner) % size) * stride;
      }
      stride *= sourceSize;
    }
    inner *= size;
  }
  return indices;
}
