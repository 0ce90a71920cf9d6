import { broadcastAll } from "../autograd/broadcast.js";
import {
  add,
  div,
  equal,
  exp,
  log,
  maximum,
  minimum,
  mul,
  neg,
  type Operand,
  pow,
  sqrt,
  stopGradient,
  sub,
  Tensor,
  where,
} from "../autograd/index.js";
import { dtypeOf, mapElements, operandOf, type Pair, pair } from "./element-helpers.js";
import {
  anyArgument,
  type GraphOperation,
  graphOperation,
  numberArgument,
  operandArgument,
  orNone,
  tensorArgument,
} from "./operation.js";
import { GraphTensor, graphError, promote, promoteToFloat } from "./values.js";

const x = tensorArgument("input");

/** Arithmetic on tensors, or on two numbers such as sizes. */
function arithmetic(
  onTensors: (left: Operand, right: Operand) => Tensor,
  onNumbers: (left: number, right: number) => number,
  dtype: typeof promote = promote,
): GraphOperation {
  return graphOperation(pair, (left, right) => {
    if (typeof left === "number" && typeof right === "number") return onNumbers(left, right);
    return new GraphTensor(
      onTensors(operandOf(left), operandOf(right)),
      dtype(dtypeOf(left), dtypeOf(right)),
    );
  });
}

/** `input + alpha * other`, or with a minus. */
function scaled(
  combine: (left: Operand, right: Operand) => Tensor,
  onNumbers: (left: number, right: number) => number,
): GraphOperation {
  return graphOperation([...pair, numberArgument("alpha", 1)], (left, right, alpha) => {
    if (typeof left === "number" && typeof right === "number") return onNumbers(left, alpha * right);
    const other = alpha === 1 ? operandOf(right) : mul(operandOf(right), alpha);
    return new GraphTensor(combine(operandOf(left), other), promote(dtypeOf(left), dtypeOf(right)));
  });
}

/** The quotient rounded down, without the rounding of a division: -0.9 / 0.3 is -3. */
function floorQuotient(a: number, b: number): number {
  const left = a % b;
  const exact = (a - left) / b;
  return Math.round(left !== 0 && left < 0 !== b < 0 ? exact - 1 : exact);
}

/** Like a step, it has no gradient. */
function floorDivide(left: Operand, right: Operand): Tensor {
  const [first, second] = broadcastAll("floor_divide", [left, right]) as [Tensor, Tensor];
  const y = new Float64Array(first.size);
  for (let i = 0; i < y.length; i++) {
    const [a, b] = [first.values[i]!, second.values[i]!];
    y[i] = b === 0 || !Number.isFinite(a) ? a / b : floorQuotient(a, b);
  }
  return new Tensor(y, first.shape);
}

function remainder(left: Operand, right: Operand): Tensor {
  return sub(left, mul(right, floorDivide(left, right)));
}

/** Clamps between numbers or tensors. As in torch, a value at a number has no gradient, one at a tensor half of it. */
function clampTo(
  input: GraphTensor,
  min: GraphTensor | number | null,
  max: GraphTensor | number | null,
): GraphTensor {
  const bounds = [min, max].filter((each) => each !== null);
  const dtype = promote(input.dtype, ...bounds.map(dtypeOf));
  if (min instanceof GraphTensor || max instanceof GraphTensor) {
    const raised = min === null ? input.tensor : maximum(input.tensor, operandOf(min));
    return new GraphTensor(max === null ? raised : minimum(raised, operandOf(max)), dtype);
  }
  const low = min ?? Number.NEGATIVE_INFINITY;
  const high = max ?? Number.POSITIVE_INFINITY;
  const clamped = mapElements(
    "clamp",
    input.tensor,
    (each) => Math.min(Math.max(each, low), high),
    (each) => Number(each > low && each < high),
  );
  return new GraphTensor(clamped, dtype);
}

const select = (condition: GraphTensor, left: Pair, right: Pair) =>
  new GraphTensor(
    where(condition.tensor, operandOf(left), operandOf(right)),
    promote(dtypeOf(left), dtypeOf(right)),
  );

const divide = arithmetic(div, (left, right) => left / right, promoteToFloat);
const floorDivision = arithmetic(floorDivide, floorQuotient);
const modulo = arithmetic(remainder, (left, right) => left - right * floorQuotient(left, right));
const multiply = arithmetic(mul, (left, right) => left * right);
const power = arithmetic(pow, (left, right) => left ** right);
const addition = scaled(add, (left, right) => left + right);
const subtraction = scaled(sub, (left, right) => left - right);
const negative = graphOperation([operandArgument("input")], (input) =>
  typeof input === "number" ? -input : new GraphTensor(neg(input.tensor), input.dtype),
);
const clamping = graphOperation([x, orNone(operandArgument("min")), orNone(operandArgument("max"))], clampTo);
const lowest = arithmetic(minimum, Math.min);
const highest = arithmetic(maximum, Math.max);

