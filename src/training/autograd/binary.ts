import { broadcastAll } from "./broadcast.js";
import { sameShape } from "./shape.js";
import { type Operand, result, type Tensor, toTensor, type Values } from "./tensor.js";
import { tracerOf } from "./tracer.js";

interface Pair {
  readonly a: Values;
  readonly b: Values;
  readonly y: Float64Array;
}

type Derivative = (pair: Pair, dy: Float64Array, into: Float64Array) => void;

/** An operation on pairs of elements, after broadcasting; see `elementwise` for why each has its own loops. */
function pairwise(
  operation: string,
  left: Operand,
  right: Operand,
  forward: (a: Values, b: Values, y: Float64Array) => void,
  backwardLeft: Derivative,
  backwardRight: Derivative,
): Tensor {
  const tracer = tracerOf([left, right]);
  if (tracer !== undefined) return tracer.record(operation, [left, right]);
  let first = toTensor(left, operation);
  let second = toTensor(right, operation);
  if (!sameShape(first.shape, second.shape)) {
    [first, second] = broadcastAll(operation, [first, second]) as [Tensor, Tensor];
  }
  const pair: Pair = { a: first.values, b: second.values, y: new Float64Array(first.size) };
  forward(pair.a, pair.b, pair.y);
  return result(operation, pair.y, first.shape, [first, second], (dy, into, input) =>
    (input === 0 ? backwardLeft : backwardRight)(pair, dy, into),
  );
}

/** `left + right`, element by element; shapes broadcast as in NumPy. */
export function add(left: Operand, right: Operand): Tensor {
  return pairwise(
    "add",
    left,
    right,
    (a, b, y) => {
      for (let i = 0; i < y.length; i++) y[i] = a[i]! + b[i]!;
    },
    passOn,
    passOn,
  );
}

/** `left - right`, element by element; shapes broadcast as in NumPy. */
export function sub(left: Operand, right: Operand): Tensor {
  return pairwise(
    "sub",
    left,
    right,
    (a, b, y) => {
      for (let i = 0; i < y.length; i++) y[i] = a[i]! - b[i]!;
    },
    passOn,
    (_, dy, db) => {
      for (let i = 0; i < dy.length; i++) db[i] = -dy[i]!;
    },
  );
}

/** `left * right`, element by element; shapes broadcast as in NumPy. */
export function mul(left: Operand, right: Operand): Tensor {
  return pairwise(
    "mul",
    left,
    right,
    (a, b, y) => {
      for (let i = 0; i < y.length; i++) y[i] = a[i]! * b[i]!;
    },
    ({ b }, dy, da) => {
      for (let i = 0; i < dy.length; i++) da[i] = dy[i]! * b[i]!;
    },
    ({ a }, dy, db) => {
      for (let i = 0; i < dy.length; i++) db[i] = dy[i]! * a[i]!;
    },
  );
}

/** `left / right`, element by element; shapes broadcast as in NumPy. */
export function div(left: Operand, right: Operand): Tensor {
  return pairwise(
    "div",
    left,
    right,
    (a, b, y) => {
      for (let i = 0; i < y.length; i++) y[i] = a[i]! / b[i]!;
    },
    ({ b }, dy, da) => {
      for (let i = 0; i < dy.length; i++) da[i] = dy[i]! / b[i]!;
    },
    ({ b, y }, dy, db) => {
      for (let i = 0; i < dy.length; i++) db[i] = (-dy[i]! * y[i]!) / b[i]!;
    },
  );
}

/** `base` to the power of `exponent`; both may be tensors. */
export function pow(base: Operand, exponent: Operand): Tensor {
  return pairwise(
    "pow",
    base,
    exponent,
    (a, b, y) => {
      for (let i = 0; i < y.length; i++) y[i] = a[i]! ** b[i]!;
    },
    ({ a, b }, dy, da) => {
      // The 0th power is constant, also at 0, where b * a^(b-1) would be 0 * Infinity.
      for (let i = 0; i < dy.length; i++) da[i] = b[i] === 0 ? 0 : dy[i]! * b[i]! * a[i]! ** (b[i]! - 1);
    },
    ({ a, b, y }, dy, db) => {
      // A power of 0 stays 0 (and the 0th 1), where y * log(0) would be 0 * Infinity.
      for (let i = 0; i < dy.length; i++) {
        const isConstant = y[i] === 0 || (a[i] === 0 && b[i] === 0);
        db[i] = isConstant ? 0 : dy[i]! * y[i]! * Math.log(a[i]!);
      }
    },
  );
}

/** Where both are equal, each gets half of the gradient. */
export function minimum(left: Operand, right: Operand): Tensor {
  return pairwise(
    "minimum",
    left,
    right,
    (a, b, y) => {
      for (let i = 0; i < y.length; i++) y[i] = Math.min(a[i]!, b[i]!);
    },
    ({ a, b }, dy, da) => passWhereLower(a, b, dy, da),
    ({ a, b }, dy, db) => passWhereLower(b, a, dy, db),
  );
}

/** Where both are equal, each gets half of the gradient. */
export function maximum(left: Operand, right: Operand): Tensor {
  return pairwise(
    "maximum",
    left,
    right,
    (a, b, y) => {
      for (let i = 0; i < y.length; i++) y[i] = Math.max(a[i]!, b[i]!);
    },
    ({ a, b }, dy, da) => passWhereLower(b, a, dy, da),
    ({ a, b }, dy, db) => passWhereLower(a, b, dy, db),
  );
}

/** Takes `left` where the condition is not zero, and `right` elsewhere. */
export function where(condition: Operand, left: Operand, right: Operand): Tensor {
  const tracer = tracerOf([condition, left, right]);
  if (tracer !== undefined) return tracer.record("where", [condition, left, right]);
  const [test, first, second] = broadcastAll("where", [condition, left, right]) as [Tensor, Tensor, Tensor];
  const chosen = test.values;
  const [a, b] = [first.values, second.values];
  const y = new Float64Array(chosen.length);
  for (let i = 0; i < y.length; i++) y[i] = chosen[i] !== 0 ? a[i]! : b[i]!;
  return result("where", y, first.shape, [first, second], (dy, into, input) => {
    const isLeft = input === 0;
    for (let i = 0; i < dy.length; i++) into[i] = (chosen[i] !== 0) === isLeft ? dy[i]! : 0;
  });
}

function passOn(_: Pair, dy: Float64Array, into: Float64Array): void {
  into.set(dy);
}

/** The gradient where `low` is the lower one: for a minimum of `low` with `high`, or a maximum of `high` with `low`. */
function passWhereLower(low: Values, high: Values, dy: Float64Array, into: Float64Array): void {
  for (let i = 0; i < dy.length; i++) {
    into[i] = low[i]! < high[i]! ? dy[i]! : low[i] === high[i] ? dy[i]! / 2 : 0;
  }
}
