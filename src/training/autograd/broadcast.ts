import { broadcastIndices, broadcastShape, sameShape } from "./shape.js";
import { type Operand, result, type Tensor, toTensor } from "./tensor.js";

/** The tensor repeated to fill a larger shape; the gradient of an element is the sum over its copies. */
export function broadcastTo(source: Tensor, shape: readonly number[]): Tensor {
  if (sameShape(source.shape, shape)) return source;
  const data = source.values;
  if (data.length === 1) {
    const size = shape.reduce((product, each) => product * each, 1);
    return result("broadcast", new Float64Array(size).fill(data[0]!), shape, [source], (gradient, into) => {
      let sum = 0;
      for (let index = 0; index < gradient.length; index++) sum += gradient[index]!;
      into[0] = sum;
    });
  }
  const indices = broadcastIndices(source.shape, shape);
  const repeated = new Float64Array(indices.length);
  for (let index = 0; index < indices.length; index++) repeated[index] = data[indices[index]!]!;
  const backward = (gradient: Float64Array, into: Float64Array) => {
    for (let index = 0; index < indices.length; index++) into[indices[index]!]! += gradient[index]!;
  };
  return result("broadcast", repeated, shape, [source], backward, { accumulates: true });
}

/** The operands as tensors of one shape. */
export function broadcastAll(operation: string, operands: readonly Operand[]): Tensor[] {
  const tensors = operands.map((operand) => toTensor(operand, operation));
  const shape = broadcastShape(operation, tensors);
  return tensors.map((each) => broadcastTo(each, shape));
}
