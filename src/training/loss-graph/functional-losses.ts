import {
  abs,
  add,
  div,
  exp,
  greater,
  log,
  maximum,
  mean,
  mul,
  neg,
  softplus,
  sub,
  sum,
  type Tensor,
  where,
} from "../autograd/index.js";
import {
  booleanArgument,
  type GraphOperation,
  graphOperation,
  integerArgument,
  numberArgument,
  orNone,
  tensorArgument,
  textArgument,
} from "./operation.js";
import { vectorNorm } from "./reductions.js";
import { GraphTensor, graphError, promoteToFloat } from "./values.js";

const x = tensorArgument("input");
const other = tensorArgument("other");
const target = tensorArgument("target");
const reduction = textArgument("reduction", "mean");

function reduced(losses: Tensor, how: string, batch = losses.shape[0] ?? 1): GraphTensor {
  const sized = () => {
    switch (how) {
      case "none":
        return losses;
      case "sum":
        return sum(losses);
      case "mean":
        return losses.size === 0 ? div(sum(losses), 0) : mean(losses);
      case "batchmean":
        return div(sum(losses), batch);
      default:
        throw graphError(`reduction must be none, mean or sum, got ${how}`);
    }
  };
  return new GraphTensor(sized(), "float32");
}

const lossOf = (compute: (input: Tensor, target: Tensor) => Tensor): GraphOperation =>
  graphOperation([x, target, reduction, orNone(tensorArgument("weight"))], (input, wanted, how, weight) => {
    if (weight !== null) throw graphError("weight is not supported; multiply the losses instead");
    return reduced(compute(input.tensor, wanted.tensor), how);
  });

/** Quadratic up to `delta`, linear beyond it. */
function huber(input: Tensor, wanted: Tensor, delta: number): Tensor {
  const distance = abs(sub(input, wanted));
  const square = mul(mul(distance, distance), 0.5);
  return where(greater(distance, delta), mul(sub(distance, 0.5 * delta), delta), square);
}

/** `a · log b`, and 0 where a is 0. */
const timesLog = (a: Tensor, b: Tensor): Tensor => {
  const isZero = a.values.map((each) => Number(each === 0));
  const safe = where({ data: isZero, shape: a.shape }, 1, b);
  return where({ data: isZero, shape: a.shape }, 0, mul(a, log(safe)));
};

const normalize = graphOperation(
  [x, numberArgument("p", 2), integerArgument("dim", 1), numberArgument("eps", 1e-12)],
  (input, p, dim, eps) =>
    new GraphTensor(
      div(input.tensor, maximum(vectorNorm(input.tensor, p, [dim], true), eps)),
      promoteToFloat(input.dtype),
    ),
);

const cosine = graphOperation(
  [x, other, integerArgument("dim", 1), numberArgument("eps", 1e-8)],
  (first, second, dim, eps) => {
    const length = (each: GraphTensor) => maximum(vectorNorm(each.tensor, 2, [dim], true), eps);
    const scaled = mul(div(first.tensor, length(first)), div(second.tensor, length(second)));
    return new GraphTensor(sum(scaled, { axis: dim }), promoteToFloat(first.dtype, second.dtype));
  },
);

/** Losses and distances of `torch.nn.functional`. */
export const FUNCTIONAL_LOSSES: Readonly<Record<string, GraphOperation>> = {
  mse_loss: lossOf((input, wanted) => {
    const difference = sub(input, wanted);
    return mul(difference, difference);
  }),
  l1_loss: lossOf((input, wanted) => abs(sub(input, wanted))),
  smooth_l1_loss: graphOperation(
    [x, target, reduction, numberArgument("beta", 1)],
    (input, wanted, how, beta) => {
      const losses =
        beta === 0
          ? abs(sub(input.tensor, wanted.tensor))
          : div(huber(input.tensor, wanted.tensor, beta), beta);
      return reduced(losses, how);
    },
  ),
  huber_loss: graphOperation(
    [x, target, reduction, numberArgument("delta", 1), orNone(tensorArgument("weight"))],
    (input, wanted, how, delta, weight) => {
      if (weight !== null) throw graphError("weight is not supported; multiply the losses instead");
      return reduced(huber(input.tensor, wanted.tensor, delta), how);
    },
  ),
  kl_div: graphOperation(
    [x, target, reduction, booleanArgument("log_target", false)],
    (input, wanted, how, isLog) => {
      const losses = isLog
        ? mul(exp(wanted.tensor), sub(wanted.tensor, input.tensor))
        : sub(timesLog(wanted.tensor, wanted.tensor), mul(wanted.tensor, input.tensor));
      return reduced(losses, how);
    },
  ),
  binary_cross_entropy_with_logits: lossOf((input, wanted) => sub(softplus(input), mul(input, wanted))),
  binary_cross_entropy: lossOf((input, wanted) =>
    neg(add(mul(wanted, maximum(log(input), -100)), mul(sub(1, wanted), maximum(log(sub(1, input)), -100)))),
  ),
  hinge_embedding_loss: graphOperation(
    [x, target, numberArgument("margin", 1), reduction],
    (input, wanted, margin, how) => {
      const far = maximum(sub(margin, input.tensor), 0);
      return reduced(where(greater(wanted.tensor, 0), input.tensor, far), how);
    },
  ),
  margin_ranking_loss: graphOperation(
    [tensorArgument("input1"), tensorArgument("input2"), target, numberArgument("margin", 0), reduction],
    (first, second, wanted, margin, how) => {
      const gap = mul(wanted.tensor, sub(first.tensor, second.tensor));
      return reduced(maximum(sub(margin, gap), 0), how);
    },
  ),
  normalize,
  cosine_similarity: cosine,
  dist: graphOperation(
    [x, other, numberArgument("p", 2)],
    (first, second, p) =>
      new GraphTensor(vectorNorm(sub(first.tensor, second.tensor), p, null, false), "float32"),
  ),
};
