import {
  abs,
  add,
  div,
  equal,
  exp,
  greater,
  log,
  logSigmoid,
  mul,
  neg,
  pow,
  sigmoid,
  softplus,
  sqrt,
  stopGradient,
  sub,
  type Tensor,
  tanh,
  where,
} from "../autograd/index.js";
import { mapElements, truth } from "./element-helpers.js";
import {
  anyArgument,
  type GraphOperation,
  graphOperation,
  integerArgument,
  numberArgument,
  orNone,
  tensorArgument,
} from "./operation.js";
import { GraphTensor, promote, promoteToFloat } from "./values.js";

const x = tensorArgument("input");

const toFloat = (run: (input: Tensor) => Tensor): GraphOperation =>
  graphOperation([x], (input) => new GraphTensor(run(input.tensor), promoteToFloat(input.dtype)));
const keepDtype = (run: (input: Tensor) => Tensor): GraphOperation =>
  graphOperation([x], (input) => new GraphTensor(run(input.tensor), promote("int64", input.dtype)));
const mapped = (
  name: string,
  compute: (x: number) => number,
  derivative: (x: number, y: number) => number,
): GraphOperation => toFloat((input) => mapElements(name, input, compute, derivative));
/** Steps: their derivative is zero. */
const stepped = (name: string, compute: (x: number) => number): GraphOperation =>
  keepDtype((input) => mapElements(name, input, compute));
const tested = (name: string, holds: (x: number) => boolean): GraphOperation =>
  graphOperation([x], (input) =>
    truth(mapElements(name, stopGradient(input.tensor), (each) => Number(holds(each)))),
  );

/** Rounds halves to even numbers, as torch does. */
function roundHalfToEven(value: number): number {
  const down = Math.floor(value);
  if (value - down !== 0.5) return Math.round(value);
  return down % 2 === 0 ? down : down + 1;
}

/** The error function, to about 15 digits: a series near 0, a continued fraction beyond. */
function erf(value: number): number {
  const size = Math.abs(value);
  if (!(size < 6)) return Math.sign(value);
  if (size < 2.5) {
    let term = size;
    let total = size;
    for (let n = 1; term > 1e-17 * total; n++) {
      term *= (2 * size * size) / (2 * n + 1);
      total += term;
    }
    return (Math.sign(value) * 2 * total * Math.exp(-size * size)) / Math.sqrt(Math.PI);
  }
  let fraction = size;
  for (let n = 60; n > 0; n--) fraction = size + n / 2 / fraction;
  return Math.sign(value) * (1 - Math.exp(-size * size) / (fraction * Math.sqrt(Math.PI)));
}

const erfSlope = (value: number) => (2 / Math.sqrt(Math.PI)) * Math.exp(-value * value);
const LN2 = Math.LN2;
const SQRT_2_OVER_PI = Math.sqrt(2 / Math.PI);

const relu: GraphOperation = keepDtype((input) =>
  mapElements(
    "relu",
    input,
    (each) => (each > 0 || Number.isNaN(each) ? each : 0),
    (each) => Number(each > 0),
  ),
);

const absolute = keepDtype(abs);
const sign = stepped("sign", Math.sign);
const truncated = stepped("trunc", Math.trunc);
const expit = toFloat(sigmoid);

