import type { Operand, Tensor } from "../autograd/index.js";
import { result } from "../autograd/tensor.js";
import { operandArgument } from "./operation.js";
import { asTensor, type GraphDtype, GraphTensor } from "./values.js";

/** An operation on each element, with its derivative given its argument and its result. */
export function mapElements(
  name: string,
  input: Tensor,
  compute: (x: number) => number,
  derivative: (x: number, y: number) => number = () => 0,
): Tensor {
  const { values } = input;
  const y = new Float64Array(values.length);
  for (let i = 0; i < y.length; i++) y[i] = compute(values[i]!);
  return result(name, y, input.shape, [input], (dy, dx) => {
    for (let i = 0; i < dy.length; i++) dx[i] = dy[i]! * derivative(values[i]!, y[i]!);
  });
}

export const truth = (tensor: Tensor): GraphTensor => new GraphTensor(tensor, "bool");

/** The two operands of an operation on pairs of elements. */
export const pair = [operandArgument("input"), operandArgument("other")] as const;
export type Pair = GraphTensor | number;

export const dtypeOf = (value: Pair): GraphDtype => asTensor(value).dtype;
export const operandOf = (value: Pair): Operand => (typeof value === "number" ? value : value.tensor);
