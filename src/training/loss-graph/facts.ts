import {
  anyArgument,
  type GraphOperation,
  graphOperation,
  integerArgument,
  orNone,
  tensorArgument,
  textArgument,
} from "./operation.js";
import { rowMajor, tensorView } from "./places.js";
import {
  describeGraphValue,
  GraphConstant,
  GraphTensor,
  GraphTuple,
  graphError,
  promoteToFloat,
} from "./values.js";

const x = tensorArgument("input");

const sizesOf = ({ shape }: GraphTensor) => new GraphTuple([...shape]);
const count = graphOperation([x], (input) => input.tensor.size);

const getattr = graphOperation([anyArgument("input"), textArgument("name")], (holder, name) => {
  if (holder instanceof GraphTuple) {
    const found = holder.items[holder.names.indexOf(name)];
    if (found !== undefined) return found;
  }
  if (!(holder instanceof GraphTensor))
    throw graphError(
      `the attribute ${JSON.stringify(name)} of ${describeGraphValue(holder)} is not supported`,
    );
  const { shape } = holder;
  switch (name) {
    case "shape":
      return sizesOf(holder);
    case "ndim":
      return shape.length;
    case "dtype":
      return new GraphConstant("dtype", holder.dtype);
    case "device":
      return new GraphConstant("device", "cpu");
    case "T":
    case "mT": {
      if (shape.length > 2 || (name === "mT" && shape.length < 2))
        throw graphError(`${name} is supported for matrices`);
      const strides = rowMajor(shape);
      const view = { shape: [...shape].reverse(), strides: strides.reverse(), start: 0 };
      return new GraphTensor(tensorView(name, holder.tensor, view), holder.dtype);
    }
    default:
      throw graphError(`the attribute ${JSON.stringify(name)} is not supported`);
  }
});

/** Operations that read the dtype or shape of a tensor and not its values. */
export const FACTS: Readonly<Record<string, GraphOperation>> = {
  getattr,
  size: graphOperation([x, orNone(integerArgument("dim"))], (input, dim) => {
    if (dim === null) return sizesOf(input);
    const found = input.shape.at(dim);
    if (found === undefined)
      throw graphError(`there is no dimension ${dim} in a tensor of rank ${input.shape.length}`);
    return found;
  }),
  numel: count,
  nelement: count,
  dim: graphOperation([x], (input) => input.shape.length),
  ndimension: graphOperation([x], (input) => input.shape.length),
  is_floating_point: graphOperation([x], (input) => promoteToFloat(input.dtype) === input.dtype),
};