/** Functions of one number. */
export const UNARY: Readonly<Record<string, GraphOperation>> = {
  abs: absolute,
  absolute,
  exp: toFloat(exp),
  exp2: mapped(
    "exp2",
    (each) => 2 ** each,
    (_, y) => y * LN2,
  ),
  expm1: mapped("expm1", Math.expm1, (_, y) => y + 1),
  log: toFloat(log),
  log1p: mapped("log1p", Math.log1p, (each) => 1 / (1 + each)),
  log2: mapped("log2", Math.log2, (each) => 1 / (each * LN2)),
  log10: mapped("log10", Math.log10, (each) => 1 / (each * Math.LN10)),
  sqrt: toFloat(sqrt),
  rsqrt: mapped(
    "rsqrt",
    (each) => 1 / Math.sqrt(each),
    (each, y) => (-0.5 * y) / each,
  ),
  square: keepDtype((input) => mul(input, input)),
  reciprocal: mapped(
    "reciprocal",
    (each) => 1 / each,
    (_, y) => -y * y,
  ),
  sin: mapped("sin", Math.sin, Math.cos),
  cos: mapped("cos", Math.cos, (each) => -Math.sin(each)),
  atan: mapped("atan", Math.atan, (each) => 1 / (1 + each * each)),
  erf: mapped("erf", erf, erfSlope),
  tanh: toFloat(tanh),
  sigmoid: expit,
  expit,
  log_sigmoid: toFloat(logSigmoid),
  logsigmoid: toFloat(logSigmoid),
  logit: toFloat((input) => sub(log(input), log(sub(1, input)))),
  softplus: graphOperation(
    [x, numberArgument("beta", 1), numberArgument("threshold", 20)],
    (input, beta, threshold) => {
      const { tensor } = input;
      const soft = div(softplus(mul(tensor, beta)), beta);
      const isLarge = greater(mul(stopGradient(tensor), beta), threshold);
      return new GraphTensor(where(isLarge, tensor, soft), promoteToFloat(input.dtype));
    },
  ),
  relu,
  relu6: keepDtype((input) =>
    mapElements(
      "relu6",
      input,
      (each) => Math.min(Math.max(each, 0), 6),
      (each) => Number(each > 0 && each < 6),
    ),
  ),
  leaky_relu: graphOperation([x, numberArgument("negative_slope", 0.01)], (input, slope) => {
    const tensor = mapElements(
      "leaky_relu",
      input.tensor,
      (each) => (each > 0 ? each : each * slope),
      (each) => (each > 0 ? 1 : slope),
    );
    return new GraphTensor(tensor, promoteToFloat(input.dtype));
  }),
  elu: graphOperation([x, numberArgument("alpha", 1)], (input, alpha) => {
    const tensor = mapElements(
      "elu",
      input.tensor,
      (each) => (each > 0 ? each : alpha * Math.expm1(each)),
      (each) => (each > 0 ? 1 : alpha * Math.exp(each)),
    );
    return new GraphTensor(tensor, promoteToFloat(input.dtype));
  }),
  hardtanh: graphOperation(
    [x, numberArgument("min_val", -1), numberArgument("max_val", 1)],
    (input, min, max) => {
      const tensor = mapElements(
        "hardtanh",
        input.tensor,
        (each) => Math.min(Math.max(each, min), max),
        (each) => Number(each > min && each < max),
      );
      return new GraphTensor(tensor, promoteToFloat(input.dtype));
    },
  ),
  silu: toFloat((input) => mul(input, sigmoid(input))),
  mish: toFloat((input) => mul(input, tanh(softplus(input)))),
  softsign: toFloat((input) => div(input, add(1, abs(input)))),
  gelu: graphOperation([x, anyArgument("approximate", "none")], (input, approximate) => {
    const { tensor } = input;
    if (approximate !== "tanh") {
      const area = mapElements("gelu", div(tensor, Math.SQRT2), erf, erfSlope);
      return new GraphTensor(mul(mul(tensor, 0.5), add(1, area)), promoteToFloat(input.dtype));
    }
    const inner = mul(add(tensor, mul(pow(tensor, 3), 0.044715)), SQRT_2_OVER_PI);
    return new GraphTensor(mul(mul(tensor, 0.5), add(1, tanh(inner))), promoteToFloat(input.dtype));
  }),
  ceil: stepped("ceil", Math.ceil),
  floor: stepped("floor", Math.floor),
  round: graphOperation([x, integerArgument("decimals", 0)], (input, decimals) => {
    const factor = 10 ** decimals;
    const round = (each: number) => roundHalfToEven(each * factor) / factor;
    return new GraphTensor(mapElements("round", input.tensor, round), input.dtype);
  }),
  trunc: truncated,
  fix: truncated,
  frac: toFloat((input) => sub(input, mapElements("trunc", input, Math.trunc))),
  sign,
  sgn: sign,
  isnan: tested("isnan", Number.isNaN),
  isinf: tested("isinf", (each) => Math.abs(each) === Number.POSITIVE_INFINITY),
  isfinite: tested("isfinite", Number.isFinite),
  nan_to_num: graphOperation(
    [x, numberArgument("nan", 0), orNone(numberArgument("posinf")), orNone(numberArgument("neginf"))],
    (input, nan, posinf, neginf) => {
      const most = 3.4028234663852886e38;
      const tensor = mapElements(
        "nan_to_num",
        input.tensor,
        (each) => {
          if (Number.isNaN(each)) return nan;
          if (each === Number.POSITIVE_INFINITY) return posinf ?? most;
          return each === Number.NEGATIVE_INFINITY ? (neginf ?? -most) : each;
        },
        (each) => Number(Number.isFinite(each)),
      );
      return new GraphTensor(tensor, input.dtype);
    },
  ),
  entr: toFloat((input) => {
    const isZero = equal(input, 0);
    return neg(where(isZero, 0, mul(input, log(where(isZero, 1, input)))));
  }),
};

/** Functions of Python's `math`, on numbers such as sizes. */
export const MATH: Readonly<Record<string, GraphOperation>> = Object.fromEntries(
  (
    ["sqrt", "log", "log2", "log10", "log1p", "exp", "expm1", "floor", "ceil", "tanh", "sin", "cos"] as const
  ).map((name) => [name, graphOperation([numberArgument("x")], (value) => Math[name](value))]),
);
