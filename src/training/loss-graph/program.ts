import { messageOf, ValidationError } from "../../errors.js";
import { isRecord } from "../../wire/reading.js";
import {
  CUSTOM_INPUT_NAME,
  CUSTOM_METRIC_NAME,
  type CustomLossGraph,
  type CustomLossInput,
  type CustomLossNode,
  MAX_CUSTOM_LOSS_INPUTS,
} from "../../wire/training/custom-loss-graph.js";
import type { Tensor } from "../autograd/index.js";
import { decodeArguments, type Encoded, MAX_TEXT_CHARACTERS, refuseGraph } from "./graph-arguments.js";
import { bindArguments, elementsOf, type GraphOperation, type WorkMeter } from "./operation.js";
import { functionNamed, methodNamed } from "./operations.js";
import {
  describeGraphValue,
  type GraphDict,
  type GraphDtype,
  GraphTensor,
  GraphTuple,
  type GraphValue,
} from "./values.js";

const MAX_NODES = 2048;

/** A value that a loss gets for one datum. */
export interface ProgramInput {
  readonly tensor: Tensor;
  readonly dtype: GraphDtype;
}

/** Result of a loss for one datum. */
export interface ProgramOutput {
  readonly loss: Tensor;
  readonly metrics: ReadonlyMap<string, number>;
}

interface Step {
  readonly node: CustomLossNode;
  readonly operation: GraphOperation;
  readonly args: readonly Encoded[];
  readonly kwargs: ReadonlyMap<string, Encoded>;
  /** Nodes whose values no later step reads. */
  readonly last: readonly string[];
}

/** A custom loss that is checked and can be run. */
export interface LossProgram {
  readonly inputs: readonly CustomLossInput[];
  /** Computes the loss of one datum; the values are given in the order of the inputs. */
  run(given: readonly ProgramInput[], meter: WorkMeter): ProgramOutput;
}

/**
 * Checks a graph without running it: its size, its names and references, that each operation is known. Nothing of it is
 * executed but the operations of this module.
 */
export function compileLossGraph(graph: CustomLossGraph, inputs: readonly CustomLossInput[]): LossProgram {
  checkInputs(inputs);
  const { nodes } = graph;
  if (nodes.length > MAX_NODES)
    refuseGraph("graph.nodes", `has ${nodes.length} nodes; at most ${MAX_NODES} are allowed`);
  const placeholders: string[] = [];
  const names = new Set<string>();
  const steps: Omit<Step, "last">[] = [];
  const lastUse = new Map<string, number>();
  let output: Encoded | undefined;
  for (const [index, node] of nodes.entries()) {
    const field = `graph.nodes[${index}]`;
    if (output !== undefined) refuseGraph(field, "stands behind the output, which must be the last node");
    if (node.name.length > MAX_TEXT_CHARACTERS || node.target.length > MAX_TEXT_CHARACTERS)
      refuseGraph(field, `has a name or target of more than ${MAX_TEXT_CHARACTERS} characters`);
    if (names.has(node.name))
      refuseGraph(`${field}.name`, `${JSON.stringify(node.name)} is used by an earlier node`);
    const used: string[] = [];
    const arguments_ = decodeArguments(node, field, names, used);
    for (const name of used) lastUse.set(name, steps.length);
    if (node.op === "placeholder") {
      const input = inputs[placeholders.length];
      if (steps.length > 0 || input === undefined || input.name !== node.target)
        refuseGraph(
          `${field}.target`,
          `must be the input ${JSON.stringify(input?.name ?? "(none left)")}, got ${JSON.stringify(node.target)}`,
        );
      placeholders.push(node.name);
    } else if (node.op === "output") {
      checkOutput(node, field);
      output = arguments_.args[0]!;
    } else steps.push({ node, operation: operationOf(node, field), ...arguments_ });
    names.add(node.name);
  }
  if (output === undefined) refuseGraph("graph.nodes", "has no output");
  if (placeholders.length < inputs.length)
    refuseGraph(
      "graph.nodes",
      `has no placeholder for the input ${JSON.stringify(inputs[placeholders.length]!.name)}`,
    );
  const finish = output;
  const planned = steps.map((step, index): Step => {
    const last = [...lastUse].filter(([, use]) => use === index).map(([name]) => name);
    return { ...step, last };
  });
  return {
    inputs,
    run: (given, meter) => runProgram({ placeholders, steps: planned, finish }, given, meter),
  };
}

