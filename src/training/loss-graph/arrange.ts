import { elementCount } from "../../wire/tensors/element-count.js";
import { mul } from "../autograd/index.js";
import { pick } from "../autograd/pick.js";
import {
  charged,
  type GraphOperation,
  graphOperation,
  integerArgument,
  integersArgument,
  orNone,
  rest,
  tensorArgument,
  type WorkMeter,
} from "./operation.js";
import { dimensionOf, placesOfView, rowMajor, shapeTo, tensorView, withTensor } from "./places.js";
import { type GraphTensor, graphError } from "./values.js";

const x = tensorArgument("input");
const sizes = rest(integersArgument("size"));
const dims = rest(integersArgument("dims"));
const dim = integerArgument("dim");

function permute(input: GraphTensor, order: readonly number[]): GraphTensor {
  const { shape } = input;
  const axes = order.map((axis) => dimensionOf(axis, shape.length));
  if (axes.length !== shape.length || new Set(axes).size !== axes.length)
    throw graphError(`dims must name each of the ${shape.length} dimensions once, got [${order}]`);
  if (axes.every((axis, index) => axis === index)) return input;
  const strides = rowMajor(shape);
  const view = {
    shape: axes.map((axis) => shape[axis]!),
    strides: axes.map((axis) => strides[axis]!),
    start: 0,
  };
  return withTensor(input, tensorView("permute", input.tensor, view));
}

function swap(input: GraphTensor, first: number, second: number): GraphTensor {
  const { length } = input.shape;
  if (length === 0) return input;
  const [a, b] = [dimensionOf(first, length), dimensionOf(second, length)];
  const swapped = input.shape.map((_, axis) => (axis === a ? b : axis === b ? a : axis));
  return permute(input, swapped);
}

/** Repeats along dimensions of size 1, and new ones in front; -1 keeps a size. */
function expandTo(meter: WorkMeter, input: GraphTensor, wanted: readonly number[]): GraphTensor {
  const { shape } = input;
  const added = wanted.length - shape.length;
  const own = rowMajor(shape);
  const strides: number[] = [];
  const expanded = wanted.map((size, axis) => {
    const from = axis < added ? undefined : shape[axis - added]!;
    const to = size === -1 ? (from ?? -1) : size;
    if (to < 0 || (from !== undefined && from !== 1 && from !== to))
      throw graphError(
        `a tensor of shape [${shape.join(", ")}] cannot be expanded to [${wanted.join(", ")}]`,
      );
    strides.push(from === undefined || (from === 1 && to !== 1) ? 0 : own[axis - added]!);
    return to;
  });
  if (added < 0)
    throw graphError(`a tensor of shape [${shape.join(", ")}] cannot be expanded to [${wanted.join(", ")}]`);
  meter.charge(elementCount(expanded));
  return withTensor(input, tensorView("expand", input.tensor, { shape: expanded, strides, start: 0 }));
}

function repeat(meter: WorkMeter, input: GraphTensor, counts: readonly number[]): GraphTensor {
  const { length } = input.shape;
  if (counts.length < length || counts.some((count) => count < 0))
    throw graphError(`needs one count of 0 or more for each dimension, got [${counts}]`);
  const shape = [...new Array<number>(counts.length - length).fill(1), ...input.shape];
  meter.charge(elementCount(shape) * elementCount(counts));
  // Each dimension as a pair of repetitions and elements, so that one view shows all.
  const strides = rowMajor(shape);
  const pairs = shape.flatMap((size, axis) => [counts[axis]!, size]);
  const view = { shape: pairs, strides: strides.flatMap((stride) => [0, stride]), start: 0 };
  const repeated = pick("repeat", input.tensor, placesOfView(view));
  return shapeTo(
    withTensor(input, repeated),
    shape.map((size, axis) => size * counts[axis]!),
  );
}

function repeatInterleaved(
  meter: WorkMeter,
  input: GraphTensor,
  count: number,
  along: number | null,
): GraphTensor {
  if (count < 0) throw graphError(`repeats must be 0 or more, got ${count}`);
  const source = along === null ? shapeTo(input, [input.tensor.size]) : input;
  const axis = along === null ? 0 : dimensionOf(along, source.shape.length);
  const { shape } = source;
  meter.charge(elementCount(shape) * count);
  const strides = rowMajor(shape);
  const view = {
    shape: shape.flatMap((size, each) => (each === axis ? [size, count] : [size])),
    strides: strides.flatMap((stride, each) => (each === axis ? [stride, 0] : [stride])),
    start: 0,
  };
  const tensor = pick("repeat_interleave", source.tensor, placesOfView(view));
  return shapeTo(
    withTensor(input, tensor),
    shape.map((size, each) => (each === axis ? size * count : size)),
  );
}

