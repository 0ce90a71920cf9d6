import { TinkerError, ValidationError } from "../../errors.js";
import { describeTensor, elementCount, originText, shapeError, shapeText } from "./shape.js";
import { isTensor, type Operand, result, type Tensor, toTensor } from "./tensor.js";

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
  if (!Number.isFinite(loss.data[0])) throw nonFiniteValue(loss, order);
  const gradients = propagate(loss, order, () => {});
  for (const [variable, gradient] of gradients) {
    if (areFinite(gradient)) continue;
    // Gone through once more, slowly, to find the place.
    propagate(loss, order, refuseNonFinite);
    throw new TinkerError(`The gradient by ${variable.label ?? "a variable"} is not finite.`);
  }
  return new Gradients(gradients);
}

/** A loss of known value and known gradients, made outside the graph by whatever means. */
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
    const { data, shape } = toTensor(gradient, operation);
    if (data.length !== elementCount(input.shape)) {
      throw shapeError(
        operation,
        `the gradient of ${input.label ?? `input ${index}`} must have the shape ${shapeText(input.shape)}, ` +
          `got ${shapeText(shape)}`,
      );
    }
    const bad = data.findIndex((each) => !Number.isFinite(each));
    if (bad >= 0) {
      throw new TinkerError(
        `${operation}: the gradient of ${input.label ?? `input ${index}`} is ${data[bad]} at position ${bad}`,
      );
    }
    return data;
  });
  return result(operation, Float64Array.of(value), [], inputs, ([factor], into) => {
    for (const [index, gradient] of known.entries()) {
      const target = into[index];
      if (target === undefined) continue;
      for (let i = 0; i < target.length; i++) target[i]! += factor! * gradient[i]!;
    }
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

function propagate(
  loss: Tensor,
  order: readonly Tensor[],
  check: (tensor: Tensor, gradients: readonly (Float64Array | undefined)[]) => void,
): Map<Tensor, Float64Array> {
  const gradients = new Map<Tensor, Float64Array>();
  // Gradients of what was computed on the way, passed on and no longer needed: nobody else has seen them.
  const spent = new Map<number, Float64Array[]>();
  if (loss.requiresGradient) gradients.set(loss, Float64Array.of(1));
  for (const tensor of order.toReversed()) {
    const { node } = tensor;
    const gradient = gradients.get(tensor);
    if (node === undefined || gradient === undefined) continue;
    const isFresh: boolean[] = [];
    const inputGradients = node.inputs.map((input) => {
      const known = gradients.get(input);
      isFresh.push(known === undefined);
      if (!input.requiresGradient) return undefined;
      if (known !== undefined) return known;
      const fresh =
        (input.node === undefined ? undefined : spent.get(input.size)?.pop()?.fill(0)) ??
        new Float64Array(input.size);
      gradients.set(input, fresh);
      return fresh;
    });
    node.backward(gradient, inputGradients, isFresh);
    check(tensor, inputGradients);
    gradients.delete(tensor);
    const sameSize = spent.get(gradient.length);
    if (sameSize === undefined) spent.set(gradient.length, [gradient]);
    else sameSize.push(gradient);
  }
  return gradients;
}

function refuseNonFinite(tensor: Tensor, gradients: readonly (Float64Array | undefined)[]): void {
  for (const [index, gradient] of gradients.entries()) {
    const position = gradient?.findIndex((each) => !Number.isFinite(each)) ?? -1;
    if (position < 0) continue;
    const input = tensor.node!.inputs[index]!;
    throw new TinkerError(
      `The gradient of ${tensor.node!.operation} is ${gradient![position]} at position ${position} of its input ` +
        `${describeTensor(input)}, where the value is ${input.data[position]}.`,
    );
  }
}

function nonFiniteValue(loss: Tensor, order: readonly Tensor[]): TinkerError {
  // Infinity is often harmless on the way (exp(-Infinity) is 0), so the first NaN is the better lead.
  const firstNaN = order.find(({ data }) => data.some(Number.isNaN));
  const culprit = firstNaN ?? order.find(({ data }) => !areFinite(data));
  if (culprit === undefined) {
    return new TinkerError(`The loss is ${loss.data[0]}, and no operation that led to it needs a gradient.`);
  }
  const { node, data, shape } = culprit;
  const position = data.findIndex(firstNaN === undefined ? (each) => !Number.isFinite(each) : Number.isNaN);
  const what = node === undefined ? (culprit.label ?? "a variable") : `the result of ${node.operation}`;
  const origin = node === undefined ? "" : originText(culprit);
  return new TinkerError(
    `The loss is ${loss.data[0]}: ${what} is ${data[position]} at position ${position} of shape ` +
      `${shapeText(shape)}${origin}.`,
  );
}

function areFinite(values: Float64Array): boolean {
  let sum = 0;
  // 0 for every finite value, NaN for all others.
  for (let i = 0; i < values.length; i++) sum += values[i]! * 0;
  return sum === 0;
}
