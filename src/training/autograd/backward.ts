import { TinkerError, ValidationError } from "../../errors.js";
import { describeTensor, originText, shapeError, shapeText } from "./shape.js";
import { isTensor, type Operand, result, type Tensor, toTensor, type Values } from "./tensor.js";

/** The gradients of a loss by the variables it was computed from. */
export class Gradients {
  readonly #gradients: ReadonlyMap<Tensor, Float64Array>;

  constructor(gradients: ReadonlyMap<Tensor, Float64Array>) {
    this.#gradients = gradients;
  }

  /** Whether the loss depends on the variable at all. */
  has(variable: Tensor): boolean {
    return this.#gradients.has(variable);
  }

  /** The gradient by a variable, zeros when the loss does not depend on it. */
  of(variable: Tensor): Float64Array {
    if (!variable.requiresGradient || variable.node !== undefined) {
      throw new ValidationError(
        "variable",
        "of: gradients are kept for variables only, not for what was computed",
      );
    }
    return this.#gradients.get(variable) ?? new Float64Array(variable.size);
  }
}

/**
 * The gradients of a loss of one element. Nothing is stored in the tensors, so a graph may be gone through as often
 * as one likes, and is forgotten with its last tensor. A loss or gradient that is not finite is an error that names
 * the operation where that began.
 */
export function backward(loss: Tensor): Gradients {
  if (!isTensor(loss))
    throw new ValidationError("loss", `backward: the loss must be a Tensor, got ${typeof loss}`);
  if (loss.size !== 1) {
    throw new ValidationError(
      "loss",
      `backward: the loss must have one element, got shape ${describeTensor(loss)}; reduce it with sum or mean`,
    );
  }
  const order = inputsFirst(loss);
  if (!Number.isFinite(loss.item())) throw nonFiniteValue(loss, order);
  const gradients = propagate(loss, order, () => {});
  for (const [variable, gradient] of gradients) {
    if (firstNonFinite(gradient) < 0) continue;
    // Gone through once more, slowly, to find the place.
    propagate(loss, order, refuseNonFinite);
    throw new TinkerError(`The gradient with respect to ${variable.label ?? "a variable"} is not finite.`);
  }
  return new Gradients(gradients);
}

/** A loss whose value and gradients were computed outside the graph. */
export function fromGradients(
  value: number,
  inputs: readonly Tensor[],
  gradients: readonly Operand[],
  operation = "fromGradients",
): Tensor {
  if (gradients.length !== inputs.length) {
    throw shapeError(
      operation,
      `expected ${inputs.length} gradients, one per input, got ${gradients.length}`,
    );
  }
  const known = gradients.map((gradient, index) => {
    const input = inputs[index]!;
    const { values, shape } = toTensor(gradient, operation);
    if (values.length !== input.size) {
      throw shapeError(
        operation,
        `the gradient of ${input.label ?? `input ${index}`} must have the shape ${shapeText(input.shape)}, ` +
          `got ${shapeText(shape)}`,
      );
    }
    const bad = firstNonFinite(values);
    if (bad >= 0) {
      throw new TinkerError(
        `${operation}: the gradient of ${input.label ?? `input ${index}`} is ${values[bad]} at position ${bad}`,
      );
    }
    return values;
  });
  return result(operation, Float64Array.of(value), [], inputs, ([factor], into, input) => {
    const gradient = known[input]!;
    for (let i = 0; i < into.length; i++) into[i] = factor! * gradient[i]!;
  });
}

/** All tensors that take part in the gradient, each behind its inputs. */
function inputsFirst(loss: Tensor): Tensor[] {
  const order: Tensor[] = [];
  const done = new Set<Tensor>();
  // A loss may be a sum of thousands of terms, too deep for recursion.
  const pending: { tensor: Tensor; nextInput: number }[] = [];
  const visit = (tensor: Tensor) => {
    if (!tensor.requiresGradient || done.has(tensor)) return;
    done.add(tensor);
    pending.push({ tensor, nextInput: 0 });
  };
  visit(loss);
  for (let top = pending.at(-1); top !== undefined; top = pending.at(-1)) {
    const next = top.tensor.node?.inputs[top.nextInput];
    top.nextInput += 1;
    if (next !== undefined) visit(next);
    else {
      order.push(top.tensor);
      pending.pop();
    }
  }
  return order;
}