/** `value` times a product or quotient, added. */
const addCombined = (combine: (left: Operand, right: Operand) => Tensor): GraphOperation =>
  graphOperation(
    [x, tensorArgument("tensor1"), tensorArgument("tensor2"), numberArgument("value", 1)],
    (input, first, second, value) =>
      new GraphTensor(
        add(input.tensor, mul(combine(first.tensor, second.tensor), value)),
        promote(input.dtype, first.dtype, second.dtype),
      ),
  );

/** x * log(y), and 0 where x is 0. */
const xlogy = graphOperation([x, tensorArgument("other")], (left, right) => {
  const isZero = equal(left.tensor, 0);
  const product = mul(left.tensor, log(where(isZero, 1, right.tensor)));
  return new GraphTensor(where(isZero, 0, product), promoteToFloat(left.dtype, right.dtype));
});

/** log(exp(a) + exp(b)) without overflow. */
function logAddExp(left: Operand, right: Operand): Tensor {
  const highestOf = stopGradient(maximum(left, right));
  const shift = where(
    mapElements("isfinite", highestOf, (each) => Number(Number.isFinite(each))),
    highestOf,
    0,
  );
  return add(shift, log(add(exp(sub(left, shift)), exp(sub(right, shift)))));
}

/** Arithmetic and choices, element by element. */
export const ELEMENTWISE: Readonly<Record<string, GraphOperation>> = {
  add: addition,
  iadd: addition,
  sub: subtraction,
  subtract: subtraction,
  isub: subtraction,
  rsub: graphOperation([...pair, numberArgument("alpha", 1)], (left, right, alpha) => {
    if (typeof left === "number" && typeof right === "number") return right - alpha * left;
    return new GraphTensor(
      sub(operandOf(right), mul(operandOf(left), alpha)),
      promote(dtypeOf(left), dtypeOf(right)),
    );
  }),
  mul: multiply,
  imul: multiply,
  multiply,
  div: graphOperation([...pair, orNone(anyArgument("rounding_mode"))], (left, right, rounding) => {
    if (typeof left === "number" && typeof right === "number") return left / right;
    const quotient = div(operandOf(left), operandOf(right));
    const dtype = promote(dtypeOf(left), dtypeOf(right));
    if (rounding === null) return new GraphTensor(quotient, promoteToFloat(dtype));
    if (rounding === "floor") return new GraphTensor(floorDivide(operandOf(left), operandOf(right)), dtype);
    if (rounding !== "trunc") throw graphError("rounding_mode must be None, 'floor' or 'trunc'");
    return new GraphTensor(mapElements("div", stopGradient(quotient), Math.trunc), dtype);
  }),
  divide,
  truediv: divide,
  itruediv: divide,
  true_divide: divide,
  floordiv: floorDivision,
  floor_divide: floorDivision,
  mod: modulo,
  remainder: modulo,
  fmod: arithmetic(
    (left, right) => sub(left, mul(right, mapElements("trunc", stopGradient(div(left, right)), Math.trunc))),
    (left, right) => left % right,
  ),
  pow: power,
  float_power: power,
  neg: negative,
  negative,
  heaviside: graphOperation([x, tensorArgument("values")], (input, values) => {
    const step = mapElements("heaviside", stopGradient(input.tensor), (each) => Number(each > 0));
    return new GraphTensor(where(equal(input.tensor, 0), values.tensor, step), values.dtype);
  }),
  minimum: lowest,
  fmin: lowest,
  maximum: highest,
  fmax: highest,
  clamp: clamping,
  clip: clamping,
  clamp_min: graphOperation([x, operandArgument("min")], (input, min) => clampTo(input, min, null)),
  clamp_max: graphOperation([x, operandArgument("max")], (input, max) => clampTo(input, null, max)),
  where: graphOperation(
    [tensorArgument("condition"), operandArgument("input"), operandArgument("other")],
    select,
  ),
  ".where": graphOperation(
    [x, tensorArgument("condition"), operandArgument("other")],
    (input, condition, other) => select(condition, input, other),
  ),
  masked_fill: graphOperation(
    [x, tensorArgument("mask"), operandArgument("value")],
    (input, mask, value) => new GraphTensor(where(mask.tensor, operandOf(value), input.tensor), input.dtype),
  ),
  lerp: graphOperation(
    [x, tensorArgument("end"), operandArgument("weight")],
    (start, end, weight) =>
      new GraphTensor(
        add(start.tensor, mul(operandOf(weight), sub(end.tensor, start.tensor))),
        promoteToFloat(start.dtype, end.dtype),
      ),
  ),
  addcmul: addCombined(mul),
  addcdiv: addCombined(div),
  logaddexp: graphOperation(
    [x, tensorArgument("other")],
    (left, right) =>
      new GraphTensor(logAddExp(left.tensor, right.tensor), promoteToFloat(left.dtype, right.dtype)),
  ),
  xlogy,
  hypot: graphOperation(
    [x, tensorArgument("other")],
    (left, right) =>
      new GraphTensor(
        sqrt(add(mul(left.tensor, left.tensor), mul(right.tensor, right.tensor))),
        promoteToFloat(left.dtype, right.dtype),
      ),
  ),
};
