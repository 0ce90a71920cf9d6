import { broadcastAll } from "./broadcast.js";
import { type Operand, result, type Tensor } from "./tensor.js";

type Values = Float64Array;

interface Gradients {
  readonly a: Values;
  readonly b: Values;
  readonly y: Values;
  readonly dy: Values;
  readonly isFresh: boolean;
}

/** An operation on pairs of elements, after broadcasting; see `elementwise` for why each has its own loops. */
function pairwise(
  operation: string,
  left: Operand,
  right: Operand,
  forward: (a: Values, b: Values, y: Values) => void,
  backwardLeft: (values: Gradients, da: Values) => void,
  backwardRight: (values: Gradients, db: Values) => void,
): Tensor {
  const [first, second] = broadcastAll(operation, [left, right]) as [Tensor, Tensor];
  const a = first.data;
  const b = second.data;
  const y = new Float64Array(a.length);
  forward(a, b, y);
  return result(operation, y, first.shape, [first, second], (dy, [da, db], isFresh) => {
    if (da !== undefined) backwardLeft({ a, b, y, dy, isFresh: isFresh[0]! }, da);
    if (db !== undefined) backwardRight({ a, b, y, dy, isFresh: isFresh[1]! }, db);
  });
}

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

export function sub(left: Operand, right: Operand): Tensor {
  return pairwise(
    "sub",
    left,
    right,
    (a, b, y) => {
      for (let i = 0; i < y.length; i++) y[i] = a[i]! - b[i]!;
    },
    passOn,
    ({ dy }, db) => {
      for (let i = 0; i < dy.length; i++) db[i]! -= dy[i]!;
    },
  );
}

export function mul(left: Operand, right: Operand): Tensor {
  return pairwise(
    "mul",
    left,
    right,
    (a, b, y) => {
      for (let i = 0; i < y.length; i++) y[i] = a[i]! * b[i]!;
    },
    ({ b, dy }, da) => {
      for (let i = 0; i < dy.length; i++) da[i]! += dy[i]! * b[i]!;
    },
    ({ a, dy }, db) => {
      for (let i = 0; i < dy.length; i++) db[i]! += dy[i]! * a[i]!;
    },
  );
}

export function div(left: Operand, right: Operand): Tensor {
  return pairwise(
    "div",
    left,
    right,
    (a, b, y) => {
      for (let i = 0; i < y.length; i++) y[i] = a[i]! / b[i]!;
    },
    ({ b, dy }, da) => {
      for (let i = 0; i < dy.length; i++) da[i]! += dy[i]! / b[i]!;
    },
    ({ b, y, dy }, db) => {
      for (let i = 0; i < dy.length; i++) db[i]! -= (dy[i]! * y[i]!) / b[i]!;
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
    ({ a, b, dy }, da) => {
      // The 0th power is constant, also at 0, where b * a^(b-1) would be 0 * Infinity.
      for (let i = 0; i < dy.length; i++) if (b[i] !== 0) da[i]! += dy[i]! * b[i]! * a[i]! ** (b[i]! - 1);
    },
    ({ a, y, dy }, db) => {
      for (let i = 0; i < dy.length; i++) if (y[i] !== 0) db[i]! += dy[i]! * y[i]! * Math.log(a[i]!);
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
    ({ a, b, dy }, da) => passWhereLower(a, b, dy, da),
    ({ a, b, dy }, db) => passWhereLower(b, a, dy, db),
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
    ({ a, b, dy }, da) => passWhereLower(b, a, dy, da),
    ({ a, b, dy }, db) => passWhereLower(a, b, dy, db),
  );
}

/** Takes `left` where the condition is not zero, and `right` elsewhere. */
export function where(condition: Operand, left: Operand, right: Operand): Tensor {
  const [test, first, second] = broadcastAll("where", [condition, left, right]) as [Tensor, Tensor, Tensor];
  const chosen = test.data;
  const y = new Float64Array(chosen.length);
  for (let i = 0; i < y.length; i++) y[i] = chosen[i] !== 0 ? first.data[i]! : second.data[i]!;
  return result("where", y, first.shape, [first, second], (dy, [da, db]) => {
    if (da !== undefined) for (let i = 0; i < dy.length; i++) if (chosen[i] !== 0) da[i]! += dy[i]!;
    if (db !== undefined) for (let i = 0; i < dy.length; i++) if (chosen[i] === 0) db[i]! += dy[i]!;
  });
}

function passOn({ dy, isFresh }: Gradients, into: Values): void {
  if (isFresh) into.set(dy);
  else for (let i = 0; i < dy.length; i++) into[i]! += dy[i]!;
}

/** The gradient where `low` is the lower one: for a minimum of `low` with `high`, or a maximum of `high` with `low`. */
function passWhereLower(low: Values, high: Values, dy: Values, into: Values): void {
  for (let i = 0; i < dy.length; i++) {
    if (low[i]! < high[i]!) into[i]! += dy[i]!;
    else if (low[i] === high[i]) into[i]! += dy[i]! / 2;
  }
}