function checkInputs(inputs: readonly CustomLossInput[]): void {
  const { length } = inputs;
  if (length === 0 || length > MAX_CUSTOM_LOSS_INPUTS)
    refuseGraph("inputs", `must be 1 to ${MAX_CUSTOM_LOSS_INPUTS} inputs, got ${length}`);
  if (inputs[0]!.name !== "logprobs") refuseGraph("inputs[0].name", "must be logprobs");
  if (inputs[0]!.rank === 0) refuseGraph("inputs[0].rank", "must be 1 or 2 for logprobs");
  for (const [index, { name }] of inputs.entries()) {
    if (!CUSTOM_INPUT_NAME.test(name))
      refuseGraph(`inputs[${index}].name`, "must be a lowercase name of letters, digits and underscores");
    if (inputs.findIndex((each) => each.name === name) < index)
      refuseGraph(`inputs[${index}].name`, `${name} is there twice`);
  }
}

function operationOf(node: CustomLossNode, field: string): GraphOperation {
  const { op, name, target } = node;
  const found =
    op === "call_function" ? functionNamed(target) : op === "call_method" ? methodNamed(target) : undefined;
  if (found !== undefined) return found;
  const what = `node ${JSON.stringify(name)} (${op} ${JSON.stringify(target)})`;
  if (op === "get_attr")
    return refuseGraph(field, `${what} reads a captured tensor; a loss reads its inputs only`);
  if (op === "call_module")
    return refuseGraph(field, `${what} calls a module; use functions such as those of torch.nn.functional`);
  if (op === "call_method" && /[a-z0-9]_$/.test(target))
    return refuseGraph(
      field,
      `${what} changes a tensor in place, which is not supported; use ${target.slice(0, -1)}`,
    );
  return refuseGraph(field, `${what} is not an operation that this server supports`);
}

/** The output is `(loss, metrics)`: a node, and nodes by the names that metrics must have. */
function checkOutput({ args = [] }: CustomLossNode, field: string): void {
  const contentOf = (json: unknown, kind: string) => (isRecord(json) ? json[kind] : undefined);
  const pair = contentOf(args[0], "tuple") ?? args[0];
  const [loss, metrics] = Array.isArray(pair) && pair.length === 2 && args.length === 1 ? pair : [];
  const named = contentOf(metrics, "dict");
  if (contentOf(loss, "ref") === undefined || !isRecord(named))
    refuseGraph(field, "must be a tuple of the loss, a node, and a dict of metrics");
  for (const [name, value] of Object.entries(named)) {
    if (!CUSTOM_METRIC_NAME.test(name))
      refuseGraph(
        field,
        `names a metric ${JSON.stringify(name.slice(0, 80))}; names are custom/NAME:sum or custom/NAME:mean`,
      );
    if (contentOf(value, "ref") === undefined) refuseGraph(field, `gives the metric ${name} no node`);
  }
}

interface Plan {
  readonly placeholders: readonly string[];
  readonly steps: readonly Step[];
  readonly finish: Encoded;
}

function runProgram(
  { placeholders, steps, finish }: Plan,
  given: readonly ProgramInput[],
  meter: WorkMeter,
): ProgramOutput {
  const values = new Map<string, GraphValue>();
  for (const [index, name] of placeholders.entries()) {
    const { tensor, dtype } = given[index]!;
    values.set(name, new GraphTensor(tensor, dtype));
  }
  for (const { node, operation, args, kwargs, last } of steps) {
    try {
      const positional = args.map((arg) => arg(values));
      const named = new Map([...kwargs].map(([key, arg]) => [key, arg(values)]));
      const bound = bindArguments(operation, positional, named);
      meter.charge(elementsOf(bound));
      values.set(node.name, operation.run(meter, bound));
    } catch (error) {
      if (!(error instanceof ValidationError) && !(error instanceof RangeError)) throw error;
      throw new ValidationError("graph", `node ${node.name} (${node.target}): ${messageOf(error)}`);
    }
    // What is not needed for gradients is free before the graph ends.
    for (const name of last) values.delete(name);
  }
  return readOutput(finish(values));
}

function readOutput(output: GraphValue): ProgramOutput {
  const [loss, metrics] = (output instanceof GraphTuple ? output.items : output) as [GraphValue, GraphDict];
  if (!(loss instanceof GraphTensor))
    throw new ValidationError("graph", `the loss must be a scalar tensor, got ${describeGraphValue(loss)}`);
  if (loss.shape.length > 0)
    throw new ValidationError(
      "graph",
      `the loss must be a scalar, got a tensor of shape [${loss.shape.join(", ")}]`,
    );
  const numbers = new Map<string, number>();
  for (const [name, value] of metrics.entries) {
    if (!(value instanceof GraphTensor) || value.tensor.size !== 1)
      throw new ValidationError(
        "graph",
        `the metric ${name} must be a scalar tensor, got ${describeGraphValue(value)}`,
      );
    numbers.set(name, value.tensor.item());
  }
  return { loss: loss.tensor, metrics: numbers };
}
