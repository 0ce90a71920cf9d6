import {
  add,
  div,
  equal,
  maximum,
  mul,
  reshape,
  stopGradient,
  sub,
  sum,
  Tensor,
  where,
} from "../autograd/index.js";
import { pick } from "../autograd/pick.js";
import { aroundAxis, resolveAxis } from "../autograd/shape.js";
import { asVector, countOf, type Dims, over, reduce } from "./dimensions.js";
import { mapElements } from "./element-helpers.js";
import {
  anyArgument,
  booleanArgument,
  type GraphOperation,
  graphOperation,
  integerArgument,
  integersArgument,
  operandArgument,
  orNone,
  tensorArgument,
} from "./operation.js";
import { GraphTensor, GraphTuple, graphError, promote } from "./values.js";

const x = tensorArgument("input");
const dims = orNone(integersArgument("dim"));
const dim = integerArgument("dim");
const keepdim = booleanArgument("keepdim", false);

/** The highest (or, with -1, lowest) value; those that are equal share the gradient. */
export function extreme(input: Tensor, axis: Dims, keep: boolean, sign: 1 | -1): Tensor {
  return reduce(input, axis, keep, (tensor, options) => {
    if (countOf(tensor, axis) === 0) throw graphError("of no elements");
    const best = bestAlong(tensor, axis, sign);
    const isBest = stopGradient(equal(tensor, best));
    const share = div(isBest, sum(isBest, { ...options, keepDims: true }));
    // NaN is the highest and the lowest of all.
    const chosen = where(isBest, mul(tensor, share), 0);
    return add(sum(chosen, options), sum(mapElements("isnan", stopGradient(tensor), nanOrZero), options));
  });
}

const nanOrZero = (value: number) => (Number.isNaN(value) ? Number.NaN : 0);

/** The extremes along dimensions, which stay with size 1. */
function bestAlong(input: Tensor, axis: Dims, sign: 1 | -1): Tensor {
  const { axis: axes } = over(axis, true);
  let best = stopGradient(input);
  const resolved = (axes ?? input.shape.map((_, index) => index)).map((each) =>
    resolveAxis("max", each, input),
  );
  for (const each of resolved) {
    const { places } = placesOfBest(best, each, sign);
    best = pick(
      "max",
      best,
      places,
      best.shape.map((size, index) => (index === each ? 1 : size)),
    );
  }
  return best;
}

/** Where the extremes along a dimension stand, in the whole tensor and along the dimension. */
function placesOfBest(input: Tensor, axis: number, sign: 1 | -1) {
  const { outer, size, inner } = aroundAxis(input.shape, axis);
  if (size === 0) throw graphError("of no elements");
  const { values } = input;
  const places = new Int32Array(outer * inner);
  const indices = new Float64Array(outer * inner);
  for (let block = 0; block < places.length; block++) {
    const start = Math.floor(block / inner) * size * inner + (block % inner);
    let best = 0;
    for (let k = 1; k < size; k++) {
      const [value, most] = [values[start + k * inner]!, values[start + best * inner]!];
      if (Number.isNaN(most)) break;
      if (Number.isNaN(value) || sign * value > sign * most) best = k;
    }
    places[block] = start + best * inner;
    indices[block] = best;
  }
  return { places, indices };
}

/** The extremes along one dimension and their indices; the first of equal ones gets the gradient. */
function extremeAlong(input: GraphTensor, axis: number, keep: boolean, sign: 1 | -1): GraphTuple {
  const { tensor, isScalar } = asVector(input.tensor, [axis]);
  const along = resolveAxis("max", axis, tensor);
  const { places, indices } = placesOfBest(tensor, along, sign);
  const kept = tensor.shape.map((size, index) => (index === along ? 1 : size));
  const shape = isScalar ? [] : keep ? kept : kept.filter((_, index) => index !== along);
  const values = new GraphTensor(pick("max", tensor, places, shape), input.dtype);
  return new GraphTuple(
    [values, new GraphTensor(new Tensor(indices, shape), "int64")],
    ["values", "indices"],
  );
}

/** `max(x)`, `max(x, dim)` or, element by element, `max(x, y)`. */
const best = (sign: 1 | -1, pairwise: GraphOperation): GraphOperation =>
  graphOperation(
    [x, anyArgument("dim", null), keepdim, orNone(operandArgument("other"))],
    (input, given, keep, other) => {
      const second = given instanceof GraphTensor ? given : other;
      if (second !== null) return pairwise.run({ charge: () => {} }, [input, second]);
      if (given === null) return new GraphTensor(extreme(input.tensor, null, false, sign), input.dtype);
      return extremeAlong(input, integerArgument("dim").read(given, "dim"), keep, sign);
    },
  );

const extremes = (sign: 1 | -1): GraphOperation =>
  graphOperation(
    [x, dims, keepdim],
    (input, axis, keep) => new GraphTensor(extreme(input.tensor, axis, keep, sign), input.dtype),
  );

const indexOfBest = (sign: 1 | -1): GraphOperation =>
  graphOperation([x, orNone(dim), keepdim], (input, axis, keep) => {
    if (axis !== null) return extremeAlong(input, axis, keep, sign).items[1]!;
    const flat = reshape(stopGradient(input.tensor), [input.tensor.size]);
    return extremeAlong(new GraphTensor(flat, input.dtype), 0, false, sign).items[1]!;
  });

/** The highest and lowest elements, and where they are. */
export const EXTREMES: Readonly<Record<string, GraphOperation>> = {
  max: best(
    1,
    graphOperation([x, x], (a, b) => new GraphTensor(maximum(a.tensor, b.tensor), promote(a.dtype, b.dtype))),
  ),
  min: best(
    -1,
    graphOperation(
      [x, x],
      (a, b) =>
        new GraphTensor(sub(0, maximum(sub(0, a.tensor), sub(0, b.tensor))), promote(a.dtype, b.dtype)),
    ),
  ),
  amax: extremes(1),
  amin: extremes(-1),
  argmax: indexOfBest(1),
  argmin: indexOfBest(-1),
};
