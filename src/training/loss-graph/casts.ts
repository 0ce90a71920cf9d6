import { notEqual, stopGradient } from "../autograd/index.js";
import { mapElements, truth } from "./element-helpers.js";
import { anyArgument, type GraphOperation, graphOperation, tensorArgument } from "./operation.js";
import { dtypeNamed, GraphConstant, type GraphDtype, GraphTensor, promoteToFloat } from "./values.js";

const x = tensorArgument("input");

function cast(input: GraphTensor, dtype: GraphDtype): GraphTensor {
  const { tensor } = input;
  if (dtype === "bool") return truth(notEqual(tensor, 0));
  if (dtype === "int64" && promoteToFloat(input.dtype) === input.dtype)
    return new GraphTensor(mapElements("long", stopGradient(tensor), Math.trunc), dtype);
  return new GraphTensor(tensor, dtype);
}

const castTo = (dtype: GraphDtype): GraphOperation => graphOperation([x], (input) => cast(input, dtype));

/** Argument of `x.to(...)`: a dtype, another tensor, or a device, which changes nothing. */
function convert(input: GraphTensor, ...targets: unknown[]): GraphTensor {
  let converted = input;
  for (const target of targets) {
    if (target instanceof GraphTensor) converted = cast(converted, target.dtype);
    else if (target instanceof GraphConstant && target.kind === "dtype")
      converted = cast(converted, dtypeNamed(target.name));
  }
  return converted;
}

const same: GraphOperation = graphOperation([x], (input) => input);
const detached: GraphOperation = graphOperation(
  [x],
  (input) => new GraphTensor(stopGradient(input.tensor), input.dtype),
);

/** Casts and copies. */
export const CASTS: Readonly<Record<string, GraphOperation>> = {
  pos: same,
  positive: same,
  clone: same,
  contiguous: same,
  cpu: same,
  detach: detached,
  float: castTo("float32"),
  double: castTo("float64"),
  long: castTo("int64"),
  int: castTo("int64"),
  bool: castTo("bool"),
  to: graphOperation(
    [x, anyArgument("target", null), anyArgument("second", null), anyArgument("dtype", null)],
    convert,
  ),
  type_as: graphOperation([x, tensorArgument("other")], convert),
};
