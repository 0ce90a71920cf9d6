import { elementCount } from "../../wire/tensors/element-count.js";
import { aroundAxis, resolveAxis, shapeError } from "./shape.js";
import { type Operand, result, type Tensor, toTensor } from "./tensor.js";
import { tracerOf } from "./tracer.js";

/** @internal The elements of a tensor at these places, in another shape; one place may be taken more than once. */
export function pick(
  operation: string,
  input: Tensor,
  places: Int32Array,
  shape: readonly number[] = [places.length],
): Tensor {
  if (elementCount(shape) !== places.length) throw shapeError(operation, "the places do not fill the shape");
  const x = input.values;
  const y = new Float64Array(places.length);
  for (let i = 0; i < y.length; i++) y[i] = x[places[i]!]!;
  const backward = (dy: Float64Array, dx: Float64Array) => {
    for (let i = 0; i < places.length; i++) dx[places[i]!]! += dy[i]!;
  };
  return result(operation, y, shape, [input], backward, { accumulates: true });
}

/** The sum of the elements so far along an axis, by default the last one. */
export function cumulativeSum(
  operand: Operand,
  options: { readonly axis?: number | undefined } = {},
): Tensor {
  const tracer = tracerOf([operand]);
  if (tracer !== undefined) return tracer.record("cumulativeSum", [operand], { axis: options.axis ?? -1 });
  const input = toTensor(operand, "cumulativeSum");
  const axis = resolveAxis("cumulativeSum", options.axis ?? -1, input);
  const { outer, size, inner } = aroundAxis(input.shape, axis);
  const x = input.values;
  const y = new Float64Array(x.length);
  for (let block = 0; block < outer * inner; block++) {
    const start = Math.floor(block / inner) * size * inner + (block % inner);
    let total = 0;
    for (let k = 0, i = start; k < size; k++, i += inner) {
      total += x[i]!;
      y[i] = total;
    }
  }
  return result("cumulativeSum", y, input.shape, [input], (dy, dx) => {
    for (let block = 0; block < outer * inner; block++) {
      const start = Math.floor(block / inner) * size * inner + (block % inner);
      let total = 0;
      for (let k = size - 1, i = start + (size - 1) * inner; k >= 0; k--, i -= inner) {
        total += dy[i]!;
        dx[i] = total;
      }
    }
  });
}
