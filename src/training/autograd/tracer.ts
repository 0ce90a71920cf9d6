import type { Operand, Tensor } from "./tensor.js";

/** Records operations on tensors whose values are not known yet. */
export interface Tracer {
  /** Stands for the result of an operation; settings are those that change what it computes. */
  record(
    operation: string,
    operands: readonly Operand[],
    settings?: Readonly<Record<string, unknown>>,
  ): Tensor;
}

// As for tensors: the SDK and its subpaths may be bundled apart.
const TRACER = Symbol.for("tinkerts.autograd.tracer");

/** @internal Marks the tensors of a tracer. */
export const TRACER_KEY: typeof TRACER = TRACER;

/** @internal The tracer of the first operand that has one. */
export function tracerOf(operands: readonly Operand[]): Tracer | undefined {
  for (const operand of operands)
    if (typeof operand === "object" && operand !== null && TRACER in operand)
      return (operand as unknown as Record<typeof TRACER, Tracer>)[TRACER];
  return undefined;
}