function flip(input: GraphTensor, axes: readonly number[]): GraphTensor {
  const { shape } = input;
  const strides = rowMajor(shape);
  const flipped = new Set(axes.map((axis) => dimensionOf(axis, shape.length)));
  let start = 0;
  for (const axis of flipped) start += Math.max(shape[axis]! - 1, 0) * strides[axis]!;
  const view = {
    shape,
    strides: strides.map((stride, axis) => (flipped.has(axis) ? -stride : stride)),
    start,
  };
  return withTensor(input, tensorView("flip", input.tensor, view));
}

const transposed = graphOperation([x], (input) => {
  if (input.shape.length > 2) throw graphError(`takes a matrix, got rank ${input.shape.length}`);
  return swap(input, 0, input.shape.length - 1);
});

function squeeze(input: GraphTensor, along: readonly number[] | null): GraphTensor {
  const { shape } = input;
  const axes = along?.map((axis) => dimensionOf(axis, shape.length));
  return shapeTo(
    input,
    shape.filter((size, axis) => size !== 1 || axes?.includes(axis) === false),
  );
}

const unsqueeze = (input: GraphTensor, along: number): GraphTensor => {
  const axis = dimensionOf(along, input.shape.length, 1);
  return shapeTo(input, [...input.shape.slice(0, axis), 1, ...input.shape.slice(axis)]);
};

function triangle(input: GraphTensor, diagonal: number, isLower: boolean): GraphTensor {
  if (input.shape.length < 2) throw graphError("takes a matrix");
  const [rows, columns] = input.shape.slice(-2) as [number, number];
  const keeps = (row: number, column: number) =>
    isLower ? column - row <= diagonal : column - row >= diagonal;
  const mask = Float64Array.from({ length: rows * columns }, (_, place) =>
    Number(keeps(Math.floor(place / columns), place % columns)),
  );
  return withTensor(input, mul(input.tensor, { data: mask, shape: [rows, columns] }));
}

const reshapeTo = graphOperation([x, rest(integersArgument("shape"))], shapeTo);
const swapped = graphOperation([x, integerArgument("dim0"), integerArgument("dim1")], swap);
const expand = charged([x, sizes], expandTo);
const repeated = charged([x, rest(integersArgument("repeats"))], repeat);

/** Operations that turn, repeat and reshape tensors. */
export const ARRANGEMENTS: Readonly<Record<string, GraphOperation>> = {
  reshape: reshapeTo,
  view: reshapeTo,
  view_as: graphOperation([x, tensorArgument("other")], (input, other) => shapeTo(input, other.shape)),
  reshape_as: graphOperation([x, tensorArgument("other")], (input, other) => shapeTo(input, other.shape)),
  flatten: graphOperation(
    [x, integerArgument("start_dim", 0), integerArgument("end_dim", -1)],
    (input, from, to) => {
      const { shape } = input;
      if (shape.length === 0) return shapeTo(input, [1]);
      const [start, end] = [dimensionOf(from, shape.length), dimensionOf(to, shape.length)];
      return shapeTo(input, [
        ...shape.slice(0, start),
        elementCount(shape.slice(start, end + 1)),
        ...shape.slice(end + 1),
      ]);
    },
  ),
  ravel: graphOperation([x], (input) => shapeTo(input, [input.tensor.size])),
  squeeze: graphOperation([x, orNone(integersArgument("dim"))], squeeze),
  unsqueeze: graphOperation([x, dim], unsqueeze),
  permute: graphOperation([x, dims], permute),
  transpose: swapped,
  swapaxes: graphOperation([x, integerArgument("axis0"), integerArgument("axis1")], swap),
  swapdims: swapped,
  t: transposed,
  expand,
  broadcast_to: expand,
  expand_as: charged([x, tensorArgument("other")], (meter, input, other) =>
    expandTo(meter, input, other.shape),
  ),
  repeat: repeated,
  tile: charged([x, dims], (meter, input, counts) => {
    const added = Math.max(input.shape.length - counts.length, 0);
    return repeat(meter, input, [...new Array<number>(added).fill(1), ...counts]);
  }),
  repeat_interleave: charged([x, integerArgument("repeats"), orNone(dim)], repeatInterleaved),
  flip: graphOperation([x, dims], flip),
  tril: graphOperation([x, integerArgument("diagonal", 0)], (input, diagonal) =>
    triangle(input, diagonal, true),
  ),
  triu: graphOperation([x, integerArgument("diagonal", 0)], (input, diagonal) =>
    triangle(input, diagonal, false),
  ),
};
