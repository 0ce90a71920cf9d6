import { pick } from "../autograd/pick.js";
import { aroundAxis } from "../autograd/shape.js";
import {
  charged,
  type GraphOperation,
  integerArgument,
  orNone,
  tensorArgument,
  type WorkMeter,
} from "./operation.js";
import { dimensionOf, indicesOf, placesOfView, rowMajor, shapeTo, withTensor } from "./places.js";
import { type GraphTensor, graphError } from "./values.js";

const x = tensorArgument("input");
const dim = integerArgument("dim");

function gatherAlong(meter: WorkMeter, input: GraphTensor, along: number, index: GraphTensor): GraphTensor {
  const { shape } = input;
  const axis = dimensionOf(along, shape.length);
  const fits =
    index.shape.length === shape.length &&
    index.shape.every((size, each) => each === axis || size <= shape[each]!);
  if (!fits)
    throw graphError(`an index of shape [${index.shape.join(", ")}] does not fit [${shape.join(", ")}]`);
  meter.charge(index.tensor.size);
  const strides = rowMajor(shape);
  // Where along the other dimensions each picked element stands.
  const others = {
    shape: index.shape,
    strides: strides.map((each, at) => (at === axis ? 0 : each)),
    start: 0,
  };
  const places = placesOfView(others);
  const along_ = indicesOf(index, shape[axis] ?? 1);
  for (let i = 0; i < places.length; i++) places[i]! += along_[i]! * (strides[axis] ?? 0);
  return withTensor(input, pick("gather", input.tensor, places, index.shape));
}

function indexSelect(meter: WorkMeter, input: GraphTensor, along: number, index: GraphTensor): GraphTensor {
  const axis = dimensionOf(along, input.shape.length);
  const { outer, size, inner } = aroundAxis(input.shape, axis);
  const chosen = indicesOf(index, size);
  meter.charge(outer * chosen.length * inner);
  const places = new Int32Array(outer * chosen.length * inner);
  for (let i = 0; i < places.length; i++) {
    const block = Math.floor(i / inner);
    places[i] =
      (Math.floor(block / chosen.length) * size + chosen[block % chosen.length]!) * inner + (i % inner);
  }
  const shape = input.shape.map((each, at) => (at === axis ? chosen.length : each));
  return withTensor(input, pick("index_select", input.tensor, places, shape));
}

/** Operations that choose elements by tensors of indices. */
export const GATHERING: Readonly<Record<string, GraphOperation>> = {
  gather: charged([x, dim, tensorArgument("index")], gatherAlong),
  take_along_dim: charged([x, tensorArgument("indices"), orNone(dim)], (meter, input, index, along) =>
    along === null
      ? gatherAlong(meter, shapeTo(input, [input.tensor.size]), 0, shapeTo(index, [index.tensor.size]))
      : gatherAlong(meter, input, along, index),
  ),
  index_select: charged([x, dim, tensorArgument("index")], indexSelect),
};
