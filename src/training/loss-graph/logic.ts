import {
  add,
  equal,
  greater,
  greaterEqual,
  less,
  lessEqual,
  mul,
  notEqual,
  type Operand,
  sub,
  type Tensor,
} from "../autograd/index.js";
import { mapElements, operandOf, pair, truth } from "./element-helpers.js";
import { type GraphOperation, graphOperation, tensorArgument } from "./operation.js";
import { GraphTensor, graphError } from "./values.js";

const x = tensorArgument("input");

const comparison = (
  onTensors: (left: Operand, right: Operand) => Tensor,
  onNumbers: (left: number, right: number) => boolean,
): GraphOperation =>
  graphOperation(pair, (left, right) => {
    if (typeof left === "number" && typeof right === "number") return onNumbers(left, right);
    return truth(onTensors(operandOf(left), operandOf(right)));
  });

/** Logic on truth values, or on the truth of numbers. */
const logic = (
  name: string,
  combine: (a: boolean, b: boolean) => boolean,
  isBitwise: boolean,
): GraphOperation =>
  graphOperation([x, tensorArgument("other")], (left, right) => {
    if (isBitwise && (left.dtype !== "bool" || right.dtype !== "bool"))
      throw graphError(
        `takes truth values, such as the result of a comparison, got ${left.dtype} and ${right.dtype}`,
      );
    const [a, b] = [notEqual(left.tensor, 0), notEqual(right.tensor, 0)];
    // For truth values, addition counts how many hold.
    const held = add(a, mul(b, 2));
    return truth(mapElements(name, held, (count) => Number(combine(count === 1 || count === 3, count >= 2))));
  });

const and = logic("and", (a, b) => a && b, true);
const or = logic("or", (a, b) => a || b, true);
const xor = logic("xor", (a, b) => a !== b, true);
const not = graphOperation([x], (input) => {
  if (input.dtype === "bool") return truth(equal(input.tensor, 0));
  if (input.dtype === "int64") return new GraphTensor(sub(-1, input.tensor), "int64");
  throw graphError(`takes truth values, such as the result of a comparison, got ${input.dtype}`);
});
const greaterThan = comparison(greater, (a, b) => a > b);
const atLeast = comparison(greaterEqual, (a, b) => a >= b);
const lessThan = comparison(less, (a, b) => a < b);
const atMost = comparison(lessEqual, (a, b) => a <= b);
const equals = comparison(equal, (a, b) => a === b);
const differs = comparison(notEqual, (a, b) => a !== b);

/** Comparisons, and logic on their results. */
export const LOGIC: Readonly<Record<string, GraphOperation>> = {
  gt: greaterThan,
  greater: greaterThan,
  ge: atLeast,
  greater_equal: atLeast,
  lt: lessThan,
  less: lessThan,
  le: atMost,
  less_equal: atMost,
  eq: equals,
  ne: differs,
  not_equal: differs,
  and_: and,
  bitwise_and: and,
  or_: or,
  bitwise_or: or,
  xor,
  bitwise_xor: xor,
  invert: not,
  inv: not,
  bitwise_not: not,
  logical_and: logic("and", (a, b) => a && b, false),
  logical_or: logic("or", (a, b) => a || b, false),
  logical_xor: logic("xor", (a, b) => a !== b, false),
  logical_not: graphOperation([x], (input) => truth(equal(input.tensor, 0))),
};
