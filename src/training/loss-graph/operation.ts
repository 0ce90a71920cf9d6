import { elementCount } from "../../wire/tensors/element-count.js";
import {
  asTensor,
  describeGraphValue,
  GraphConstant,
  GraphTensor,
  GraphTuple,
  type GraphValue,
  graphError,
} from "./values.js";

/** Limits the work of a run: operations report their elements before they compute. */
export interface WorkMeter {
  charge(elements: number): void;
}

/** One parameter of an operation: its name, how its argument is read, and its default. */
export interface Parameter<T> {
  readonly name: string;
  readonly read: (value: GraphValue, name: string) => T;
  readonly fallback?: T;
  /** Takes all positional arguments that are left, as `x.view(2, 3)` and `x.view((2, 3))` have them. */
  readonly isRest?: boolean;
}

/** An operation that graphs may use. */
export interface GraphOperation {
  readonly parameters: readonly Parameter<unknown>[];
  /** True where the operation reports its own work, because its result is larger than its inputs. */
  readonly isCharged: boolean;
  run(meter: WorkMeter, values: readonly unknown[]): GraphValue;
}

type Values<P extends readonly Parameter<unknown>[]> = {
  readonly [K in keyof P]: P[K] extends Parameter<infer T> ? T : never;
};

/** An operation whose result has at most as many elements as its inputs, broadcast. */
export function graphOperation<const P extends readonly Parameter<unknown>[]>(
  parameters: P,
  run: (...values: Values<P>) => GraphValue,
): GraphOperation {
  return {
    parameters,
    isCharged: false,
    run: (_, values) => run(...(values as unknown as Values<P>)),
  };
}

/** An operation that reports the elements it makes before it makes them. */
export function charged<const P extends readonly Parameter<unknown>[]>(
  parameters: P,
  run: (meter: WorkMeter, ...values: Values<P>) => GraphValue,
): GraphOperation {
  return {
    parameters,
    isCharged: true,
    run: (meter, values) => run(meter, ...(values as unknown as Values<P>)),
  };
}

function reader<T>(expected: string, read: (value: GraphValue) => T | undefined) {
  return (name: string, ...fallback: [] | [T | null]): Parameter<T> =>
    ({
      name,
      read: (value: GraphValue) => {
        const found = value === null && fallback.length > 0 ? fallback[0] : read(value);
        if (found !== undefined) return found;
        throw graphError(`${name} must be ${expected}, got ${describeGraphValue(value)}`);
      },
      ...(fallback.length > 0 && { fallback: fallback[0] }),
    }) as Parameter<T>;
}

/** A parameter that may be `None` or left out. */
export function orNone<T>(parameter: Parameter<T>): Parameter<T | null> {
  return {
    ...parameter,
    fallback: null,
    read: (value, name) => (value === null ? null : parameter.read(value, name)),
  };
}

const numberOf = (value: GraphValue): number | undefined => {
  if (typeof value === "number" || typeof value === "boolean") return Number(value);
  return undefined;
};
const integerOf = (value: GraphValue): number | undefined => {
  const number = numberOf(value);
  return Number.isSafeInteger(number) ? number : undefined;
};
const itemsOf = (value: GraphValue): readonly GraphValue[] | undefined =>
  value instanceof GraphTuple ? value.items : Array.isArray(value) ? value : undefined;
const integersOf = (value: GraphValue): readonly number[] | undefined => {
  const numbers = itemsOf(value)?.map(integerOf) ?? [integerOf(value)];
  return numbers.includes(undefined) ? undefined : (numbers as number[]);
};

