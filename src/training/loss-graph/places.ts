import { elementCount } from "../../wire/tensors/element-count.js";
import { reshape, type Tensor } from "../autograd/index.js";
import { pick } from "../autograd/pick.js";
import { GraphTensor, graphError } from "./values.js";

/** A view of a tensor's elements: sizes and, for each, how far apart its elements stand; a stride of 0 repeats. */
export interface View {
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  readonly start: number;
}

/** The strides of a tensor that lies in memory row by row. */
export function rowMajor(shape: readonly number[]): number[] {
  const strides = new Array<number>(shape.length);
  let stride = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    strides[axis] = stride;
    stride *= shape[axis]!;
  }
  return strides;
}

/** The places of a view's elements, row by row. */
export function placesOfView({ shape, strides, start }: View): Int32Array {
  const places = new Int32Array(elementCount(shape));
  if (places.length === 0) return places;
  const position = new Array<number>(shape.length).fill(0);
  let place = start;
  for (let i = 0; i < places.length; i++) {
    places[i] = place;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      position[axis]! += 1;
      place += strides[axis]!;
      if (position[axis]! < shape[axis]!) break;
      place -= strides[axis]! * shape[axis]!;
      position[axis] = 0;
    }
  }
  return places;
}

/** The elements of a tensor that a view shows. */
export const tensorView = (name: string, input: Tensor, view: View): Tensor =>
  pick(name, input, placesOfView(view), view.shape);

export const withTensor = (input: GraphTensor, tensor: Tensor): GraphTensor =>
  new GraphTensor(tensor, input.dtype);

/** A dimension counted from the front; `added` is 1 where a new one may stand behind the last. */
export function dimensionOf(axis: number, rank: number, added = 0): number {
  const most = Math.max(rank + added, 1);
  const resolved = axis < 0 ? axis + most : axis;
  if (resolved >= 0 && resolved < most) return resolved;
  throw graphError(`there is no dimension ${axis} in a tensor of rank ${rank}`);
}

/** Whole numbers of a tensor that are places along a dimension of this size; negative ones count from the end. */
export function indicesOf(indices: GraphTensor, size: number): Float64Array {
  if (indices.dtype !== "int64") throw graphError(`indices must be int64, got ${indices.dtype}; use .long()`);
  return Float64Array.from(indices.tensor.values, (index) => {
    const resolved = index < 0 ? index + size : index;
    if (Number.isInteger(resolved) && resolved >= 0 && resolved < size) return resolved;
    throw graphError(`index ${index} is out of range for a dimension of size ${size}`);
  });
}

export const shapeTo = (input: GraphTensor, shape: readonly number[]) =>
  withTensor(input, reshape(input.tensor, shape));
