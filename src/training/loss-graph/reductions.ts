import {
  abs,
  add,
  cumulativeSum,
  div,
  equal,
  exp,
  log,
  logSumExp,
  mean,
  mul,
  notEqual,
  pow,
  reshape,
  softmax,
  sqrt,
  stopGradient,
  sub,
  type Tensor,
  where,
} from "../autograd/index.js";
import { asVector, countOf, type Dims, reduce, total } from "./dimensions.js";
import { mapElements, truth } from "./element-helpers.js";
import { extreme } from "./extremes.js";
import {
  anyArgument,
  booleanArgument,
  type GraphOperation,
  graphOperation,
  integerArgument,
  integersArgument,
  numberArgument,
  orNone,
  tensorArgument,
} from "./operation.js";
import { dtypeOr, GraphTensor, graphError, promote, promoteToFloat } from "./values.js";

const x = tensorArgument("input");
const dims = orNone(integersArgument("dim"));
const dim = integerArgument("dim");
const keepdim = booleanArgument("keepdim", false);
const dtype = anyArgument("dtype", null);

/** The mean of nothing is NaN, as in torch. */
const average = (input: Tensor, axis: Dims, keep: boolean) =>
  countOf(input, axis) === 0 ? div(total(input, axis, keep), 0) : reduce(input, axis, keep, mean);

function variance(input: Tensor, axis: Dims, correction: number, keep: boolean): Tensor {
  const centred = sub(input, average(input, axis, true));
  const divisor = Math.max(countOf(input, axis) - correction, 0);
  return div(total(mul(centred, centred), axis, keep), divisor);
}

/** `var(dim, unbiased, keepdim)`, `var(dim, correction, keepdim)` or `var(unbiased)`. */
const spread = (finish: (variance: Tensor) => Tensor): GraphOperation =>
  graphOperation(
    [
      x,
      anyArgument("dim", null),
      orNone(booleanArgument("unbiased")),
      keepdim,
      orNone(numberArgument("correction")),
    ],
    (input, given, unbiased, keep, correction) => {
      const isFlag = typeof given === "boolean";
      const axis = isFlag || given === null ? null : integersArgument("dim").read(given, "dim");
      const isUnbiased = isFlag ? given : (unbiased ?? true);
      const result = variance(input.tensor, axis, correction ?? Number(isUnbiased), keep);
      return new GraphTensor(finish(result), promoteToFloat(input.dtype));
    },
  );

/** The root of x, with a gradient of 0 at 0, where torch takes a norm's subgradient. */
function rootOf(squares: Tensor): Tensor {
  const isZero = equal(squares, 0);
  return where(isZero, 0, sqrt(where(isZero, 1, squares)));
}

export function vectorNorm(input: Tensor, order: number, axis: Dims, keep: boolean): Tensor {
  if (order === 2) return rootOf(total(mul(input, input), axis, keep));
  if (order === 1) return total(abs(input), axis, keep);
  if (order === 0) return total(notEqual(input, 0), axis, keep);
  if (order === Number.POSITIVE_INFINITY) return extreme(abs(input), axis, keep, 1);
  if (order === Number.NEGATIVE_INFINITY) return extreme(abs(input), axis, keep, -1);
  return pow(total(pow(abs(input), order), axis, keep), 1 / order);
}

const norm = graphOperation([x, anyArgument("p", 2), dims, keepdim, dtype], (input, p, axis, keep) => {
  const order = p === "fro" || p === null ? 2 : numberArgument("p").read(p, "p");
  return new GraphTensor(vectorNorm(input.tensor, order, axis, keep), promoteToFloat(input.dtype));
});
/** The norms of `torch.linalg`; those of matrices are not among them. */
const orderedNorm = (isOfVectors: boolean): GraphOperation =>
  graphOperation([x, anyArgument("ord", 2), dims, keepdim, dtype], (input, ord, axis, keep) => {
    const isMatrix = input.shape.length > 1 && axis === null && ord !== null && ord !== 2;
    if (isMatrix && !isOfVectors)
      throw graphError("matrix norms are not supported; use torch.linalg.vector_norm");
    const order = ord === null ? 2 : numberArgument("ord").read(ord, "ord");
    return new GraphTensor(vectorNorm(input.tensor, order, axis, keep), promoteToFloat(input.dtype));
  });

/** `log(sum(exp(x)))`. */
const logSum = graphOperation(
  [x, integersArgument("dim"), keepdim],
  (input, axis, keep) =>
    new GraphTensor(reduce(input.tensor, axis, keep, logSumExp), promoteToFloat(input.dtype)),
);

