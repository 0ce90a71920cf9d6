import { elementCount } from "../../wire/tensors/element-count.js";
import { concat, stack, sub, type Tensor } from "../autograd/index.js";
import {
  charged,
  type GraphOperation,
  graphOperation,
  integerArgument,
  integersArgument,
  operandArgument,
  orNone,
  tensorArgument,
  tensorsArgument,
  type WorkMeter,
} from "./operation.js";
import { dimensionOf, rowMajor, shapeTo, tensorView, withTensor } from "./places.js";
import { GraphTensor, GraphTuple, graphError, promote } from "./values.js";

const x = tensorArgument("input");
const dim = integerArgument("dim");

/** `length` elements from `start` along a dimension. */
function narrow(input: GraphTensor, along: number, from: number, length: number): GraphTensor {
  const axis = dimensionOf(along, input.shape.length);
  const size = input.shape[axis]!;
  const start = from < 0 ? from + size : from;
  if (start < 0 || length < 0 || start + length > size)
    throw graphError(`${length} elements from ${from} are not within a dimension of size ${size}`);
  const strides = rowMajor(input.shape);
  const shape = input.shape.map((each, index) => (index === axis ? length : each));
  return withTensor(
    input,
    tensorView("narrow", input.tensor, { shape, strides, start: start * strides[axis]! }),
  );
}

const roll = (input: GraphTensor, shift: number, along: number): GraphTensor => {
  const axis = dimensionOf(along, input.shape.length);
  const size = input.shape[axis]!;
  if (size === 0) return input;
  const by = ((shift % size) + size) % size;
  const parts = [narrow(input, axis, size - by, by), narrow(input, axis, 0, size - by)];
  return withTensor(
    input,
    concat(
      parts.map(({ tensor }) => tensor),
      { axis },
    ),
  );
};

const MAX_PIECES = 65_536;

function pieces(input: GraphTensor, along: number, lengths: readonly number[]): GraphTuple {
  if (lengths.length > MAX_PIECES)
    throw graphError(`makes ${lengths.length} pieces; at most ${MAX_PIECES} are allowed`);
  let start = 0;
  return new GraphTuple(
    lengths.map((length) => {
      start += length;
      return narrow(input, along, start - length, length);
    }),
  );
}

/** So many elements each, the last piece perhaps fewer. */
function lengthsOf(size: number, each: number): number[] {
  if (each < 1) throw graphError(`pieces must have at least 1 element, got ${each}`);
  const count = Math.max(Math.ceil(size / each), 1);
  if (count > MAX_PIECES) throw graphError(`makes ${count} pieces; at most ${MAX_PIECES} are allowed`);
  return Array.from({ length: count }, (_, index) => Math.min(each, size - index * each));
}

const allOfOneDtype = (tensors: readonly GraphTensor[]) => promote(...tensors.map(({ dtype }) => dtype));

const join = graphOperation([tensorsArgument("tensors"), integerArgument("dim", 0)], (tensors, along) => {
  if (tensors.length === 0) throw graphError("tensors must not be empty");
  // torch lets an empty vector stand among tensors of any shape.
  const filled = tensors.filter(({ shape }) => !(shape.length === 1 && shape[0] === 0));
  const parts = filled.length > 0 ? filled : tensors.slice(0, 1);
  const axis = dimensionOf(along, parts[0]!.shape.length);
  return new GraphTensor(
    concat(
      parts.map(({ tensor }) => tensor),
      { axis },
    ),
    allOfOneDtype(tensors),
  );
});

/** Pads with a constant, from the last dimension backwards: `(left, right, top, bottom, ...)`. */
function pad(meter: WorkMeter, input: GraphTensor, widths: readonly number[], value: number): GraphTensor {
  if (widths.length % 2 !== 0 || widths.length > 2 * input.shape.length || widths.some((each) => each < 0))
    throw graphError("pad must have two widths of 0 or more for each dimension, from the last one backwards");
  let padded = input.tensor;
  for (let pair = 0; pair < widths.length / 2; pair++) {
    const axis = input.shape.length - 1 - pair;
    const around = [widths[2 * pair]!, widths[2 * pair + 1]!].map((width) => {
      const shape = padded.shape.map((size, each) => (each === axis ? width : size));
      meter.charge(elementCount(shape) + padded.size);
      return { data: new Float64Array(elementCount(shape)).fill(value), shape };
    });
    padded = concat([around[0]!, padded, around[1]!], { axis });
  }
  return withTensor(input, padded);
}