/**
 * Goes from the loss to the variables. A gradient is needed no more once it has gone through its operation, so the
 * last input takes over its array, and what is left serves for others of the same size.
 */
function propagate(
  loss: Tensor,
  order: readonly Tensor[],
  check: (tensor: Tensor, gradients: ReadonlyMap<Tensor, Float64Array>) => void,
): Map<Tensor, Float64Array> {
  const gradients = new Map<Tensor, Float64Array>();
  const spent = new Map<number, Float64Array[]>();
  const take = (size: number) => spent.get(size)?.pop() ?? new Float64Array(size);
  const giveBack = (array: Float64Array) => {
    const sameSize = spent.get(array.length);
    if (sameSize === undefined) spent.set(array.length, [array]);
    else sameSize.push(array);
  };
  if (loss.requiresGradient) gradients.set(loss, Float64Array.of(1));
  for (let place = order.length - 1; place >= 0; place--) {
    const tensor = order[place]!;
    const { node } = tensor;
    const gradient = gradients.get(tensor);
    if (node === undefined || gradient === undefined) continue;
    gradients.delete(tensor);
    let last = node.inputs.length - 1;
    while (!node.inputs[last]!.requiresGradient) last--;
    let isTaken = false;
    for (let index = 0; index <= last; index++) {
      const input = node.inputs[index]!;
      if (!input.requiresGradient) continue;
      const known = gradients.get(input);
      if (node.accumulates) {
        const into = known ?? take(input.size).fill(0);
        node.backward(gradient, into, index);
        gradients.set(input, into);
        continue;
      }
      const canTake = index === last && input.size === gradient.length;
      const into = canTake ? gradient : take(input.size);
      node.backward(gradient, into, index);
      if (known === undefined) {
        gradients.set(input, into);
        isTaken = canTake;
      } else {
        for (let i = 0; i < known.length; i++) known[i]! += into[i]!;
        if (!canTake) giveBack(into);
      }
    }
    check(tensor, gradients);
    if (!isTaken) giveBack(gradient);
  }
  return gradients;
}

function refuseNonFinite(tensor: Tensor, gradients: ReadonlyMap<Tensor, Float64Array>): void {
  for (const input of tensor.node!.inputs) {
    const gradient = gradients.get(input);
    const position = gradient === undefined ? -1 : firstNonFinite(gradient);
    if (position < 0) continue;
    throw new TinkerError(
      `The gradient of ${tensor.node!.operation} is ${gradient![position]} at position ${position} of its input ` +
        `${describeTensor(input)}, where the value is ${input.values[position]}.`,
    );
  }
}

function nonFiniteValue(loss: Tensor, order: readonly Tensor[]): TinkerError {
  // Infinity is often harmless on the way (exp(-Infinity) is 0), so the first NaN is the better lead.
  const firstNaN = order.find(({ data }) => data.some(Number.isNaN));
  const culprit = firstNaN ?? order.find(({ values }) => firstNonFinite(values) >= 0);
  if (culprit === undefined) {
    return new TinkerError(`The loss is ${loss.data[0]}, and no operation that led to it needs a gradient.`);
  }
  const { node, data, shape } = culprit;
  const position = firstNaN === undefined ? firstNonFinite(data) : data.findIndex(Number.isNaN);
  const what = node === undefined ? (culprit.label ?? "a variable") : `the result of ${node.operation}`;
  const origin = node === undefined ? "" : originText(culprit);
  return new TinkerError(
    `The loss is ${loss.data[0]}: ${what} is ${data[position]} at position ${position} of shape ` +
      `${shapeText(shape)}${origin}.`,
  );
}

/** @internal The position of the first value that is NaN or infinite, or -1. */
export function firstNonFinite(values: Values): number {
  // 0 for every finite value, NaN for all others.
  for (let i = 0; i < values.length; i++) if (values[i]! * 0 !== 0) return i;
  return -1;
}
