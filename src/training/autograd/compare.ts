import { broadcastAll } from "./broadcast.js";
import { type Operand, Tensor, type Values } from "./tensor.js";
import { tracerOf } from "./tracer.js";

/** A test of pairs of elements: 1 where it holds, else 0. It has no gradient. */
function compared(
  operation: string,
  left: Operand,
  right: Operand,
  holds: (a: Values, b: Values, y: Float64Array) => void,
): Tensor {
  const tracer = tracerOf([left, right]);
  if (tracer !== undefined) return tracer.record(operation, [left, right]);
  const [first, second] = broadcastAll(operation, [left, right]) as [Tensor, Tensor];
  const y = new Float64Array(first.size);
  holds(first.values, second.values, y);
  return new Tensor(y, first.shape);
}

/** 1 where `left > right`, else 0; shapes broadcast, and no gradient flows through it. */
export function greater(left: Operand, right: Operand): Tensor {
  return compared("greater", left, right, (a, b, y) => {
    for (let i = 0; i < y.length; i++) y[i] = a[i]! > b[i]! ? 1 : 0;
  });
}

/** 1 where `left >= right`, else 0; shapes broadcast, and no gradient flows through it. */
export function greaterEqual(left: Operand, right: Operand): Tensor {
  return compared("greaterEqual", left, right, (a, b, y) => {
    for (let i = 0; i < y.length; i++) y[i] = a[i]! >= b[i]! ? 1 : 0;
  });
}

/** 1 where `left < right`, else 0; shapes broadcast, and no gradient flows through it. */
export function less(left: Operand, right: Operand): Tensor {
  return compared("less", left, right, (a, b, y) => {
    for (let i = 0; i < y.length; i++) y[i] = a[i]! < b[i]! ? 1 : 0;
  });
}

/** 1 where `left <= right`, else 0; shapes broadcast, and no gradient flows through it. */
export function lessEqual(left: Operand, right: Operand): Tensor {
  return compared("lessEqual", left, right, (a, b, y) => {
    for (let i = 0; i < y.length; i++) y[i] = a[i]! <= b[i]! ? 1 : 0;
  });
}

/** 1 where both are equal, else 0; shapes broadcast, and no gradient flows through it. */
export function equal(left: Operand, right: Operand): Tensor {
  return compared("equal", left, right, (a, b, y) => {
    for (let i = 0; i < y.length; i++) y[i] = a[i]! === b[i]! ? 1 : 0;
  });
}

/** 1 where both differ, else 0; shapes broadcast, and no gradient flows through it. */
export function notEqual(left: Operand, right: Operand): Tensor {
  return compared("notEqual", left, right, (a, b, y) => {
    for (let i = 0; i < y.length; i++) y[i] = a[i]! !== b[i]! ? 1 : 0;
  });
}