const difference = (input: Tensor, axis: number): Tensor => {
  const size = input.shape[axis]!;
  const part = (from: number) => narrow(new GraphTensor(input, "float32"), axis, from, Math.max(size - 1, 0));
  return size === 0 ? input : sub(part(1).tensor, part(0).tensor);
};

/** Operations that cut tensors and join them. */
export const JOINING: Readonly<Record<string, GraphOperation>> = {
  roll: graphOperation(
    [x, integerArgument("shifts"), orNone(integerArgument("dims"))],
    (input, shift, along) =>
      along === null
        ? shapeTo(roll(shapeTo(input, [input.tensor.size]), shift, 0), input.shape)
        : roll(input, shift, along),
  ),
  narrow: graphOperation([x, dim, integerArgument("start"), integerArgument("length")], narrow),
  select: graphOperation([x, dim, integerArgument("index")], (input, along, index) => {
    const axis = dimensionOf(along, input.shape.length);
    return shapeTo(
      narrow(input, axis, index, 1),
      input.shape.filter((_, each) => each !== axis),
    );
  }),
  chunk: graphOperation([x, integerArgument("chunks"), integerArgument("dim", 0)], (input, count, along) => {
    if (count < 1) throw graphError(`chunks must be 1 or more, got ${count}`);
    const size = input.shape[dimensionOf(along, input.shape.length)]!;
    return pieces(input, along, lengthsOf(size, Math.max(Math.ceil(size / count), 1)));
  }),
  split: graphOperation(
    [x, integersArgument("split_size_or_sections"), integerArgument("dim", 0)],
    (input, given, along) => {
      const size = input.shape[dimensionOf(along, input.shape.length)]!;
      return pieces(input, along, given.length === 1 ? lengthsOf(size, given[0]!) : given);
    },
  ),
  unbind: graphOperation([x, integerArgument("dim", 0)], (input, along) => {
    const axis = dimensionOf(along, input.shape.length);
    const shape = input.shape.filter((_, each) => each !== axis);
    const parts = pieces(input, axis, lengthsOf(input.shape[axis]!, 1));
    return new GraphTuple(parts.items.map((part) => shapeTo(part as GraphTensor, shape)));
  }),
  cat: join,
  concat: join,
  concatenate: join,
  stack: graphOperation([tensorsArgument("tensors"), integerArgument("dim", 0)], (tensors, along) => {
    if (tensors.length === 0) throw graphError("tensors must not be empty");
    const axis = dimensionOf(along, tensors[0]!.shape.length, 1);
    return new GraphTensor(
      stack(
        tensors.map(({ tensor }) => tensor),
        { axis },
      ),
      allOfOneDtype(tensors),
    );
  }),
  pad: charged(
    [
      x,
      integersArgument("pad"),
      { name: "mode", read: (mode) => mode, fallback: "constant" },
      orNone(operandArgument("value")),
    ],
    (meter, input, widths, mode, value) => {
      if (mode !== "constant" || value instanceof GraphTensor)
        throw graphError("pads with a constant number only");
      return pad(meter, input, widths, value ?? 0);
    },
  ),
  diff: graphOperation([x, integerArgument("n", 1), integerArgument("dim", -1)], (input, n, along) => {
    if (n < 0 || n > 8) throw graphError(`n must be from 0 to 8, got ${n}`);
    let { tensor } = input;
    for (let round = 0; round < n; round++)
      tensor = difference(tensor, dimensionOf(along, input.shape.length));
    return withTensor(input, tensor);
  }),
};