function softmaxAlong(input: Tensor, axis: number): Tensor {
  const { tensor, isScalar } = asVector(input, [axis]);
  const soft = softmax(tensor, { axis });
  return isScalar ? reshape(soft, []) : soft;
}

const normalized = (run: (input: Tensor, axis: number) => Tensor): GraphOperation =>
  graphOperation([x, orNone(dim), dtype], (input, axis, given) => {
    // The default that torch deprecates.
    const along = axis ?? ([0, 1, 3].includes(input.shape.length) ? 0 : 1);
    return new GraphTensor(run(input.tensor, along), dtypeOr(given, promoteToFloat(input.dtype)));
  });

const logSoftmaxAlong = (input: Tensor, axis: number) => sub(input, reduce(input, [axis], true, logSumExp));

const softmaxes = normalized(softmaxAlong);
const logSoftmaxes = normalized(logSoftmaxAlong);

const accumulate = (input: Tensor, axis: number): Tensor => {
  const { tensor, isScalar } = asVector(input, [axis]);
  const summed = cumulativeSum(tensor, { axis });
  return isScalar ? reshape(summed, []) : summed;
};

/** The product of elements: each gradient is the product of the others. */
function product(input: Tensor, axis: Dims, keep: boolean): Tensor {
  const isNegative = mapElements("sign", stopGradient(input), (each) => Number(each < 0));
  const hasZero = total(equal(input, 0), axis, true).values.some((count) => count > 0);
  if (hasZero && input.requiresGradient)
    throw graphError("the gradient of a product with a zero factor is not supported");
  const parity = mapElements("parity", total(isNegative, axis, keep), (count) => 1 - 2 * (count % 2));
  return mul(parity, exp(total(log(abs(input)), axis, keep)));
}

const truthAlong = (holds: (count: number, size: number) => boolean): GraphOperation =>
  graphOperation([x, dims, keepdim], (input, axis, keep) => {
    const size = countOf(input.tensor, axis);
    const count = total(notEqual(input.tensor, 0), axis, keep);
    return truth(mapElements("count", count, (each) => Number(holds(each, size))));
  });

/** Sums, means, norms, the softmax family, cumulative sums. */
export const REDUCTIONS: Readonly<Record<string, GraphOperation>> = {
  sum: graphOperation(
    [x, dims, keepdim, dtype],
    (input, axis, keep, given) =>
      new GraphTensor(total(input.tensor, axis, keep), dtypeOr(given, promote("int64", input.dtype))),
  ),
  nansum: graphOperation([x, dims, keepdim, dtype], (input, axis, keep) => {
    const isMissing = mapElements("isnan", stopGradient(input.tensor), (each) => Number(Number.isNaN(each)));
    return new GraphTensor(total(where(isMissing, 0, input.tensor), axis, keep), input.dtype);
  }),
  mean: graphOperation(
    [x, dims, keepdim, dtype],
    (input, axis, keep, given) =>
      new GraphTensor(average(input.tensor, axis, keep), dtypeOr(given, promoteToFloat(input.dtype))),
  ),
  prod: graphOperation(
    [x, dims, keepdim, dtype],
    (input, axis, keep) => new GraphTensor(product(input.tensor, axis, keep), promote("int64", input.dtype)),
  ),
  var: spread((each) => each),
  std: spread(rootOf),
  norm,
  linalg_norm: orderedNorm(false),
  linalg_vector_norm: orderedNorm(true),
  logsumexp: logSum,
  softmax: softmaxes,
  softmin: normalized((input, axis) => softmaxAlong(sub(0, input), axis)),
  log_softmax: logSoftmaxes,
  cumsum: graphOperation(
    [x, dim, dtype],
    (input, axis, given) =>
      new GraphTensor(accumulate(input.tensor, axis), dtypeOr(given, promote("int64", input.dtype))),
  ),
  logcumsumexp: graphOperation([x, dim], (input, axis) => {
    const { tensor } = input;
    const most = tensor.size === 0 ? tensor : stopGradient(extreme(tensor, [axis], true, 1));
    const summed = accumulate(exp(sub(tensor, most)), axis);
    return new GraphTensor(add(log(summed), most), promoteToFloat(input.dtype));
  }),
  any: truthAlong((count) => count > 0),
  all: truthAlong((count, size) => count === size),
  count_nonzero: graphOperation(
    [x, dims],
    (input, axis) => new GraphTensor(total(notEqual(input.tensor, 0), axis, false), "int64"),
  ),
};
