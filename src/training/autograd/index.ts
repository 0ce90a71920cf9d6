/** Reverse-mode gradients over typed arrays: the operations that losses need, and nothing to free. */
export { concat, gather, reshape, slice, stack } from "./arrange.js";
export { backward, fromGradients, Gradients } from "./backward.js";
export { add, div, maximum, minimum, mul, pow, sub, where } from "./binary.js";
export { equal, greater, greaterEqual, less, lessEqual, notEqual } from "./compare.js";
export { matmul, transpose } from "./matrix.js";
export { cumulativeSum } from "./pick.js";
export { logSumExp, mean, type ReduceOptions, softmax, sum } from "./reduce.js";
export {
  isTensor,
  type NestedList,
  type Operand,
  type ShapedValues,
  Tensor,
  tensor,
  variable,
} from "./tensor.js";
export {
  abs,
  clamp,
  exp,
  log,
  logSigmoid,
  neg,
  sigmoid,
  softplus,
  sqrt,
  stopGradient,
  tanh,
} from "./unary.js";
