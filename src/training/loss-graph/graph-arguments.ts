import { ValidationError } from "../../errors.js";
import type { CustomLossNode } from "../../wire/training/custom-loss-graph.js";
import {
  describeGraphValue,
  ELLIPSIS,
  GraphConstant,
  GraphDict,
  GraphSlice,
  GraphTuple,
  type GraphValue,
} from "./values.js";

const MAX_ARGUMENT_VALUES = 1024;
const MAX_ARGUMENT_DEPTH = 8;
export const MAX_TEXT_CHARACTERS = 256;

const NOT_FINITE: ReadonlyMap<string, number> = new Map([
  ["inf", Number.POSITIVE_INFINITY],
  ["-inf", Number.NEGATIVE_INFINITY],
  ["nan", Number.NaN],
]);

/** An argument that is checked, as a function of the values of earlier nodes. */
export type Encoded = (values: ReadonlyMap<string, GraphValue>) => GraphValue;

/** An error of a graph, named by where it is in the request. */
export function refuseGraph(field: string, message: string): never {
  throw new ValidationError(field, `${field} ${message}`);
}

/** Checks the arguments of a node; `used` gets the names of the nodes that they refer to. */
export function decodeArguments(
  node: CustomLossNode,
  field: string,
  names: ReadonlySet<string>,
  used: string[],
) {
  let left = MAX_ARGUMENT_VALUES;
  const decode = (json: unknown, path: string, depth: number): Encoded => {
    left -= 1;
    if (left < 0 || depth > MAX_ARGUMENT_DEPTH)
      refuseGraph(
        field,
        `has arguments of more than ${MAX_ARGUMENT_VALUES} values, or nested more than ${MAX_ARGUMENT_DEPTH} deep`,
      );
    if (json === null || typeof json === "boolean" || typeof json === "number") return () => json;
    if (typeof json === "string") {
      if (json.length > MAX_TEXT_CHARACTERS)
        refuseGraph(path, `has more than ${MAX_TEXT_CHARACTERS} characters`);
      return () => json;
    }
    const list = (items: readonly unknown[]) => {
      const decoded = items.map((item, index) => decode(item, `${path}[${index}]`, depth + 1));
      return (values: ReadonlyMap<string, GraphValue>) => decoded.map((item) => item(values));
    };
    if (Array.isArray(json)) return list(json);
    const entries = Object.entries(json as object);
    if (entries.length !== 1) refuseGraph(path, "must be an object of one key, such as { ref } or { tuple }");
    const [kind, content] = entries[0]! as [string, unknown];
    switch (kind) {
      case "ref": {
        if (typeof content !== "string" || !names.has(content))
          refuseGraph(
            path,
            `refers to ${JSON.stringify(content)?.slice(0, 64)}, which is not an earlier node`,
          );
        used.push(content);
        return (values) => values.get(content)!;
      }
      case "tuple": {
        if (!Array.isArray(content)) return refuseGraph(path, "must be { tuple: [...] }");
        const items = list(content);
        return (values) => new GraphTuple(items(values));
      }
      case "dict": {
        if (typeof content !== "object" || content === null || Array.isArray(content))
          return refuseGraph(path, "must be { dict: { ... } }");
        const decoded = Object.entries(content).map(
          ([key, item]) => [key, decode(item, `${path}.${key.slice(0, 64)}`, depth + 1)] as const,
        );
        return (values) => new GraphDict(new Map(decoded.map(([key, item]) => [key, item(values)])));
      }
      case "slice": {
        if (!Array.isArray(content) || content.length !== 3)
          return refuseGraph(path, "must be { slice: [start, stop, step] }");
        const items = list(content);
        return (values) => sliceOf(items(values), path);
      }
      case "float": {
        const number = typeof content === "string" ? NOT_FINITE.get(content) : undefined;
        if (number === undefined) return refuseGraph(path, "must be { float: inf }, -inf or nan");
        return () => number;
      }
      case "ellipsis":
        return () => ELLIPSIS;
      case "dtype":
      case "device":
      case "layout":
      case "memory_format": {
        if (typeof content !== "string" || content.length > MAX_TEXT_CHARACTERS)
          return refuseGraph(path, `must be { ${kind}: name }`);
        const constant = new GraphConstant(kind, content);
        return () => constant;
      }
      default:
        return refuseGraph(path, `has the unknown kind ${JSON.stringify(kind.slice(0, 64))}`);
    }
  };
  const args = (node.args ?? []).map((arg, index) => decode(arg, `${field}.args[${index}]`, 0));
  const kwargs = new Map(
    Object.entries(node.kwargs ?? {}).map(([key, arg]) => [key, decode(arg, `${field}.kwargs`, 0)]),
  );
  return { args, kwargs };
}

function sliceOf(bounds: readonly GraphValue[], path: string): GraphSlice {
  const [start, stop, step] = bounds.map((bound) => {
    if (bound === null || Number.isInteger(bound)) return bound as number | null;
    return refuseGraph(path, `must be a slice of integers, got ${describeGraphValue(bound)}`);
  });
  return new GraphSlice(start ?? null, stop ?? null, step ?? null);
}
