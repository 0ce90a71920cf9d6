import { shapeError } from "./shape.js";
import { type Operand, result, Tensor, toTensor, type Values } from "./tensor.js";
import { tracerOf } from "./tracer.js";

/**
 * An operation on each element. The loops stand in the operations themselves: shared by all of them, one loop that
 * calls back for every element is several times slower.
 */
function elementwise(
  operation: string,
  operand: Operand,
  forward: (x: Values, y: Float64Array) => void,
  backward: (x: Values, y: Float64Array, dy: Float64Array, dx: Float64Array) => void,
  settings?: Readonly<Record<string, unknown>>,
): Tensor {
  const tracer = tracerOf([operand]);
  if (tracer !== undefined) return tracer.record(operation, [operand], settings);
  const input = toTensor(operand, operation);
  const output = new Float64Array(input.size);
  forward(input.values, output);
  return result(operation, output, input.shape, [input], (gradient, into) =>
    backward(input.values, output, gradient, into),
  );
}

/** `-x` of each element. */
export function neg(operand: Operand): Tensor {
  return elementwise(
    "neg",
    operand,
    (x, y) => {
      for (let i = 0; i < x.length; i++) y[i] = -x[i]!;
    },
    (x, _, dy, dx) => {
      for (let i = 0; i < x.length; i++) dx[i] = -dy[i]!;
    },
  );
}

/** `e` to the power of each element. */
export function exp(operand: Operand): Tensor {
  return elementwise(
    "exp",
    operand,
    (x, y) => {
      for (let i = 0; i < x.length; i++) y[i] = Math.exp(x[i]!);
    },
    (x, y, dy, dx) => {
      for (let i = 0; i < x.length; i++) dx[i] = dy[i]! * y[i]!;
    },
  );
}

/** The natural logarithm of each element. */
export function log(operand: Operand): Tensor {
  return elementwise(
    "log",
    operand,
    (x, y) => {
      for (let i = 0; i < x.length; i++) y[i] = Math.log(x[i]!);
    },
    (x, _, dy, dx) => {
      for (let i = 0; i < x.length; i++) dx[i] = dy[i]! / x[i]!;
    },
  );
}

/** `1 / (1 + exp(-x))` of each element. */
export function sigmoid(operand: Operand): Tensor {
  return elementwise(
    "sigmoid",
    operand,
    (x, y) => {
      for (let i = 0; i < x.length; i++) y[i] = sigmoidOf(x[i]!);
    },
    (x, y, dy, dx) => {
      for (let i = 0; i < x.length; i++) dx[i] = dy[i]! * y[i]! * sigmoidOf(-x[i]!);
    },
  );
}

/** `log(sigmoid(x))` of each element, without overflow. */
export function logSigmoid(operand: Operand): Tensor {
  return elementwise(
    "logSigmoid",
    operand,
    (x, y) => {
      for (let i = 0; i < x.length; i++) y[i] = -softplusOf(-x[i]!);
    },
    (x, _, dy, dx) => {
      for (let i = 0; i < x.length; i++) dx[i] = dy[i]! * sigmoidOf(-x[i]!);
    },
  );
}

/** `log(1 + exp(x))` of each element, without overflow. */
export function softplus(operand: Operand): Tensor {
  return elementwise(
    "softplus",
    operand,
    (x, y) => {
      for (let i = 0; i < x.length; i++) y[i] = softplusOf(x[i]!);
    },
    (x, _, dy, dx) => {
      for (let i = 0; i < x.length; i++) dx[i] = dy[i]! * sigmoidOf(x[i]!);
    },
  );
}

/** The hyperbolic tangent of each element. */
export function tanh(operand: Operand): Tensor {
  return elementwise(
    "tanh",
    operand,
    (x, y) => {
      for (let i = 0; i < x.length; i++) y[i] = Math.tanh(x[i]!);
    },
    (x, y, dy, dx) => {
      for (let i = 0; i < x.length; i++) dx[i] = dy[i]! * (1 - y[i]! * y[i]!);
    },
  );
}

/** The gradient at 0 is 0. */
export function abs(operand: Operand): Tensor {
  return elementwise(
    "abs",
    operand,
    (x, y) => {
      for (let i = 0; i < x.length; i++) y[i] = Math.abs(x[i]!);
    },
    (x, _, dy, dx) => {
      for (let i = 0; i < x.length; i++) dx[i] = dy[i]! * Math.sign(x[i]!);
    },
  );
}

/** The square root of each element. */
export function sqrt(operand: Operand): Tensor {
  return elementwise(
    "sqrt",
    operand,
    (x, y) => {
      for (let i = 0; i < x.length; i++) y[i] = Math.sqrt(x[i]!);
    },
    (x, y, dy, dx) => {
      for (let i = 0; i < x.length; i++) dx[i] = dy[i]! / (2 * y[i]!);
    },
  );
}

/** Keeps values within bounds. Values at a bound pass their gradient on, values beyond it do not. */
export function clamp(
  operand: Operand,
  bounds: { readonly min?: number | undefined; readonly max?: number | undefined },
): Tensor {
  const { min = Number.NEGATIVE_INFINITY, max = Number.POSITIVE_INFINITY } = bounds;
  if (!(min <= max)) {
    throw shapeError("clamp", `min must not be above max, got min ${min} and max ${max}`);
  }
  return elementwise(
    "clamp",
    operand,
    (x, y) => {
      for (let i = 0; i < x.length; i++) y[i] = Math.min(Math.max(x[i]!, min), max);
    },
    (x, _, dy, dx) => {
      for (let i = 0; i < x.length; i++) dx[i] = x[i]! >= min && x[i]! <= max ? dy[i]! : 0;
    },
    { min: bounds.min, max: bounds.max },
  );
}

/** Returns the values as a constant: no gradient flows through it. */
export function stopGradient(operand: Operand): Tensor {
  const tracer = tracerOf([operand]);
  if (tracer !== undefined) return tracer.record("stopGradient", [operand]);
  const { values, shape } = toTensor(operand, "stopGradient");
  return new Tensor(values, shape);
}

function sigmoidOf(x: number): number {
  if (x >= 0) return 1 / (1 + Math.exp(-x));
  const power = Math.exp(x);
  return power / (1 + power);
}

/** log(1 + exp(x)) without overflow. */
function softplusOf(x: number): number {
  return Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
}
