import { ValidationError } from "../../errors.js";
import { Tensor } from "../autograd/index.js";

/** Kinds of numbers that tensors of a graph have; all are computed as 64-bit floats. */
export type GraphDtype = "bool" | "int64" | "float32" | "float64";

const RANKING: readonly GraphDtype[] = ["bool", "int64", "float32", "float64"];

/** A tensor of a graph: its values, and what kind of numbers they stand for. */
export class GraphTensor {
  readonly tensor: Tensor;
  readonly dtype: GraphDtype;

  constructor(tensor: Tensor, dtype: GraphDtype) {
    this.tensor = tensor;
    this.dtype = dtype;
  }

  get shape(): readonly number[] {
    return this.tensor.shape;
  }
}

/** A tuple, whose entries have names where it is the result of an operation such as `max`. */
export class GraphTuple {
  readonly items: readonly GraphValue[];
  readonly names: readonly string[];

  constructor(items: readonly GraphValue[], names: readonly string[] = []) {
    this.items = items;
    this.names = names;
  }
}

/** A slice of Python: `start:stop:step`. */
export class GraphSlice {
  readonly start: number | null;
  readonly stop: number | null;
  readonly step: number | null;

  constructor(start: number | null, stop: number | null, step: number | null) {
    this.start = start;
    this.stop = stop;
    this.step = step;
  }
}

/** A dict of Python whose keys are texts. */
export class GraphDict {
  readonly entries: ReadonlyMap<string, GraphValue>;

  constructor(entries: ReadonlyMap<string, GraphValue>) {
    this.entries = entries;
  }
}

/** A constant of torch, such as a dtype or a device. */
export class GraphConstant {
  readonly kind: string;
  readonly name: string;

  constructor(kind: string, name: string) {
    this.kind = kind;
    this.name = name;
  }
}

/** The `...` of Python. */
export const ELLIPSIS = new GraphConstant("ellipsis", "...");

/** Anything that a node of a graph can be, or take as an argument. */
export type GraphValue =
  | GraphTensor
  | GraphTuple
  | GraphSlice
  | GraphDict
  | GraphConstant
  | number
  | boolean
  | string
  | null
  | readonly GraphValue[];

/** @internal An error of a graph; the caller that runs the graph adds the node. */
export const graphError = (message: string) => new ValidationError("graph", message);

/** The kind of numbers that an operation on all of these gives. */
export function promote(...dtypes: readonly GraphDtype[]): GraphDtype {
  return RANKING[Math.max(...dtypes.map((each) => RANKING.indexOf(each)))]!;
}

/** Dtype of the result of an operation that yields fractions. */
export function promoteToFloat(...dtypes: readonly GraphDtype[]): GraphDtype {
  return promote("float32", ...dtypes);
}

/** The dtype that a name of torch stands for here. */
export function dtypeNamed(name: string): GraphDtype {
  switch (name) {
    case "bool":
    case "float64":
      return name;
    case "double":
      return "float64";
    case "float":
    case "float32":
      return "float32";
    case "long":
    case "int":
    case "int64":
    case "int32":
      return "int64";
    default:
      throw graphError(`the dtype ${name} is not supported; use float32, float64, int64, int32 or bool`);
  }
}

/** The dtype of an argument, or another where none is given. */
export const dtypeOr = (given: GraphValue, otherwise: GraphDtype): GraphDtype =>
  given instanceof GraphConstant && given.kind === "dtype" ? dtypeNamed(given.name) : otherwise;

export const asTensor = (value: GraphTensor | number | boolean): GraphTensor => {
  if (value instanceof GraphTensor) return value;
  const tensor = new Tensor(Float64Array.of(Number(value)), []);
  if (typeof value === "boolean") return new GraphTensor(tensor, "bool");
  return new GraphTensor(tensor, Number.isInteger(value) ? "int64" : "float32");
};

/** Text for errors: what a value is. */
export function describeGraphValue(value: GraphValue): string {
  if (value instanceof GraphTensor) return `a tensor of shape [${value.shape.join(", ")}]`;
  if (value === null) return "None";
  if (value instanceof GraphTuple || Array.isArray(value)) return "a list";
  if (value instanceof GraphSlice) return "a slice";
  if (value instanceof GraphDict) return "a dict";
  if (value instanceof GraphConstant) return `the ${value.kind} ${value.name}`;
  return JSON.stringify(value);
}