/** A tensor, or a number that stands for one. */
export const tensorArgument = reader("a tensor", (value) => {
  if (value instanceof GraphTensor) return value;
  return typeof value === "number" || typeof value === "boolean" ? asTensor(value) : undefined;
});
/** A tensor or a plain number, which stays what it is. */
export const operandArgument = reader<GraphTensor | number>("a tensor or a number", (value) =>
  value instanceof GraphTensor ? value : numberOf(value),
);
export const numberArgument = reader("a number", (value) => {
  const number = numberOf(value);
  // The result of a reduction is often used as a number.
  if (number === undefined && value instanceof GraphTensor && value.tensor.size === 1)
    return value.tensor.requiresGradient ? undefined : value.tensor.item();
  return number;
});
export const integerArgument = reader("an integer", integerOf);
/** One integer or several. */
export const integersArgument = reader("an integer or a list of integers", integersOf);
export const booleanArgument = reader("True or False", (value) =>
  typeof value === "boolean" ? value : undefined,
);
export const textArgument = reader("a text", (value) => (typeof value === "string" ? value : undefined));
export const anyArgument = reader<GraphValue>("a value", (value) => value);
export const constantArgument = reader("a constant of torch", (value) =>
  value instanceof GraphConstant ? value : undefined,
);
export const tensorsArgument = reader("a list of tensors", (value) => {
  const items = itemsOf(value);
  return items?.every((item) => item instanceof GraphTensor) ? (items as readonly GraphTensor[]) : undefined;
});

/** All positional arguments that are left, or one list of them. */
export function rest<T>(parameter: Parameter<T>): Parameter<T> {
  return { ...parameter, isRest: true };
}

/** Arguments that say where or how torch computes, which makes no difference here. */
const WITHOUT_EFFECT = new Set([
  ...["device", "layout", "memory_format", "non_blocking", "copy", "pin_memory", "requires_grad"],
  ...["_stacklevel", "inplace", "out", "size_average", "reduce", "stable", "sorted"],
]);
/** Names that NumPy has for the same parameter, which torch takes too. */
const OTHER_NAMES: ReadonlyMap<string, string> = new Map([
  ["axis", "dim"],
  ["keepdims", "keepdim"],
  ["self", "input"],
  ["x1", "input"],
  ["x2", "other"],
]);

/** The arguments of a call in the order of the operation's parameters. */
export function bindArguments(
  { parameters }: GraphOperation,
  args: readonly GraphValue[],
  kwargs: ReadonlyMap<string, GraphValue>,
): unknown[] {
  const values: unknown[] = [];
  let taken = 0;
  const named = new Map(
    [...kwargs].map(([key, value]) => [
      parameters.some(({ name }) => name === key) ? key : (OTHER_NAMES.get(key) ?? key),
      value,
    ]),
  );
  for (const parameter of parameters) {
    const { name, read } = parameter;
    const isGiven = taken < args.length;
    let value: GraphValue | undefined;
    if (parameter.isRest && isGiven) {
      const left = args.slice(taken);
      value = left.length === 1 && itemsOf(left[0]!) !== undefined ? left[0] : left;
      taken = args.length;
    } else if (isGiven) {
      value = args[taken];
      taken += 1;
    } else if (named.has(name)) value = named.get(name);
    if (named.has(name)) {
      if (isGiven) throw graphError(`${name} is given twice`);
      named.delete(name);
    }
    if (value !== undefined) values.push(read(value, name));
    else if ("fallback" in parameter) values.push(parameter.fallback);
    else throw graphError(`${name} is missing`);
  }
  if (taken < args.length)
    throw graphError(`takes at most ${parameters.length} arguments, got ${args.length}`);
  for (const [name, value] of named)
    if (value !== null && !WITHOUT_EFFECT.has(name))
      throw graphError(`the argument ${name} is not supported`);
  return values;
}

/** An upper bound for the elements of what an operation on these values makes: all of them, and their broadcast. */
export function elementsOf(values: readonly unknown[]): number {
  const tensors = values.flat().filter((each) => each instanceof GraphTensor);
  const sizes: number[] = [];
  for (const { shape } of tensors) {
    for (let back = 1; back <= shape.length; back++) {
      const size = shape[shape.length - back]!;
      sizes[back - 1] = Math.max(sizes[back - 1] ?? 1, size);
    }
  }
  return tensors.reduce((sum, { tensor }) => sum + tensor.size, elementCount(sizes));
}
