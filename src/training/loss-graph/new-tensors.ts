import { elementCount } from "../../wire/tensors/element-count.js";
import { Tensor } from "../autograd/index.js";
import {
  anyArgument,
  charged,
  type GraphOperation,
  integerArgument,
  integersArgument,
  numberArgument,
  orNone,
  rest,
  tensorArgument,
  type WorkMeter,
} from "./operation.js";
import { dtypeOr, type GraphDtype, GraphTensor, graphError } from "./values.js";

const x = tensorArgument("input");
const dtype = anyArgument("dtype", null);

function filled(meter: WorkMeter, shape: readonly number[], value: number, kind: GraphDtype): GraphTensor {
  if (shape.some((size) => size < 0)) throw graphError(`sizes must be 0 or more, got [${shape.join(", ")}]`);
  meter.charge(elementCount(shape));
  return new GraphTensor(new Tensor(new Float64Array(elementCount(shape)).fill(value), shape), kind);
}

const size = rest(integersArgument("size"));
const constant = (value: number): GraphOperation =>
  charged([size, dtype], (meter, shape, given) => filled(meter, shape, value, dtypeOr(given, "float32")));
const constantLike = (value: number): GraphOperation =>
  charged([x, dtype], (meter, input, given) =>
    filled(meter, input.shape, value, dtypeOr(given, input.dtype)),
  );
const constantNew = (value: number): GraphOperation =>
  charged([x, size, dtype], (meter, input, shape, given) =>
    filled(meter, shape, value, dtypeOr(given, input.dtype)),
  );
const kindOfNumber = (value: number): GraphDtype => (Number.isInteger(value) ? "int64" : "float32");

const arange = charged(
  [numberArgument("start"), orNone(numberArgument("end")), numberArgument("step", 1), dtype],
  (meter, first, last, step, given) => {
    const [start, end] = last === null ? [0, first] : [first, last];
    const count = Math.ceil((end - start) / step);
    if (!(count >= 0)) throw graphError(`there are no numbers from ${start} to ${end} in steps of ${step}`);
    meter.charge(count);
    const values = Float64Array.from({ length: count }, (_, index) => start + index * step);
    const kind = [start, end, step].every(Number.isInteger) ? "int64" : "float32";
    return new GraphTensor(new Tensor(values, [count]), dtypeOr(given, kind));
  },
);

const oneHot = charged([x, integerArgument("num_classes", -1)], (meter, input, given) => {
  const { values } = input.tensor;
  let classes = given;
  if (given === -1) for (const each of values) classes = Math.max(classes, each + 1);
  if (classes < 1) throw graphError(`num_classes must be above 0, got ${classes}`);
  meter.charge(values.length * classes);
  const hot = new Float64Array(values.length * classes);
  for (const [place, each] of values.entries()) {
    if (!(Number.isInteger(each) && each >= 0 && each < classes))
      throw graphError(`class ${each} is not from 0 to ${classes - 1}`);
    hot[place * classes + each] = 1;
  }
  return new GraphTensor(new Tensor(hot, [...input.shape, classes]), "int64");
});

/** Operations that make tensors. */
export const NEW_TENSORS: Readonly<Record<string, GraphOperation>> = {
  zeros: constant(0),
  ones: constant(1),
  full: charged(
    [integersArgument("size"), numberArgument("fill_value"), dtype],
    (meter, shape, value, given) => filled(meter, shape, value, dtypeOr(given, kindOfNumber(value))),
  ),
  zeros_like: constantLike(0),
  ones_like: constantLike(1),
  full_like: charged([x, numberArgument("fill_value"), dtype], (meter, input, value, given) =>
    filled(meter, input.shape, value, dtypeOr(given, input.dtype)),
  ),
  new_zeros: constantNew(0),
  new_ones: constantNew(1),
  new_full: charged(
    [x, integersArgument("size"), numberArgument("fill_value"), dtype],
    (meter, input, shape, value, given) => filled(meter, shape, value, dtypeOr(given, input.dtype)),
  ),
  new_tensor: charged([x, anyArgument("data"), dtype], (meter, input, data, given) => {
    const numbers = Array.isArray(data) ? data : [data];
    if (!numbers.every((each) => typeof each === "number"))
      throw graphError("data must be a number or a list of numbers");
    meter.charge(numbers.length);
    const tensor = new Tensor(
      Float64Array.from(numbers as number[]),
      Array.isArray(data) ? [numbers.length] : [],
    );
    return new GraphTensor(tensor, dtypeOr(given, input.dtype));
  }),
  arange,
  one_hot: oneHot,
};
