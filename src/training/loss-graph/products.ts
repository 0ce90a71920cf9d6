import { elementCount } from "../../wire/tensors/element-count.js";
import { matmul, mul, reshape, sum, type Tensor } from "../autograd/index.js";
import {
  anyArgument,
  charged,
  type GraphOperation,
  rest,
  tensorArgument,
  textArgument,
  type WorkMeter,
} from "./operation.js";
import { rowMajor, tensorView } from "./places.js";
import { GraphTensor, type GraphValue, graphError, promote } from "./values.js";

const x = tensorArgument("input");
const other = tensorArgument("other");

/** A matrix product of any ranks: the leading dimensions are batches, which broadcast. */
function multiply(meter: WorkMeter, left: GraphTensor, right: GraphTensor): GraphTensor {
  if (left.shape.length === 0 || right.shape.length === 0) throw graphError("takes vectors and matrices");
  const kind = promote(left.dtype, right.dtype);
  const a = left.shape.length === 1 ? reshape(left.tensor, [1, left.shape[0]!]) : left.tensor;
  const b = right.shape.length === 1 ? reshape(right.tensor, [right.shape[0]!, 1]) : right.tensor;
  const [rows, depth] = a.shape.slice(-2) as [number, number];
  const columns = b.shape.at(-1)!;
  if (depth !== b.shape.at(-2))
    throw graphError(`cannot multiply [${left.shape.join(", ")}] by [${right.shape.join(", ")}]`);
  const batch =
    left.shape.length <= 2 && right.shape.length <= 2
      ? undefined
      : [a, b].map(({ shape }) => shape.slice(0, -2));
  const dropped = (shape: readonly number[]) => {
    const kept = [...shape];
    if (right.shape.length === 1) kept.pop();
    if (left.shape.length === 1) kept.splice(right.shape.length === 1 ? -1 : -2, 1);
    return kept;
  };
  if (batch === undefined) {
    meter.charge(rows * depth * columns);
    return new GraphTensor(reshape(matmul(a, b), dropped([rows, columns])), kind);
  }
  // As a sum over a broadcast product, which needs no loop over batches.
  const most = Math.max(...batch.map((shape) => shape.length));
  let batches = 1;
  for (let back = 1; back <= most; back++)
    batches *= Math.max(...batch.map((shape) => shape[shape.length - back] ?? 1));
  meter.charge(3 * batches * rows * depth * columns);
  const wide = reshape(a, [...a.shape, 1]);
  const tall = reshape(b, [...b.shape.slice(0, -2), 1, depth, columns]);
  const product = sum(mul(wide, tall), { axis: -2 });
  return new GraphTensor(reshape(product, dropped(product.shape)), kind);
}

/** A sum of products in Einstein's notation, without `...`. */
function einsum(meter: WorkMeter, equation: string, operands: readonly GraphValue[]): GraphTensor {
  const [left = "", right] = equation.replaceAll(" ", "").split("->");
  const inputs = left.split(",");
  const given = operands.length === 1 && Array.isArray(operands[0]) ? operands[0] : operands;
  const tensors = given.filter((each) => each instanceof GraphTensor);
  if (
    !/^[a-zA-Z,]*$/.test(left + (right ?? "")) ||
    inputs.length !== tensors.length ||
    tensors.length !== given.length
  )
    throw graphError(`the equation "${equation}" does not fit ${given.length} operands`);
  const sizes = new Map<string, number>();
  for (const [index, labels] of inputs.entries()) {
    const { shape } = tensors[index]!;
    if (labels.length !== shape.length || new Set(labels).size !== labels.length)
      throw graphError(
        `"${labels}" must have one letter for each dimension of [${shape.join(", ")}], each once`,
      );
    for (const [axis, label] of [...labels].entries()) {
      const known = sizes.get(label) ?? shape[axis]!;
      if (known !== shape[axis])
        throw graphError(`the sizes of "${label}" differ: ${known} and ${shape[axis]}`);
      sizes.set(label, known);
    }
  }
  const counts = [...left].filter((letter) => letter !== ",");
  const output =
    right ??
    [...new Set(counts)]
      .filter((letter) => counts.indexOf(letter) === counts.lastIndexOf(letter))
      .sort()
      .join("");
  const all = [...new Set([...output, ...sizes.keys()])];
  if (all.length !== sizes.size || new Set(output).size !== output.length)
    throw graphError(`the result "${output}" must have letters of the operands, each once`);
  const shape = all.map((label) => sizes.get(label)!);
  meter.charge(elementCount(shape) * (tensors.length + 1));
  let product: Tensor | undefined;
  for (const [index, labels] of inputs.entries()) {
    const { tensor } = tensors[index]!;
    const own = rowMajor(tensor.shape);
    const strides = all.map((label) => (labels.includes(label) ? own[labels.indexOf(label)]! : 0));
    const spread = tensorView("einsum", tensor, { shape, strides, start: 0 });
    product = product === undefined ? spread : mul(product, spread);
  }
  const summed = all.slice(output.length).map((_, place) => output.length + place);
  const kind = promote(...tensors.map((each) => each.dtype));
  return new GraphTensor(summed.length === 0 ? product! : sum(product!, { axis: summed }), kind);
}

const product = charged([x, other], multiply);

/** Products of vectors and matrices. */
export const PRODUCTS: Readonly<Record<string, GraphOperation>> = {
  matmul: product,
  mm: product,
  mv: product,
  bmm: product,
  dot: product,
  inner: charged([x, other], (meter, left, right) => {
    if (left.shape.length > 1 || right.shape.length > 1)
      throw graphError("is supported for vectors; use torch.matmul");
    return multiply(meter, left, right);
  }),
  outer: charged([x, tensorArgument("vec2")], (meter, left, right) => {
    meter.charge(3 * left.tensor.size * right.tensor.size);
    const column = reshape(left.tensor, [left.tensor.size, 1]);
    return new GraphTensor(mul(column, right.tensor), promote(left.dtype, right.dtype));
  }),
  einsum: charged(
    [textArgument("equation"), rest<GraphValue>(anyArgument("operands"))],
    (meter, equation, operands) => einsum(meter, equation, Array.isArray(operands) ? operands : [operands]),
  ),
};
