import type { Operand } from "../autograd/index.js";
import type { NodeWriter } from "./trace-loss.js";

type Settings = Readonly<Record<string, unknown>>;
/** The name of the node with the result, and of the one with the truth values behind it. */
type Written = string | { readonly name: string; readonly truth: string };
type WriteNodes = (writer: NodeWriter, operands: readonly Operand[], settings: Settings) => Written;

const calls =
  (target: string): WriteNodes =>
  (writer, operands) =>
    writer.call(
      target,
      operands.map((operand) => writer.argument(operand)),
    );

/** For functions that take no numbers. */
const callsWithTensors =
  (target: string): WriteNodes =>
  (writer, operands) =>
    writer.call(
      target,
      operands.map((operand) => writer.tensorArgument(operand, operands)),
    );

/** Torch has truth values where tinkerts has 0 and 1. */
const compares =
  (target: string): WriteNodes =>
  (writer, operands) => {
    const truth = writer.call(
      target,
      operands.map((operand) => writer.argument(operand)),
    );
    return { name: writer.method("float", [{ ref: truth }]), truth };
  };

const along =
  (target: string): WriteNodes =>
  (writer, [operand], { axis }) =>
    writer.call(target, [writer.argument(operand!)], { dim: axis });

const reduces =
  (target: string): WriteNodes =>
  (writer, [operand], { axis, keepDims }) => {
    const input = writer.argument(operand!);
    if (axis === undefined && keepDims !== true) return writer.call(target, [input]);
    return writer.call(target, [input], { dim: [axis ?? []].flat(), keepdim: keepDims });
  };

/** Torch has no log-sum-exp over all dimensions, so all go into one. */
const logSumExp: WriteNodes = (writer, [operand], { axis, keepDims }) => {
  const input = writer.argument(operand!);
  if (axis !== undefined)
    return writer.call("torch.logsumexp", [input], { dim: [axis].flat(), keepdim: keepDims });
  const flat = writer.call("torch.reshape", [input, [-1]]);
  const reduced = writer.call("torch.logsumexp", [{ ref: flat }], { dim: [0], keepdim: false });
  if (keepDims !== true) return reduced;
  // The sum of nothing but zeros has the shape that was asked for.
  const zeros = writer.call("torch.zeros_like", [input]);
  const shaped = writer.call("torch.sum", [{ ref: zeros }], { dim: [], keepdim: true });
  return writer.call("operator.add", [{ ref: shaped }, { ref: reduced }]);
};

const joins =
  (target: string): WriteNodes =>
  (writer, operands, { axis }) => {
    const tensors = operands.map((operand) => writer.tensorArgument(operand, operands));
    return writer.call(target, [tensors], { dim: axis });
  };

const WHOLE = { slice: [null, null, null] };

const slices: WriteNodes = (writer, [operand], { start, end, axis }) => {
  const part = { slice: [start, end ?? null, null] };
  const place = axis as number;
  const index =
    place >= 0
      ? [...new Array<unknown>(place).fill(WHOLE), part]
      : [{ ellipsis: true }, part, ...new Array<unknown>(-place - 1).fill(WHOLE)];
  return writer.call("operator.getitem", [writer.argument(operand!), { tuple: index }]);
};

const where: WriteNodes = (writer, [condition, left, right]) => {
  const truth = writer.truthOf(condition!);
  const chosen = writer.call("torch.where", [truth, writer.argument(left!), writer.argument(right!)]);
  // Two numbers may be integers to torch.
  return typeof left === "number" && typeof right === "number"
    ? writer.method("float", [{ ref: chosen }])
    : chosen;
};

/** How the operations of `tinkerts/autograd` are written as nodes of `torch.fx`. */
export const NODES: Readonly<Record<string, WriteNodes>> = {
  add: calls("operator.add"),
  sub: calls("operator.sub"),
  mul: calls("operator.mul"),
  div: calls("operator.truediv"),
  pow: calls("operator.pow"),
  neg: calls("operator.neg"),
  minimum: callsWithTensors("torch.minimum"),
  maximum: callsWithTensors("torch.maximum"),
  exp: calls("torch.exp"),
  log: calls("torch.log"),
  sigmoid: calls("torch.sigmoid"),
  logSigmoid: calls("torch._C._nn.log_sigmoid"),
  softplus: calls("torch._C._nn.softplus"),
  tanh: calls("torch.tanh"),
  abs: calls("torch.abs"),
  sqrt: calls("torch.sqrt"),
  clamp: (writer, [operand], bounds) => {
    const given = Object.entries(bounds).filter(([, bound]) => bound !== undefined);
    if (given.length === 0) return writer.call("operator.pos", [writer.argument(operand!)]);
    const kwargs = Object.fromEntries(given.map(([name, bound]) => [name, writer.argument(bound as number)]));
    return writer.call("torch.clamp", [writer.argument(operand!)], kwargs);
  },
  stopGradient: (writer, [operand]) => writer.method("detach", [writer.argument(operand!)]),
  greater: compares("operator.gt"),
  greaterEqual: compares("operator.ge"),
  less: compares("operator.lt"),
  lessEqual: compares("operator.le"),
  equal: compares("operator.eq"),
  notEqual: compares("operator.ne"),
  where,
  sum: reduces("torch.sum"),
  mean: reduces("torch.mean"),
  logSumExp,
  softmax: along("torch.softmax"),
  cumulativeSum: along("torch.cumsum"),
  reshape: (writer, [operand], { shape }) => writer.call("torch.reshape", [writer.argument(operand!), shape]),
  concat: joins("torch.cat"),
  stack: joins("torch.stack"),
  slice: slices,
  gather: (writer, [operand, indices], { axis }) => {
    const whole = writer.method("long", [writer.argument(indices!)]);
    return writer.call("torch.gather", [writer.argument(operand!), axis, { ref: whole }]);
  },
  matmul: calls("torch.matmul"),
  transpose: (writer, [operand]) => writer.call("torch.transpose", [writer.argument(operand!), 0, 1]),
};
