import { ValidationError } from "../../errors.js";
import { elementCount } from "../../wire/tensors/element-count.js";
import { shapeText } from "./shape.js";

/**
 * Computes the gradient of one input (counted from 0) from the gradient of the result. It overwrites whatever `into` holds, which
 * may be `gradient` itself where both have one size: each element must be read before it is written.
 */
export type Backward = (gradient: Float64Array, into: Float64Array, input: number) => void;

/** How a tensor was computed, and how the gradient of a loss goes back through that. */
export interface GraphNode {
  readonly operation: string;
  readonly inputs: readonly Tensor[];
  readonly backward: Backward;
  /**
   * True where `backward` adds to what `into` holds, which is never `gradient`: for operations that use a part of
   * their input, so that a thousand slices of one tensor do not cost a thousand times its size.
   */
  readonly accumulates: boolean;
}

/** Values that operations read: 32-bit floats are widened one by one, in registers. */
export type Values = Float64Array | Float32Array;

// The SDK and its subpaths may be bundled apart, so tensors are known by this and not by their class.
const MARKER = Symbol.for("tinkerts.autograd.tensor");

/**
 * Numbers with a shape that remember how they were computed. All that is computed is a 64-bit float: JavaScript has no
 * other, and a loss is often a small difference of large sums.
 */
export class Tensor {
  /** @internal As they came: logprobs and masks come as 32-bit floats, and most of them are read but once. */
  values: Values;
  readonly shape: readonly number[];
  /** True for variables and for all that was computed from one. */
  readonly requiresGradient: boolean;
  /** The name errors give a variable, for example `data[3].logprobs`. */
  readonly label: string | undefined;
  readonly node: GraphNode | undefined;

  constructor(
    values: Values,
    shape: readonly number[],
    origin: {
      readonly requiresGradient?: boolean;
      readonly label?: string | undefined;
      readonly node?: GraphNode | undefined;
    } = {},
  ) {
    if (elementCount(shape) !== values.length) {
      throw new ValidationError(
        "shape",
        `Tensor: ${values.length} values do not fill the shape ${shapeText(shape)}`,
      );
    }
    this.values = values;
    this.shape = shape;
    this.requiresGradient = origin.requiresGradient ?? false;
    this.label = origin.label;
    this.node = origin.node;
  }

  get [MARKER](): true {
    return true;
  }

  get data(): Float64Array {
    this.values = toFloats(this.values);
    return this.values;
  }

  get size(): number {
    return this.values.length;
  }

  /** The value of a tensor of one element. */
  item(): number {
    if (this.values.length !== 1) {
      throw new ValidationError(
        "item",
        `item: the tensor must have one element, got shape ${shapeText(this.shape)}`,
      );
    }
    return this.values[0]!;
  }

  /** All values, row by row. */
  toArray(): number[] {
    return Array.from(this.values);
  }
}

/** True for a tensor of this module. */
export function isTensor(value: unknown): value is Tensor {
  return typeof value === "object" && value !== null && MARKER in value;
}

/** Numbers in lists, as deep as the tensor has dimensions. */
export type NestedList = readonly (number | NestedList)[];

/** Numbers with a shape that are not tensors of the graph, such as the `TensorData` of a datum. */
export interface ShapedValues {
  readonly data: ArrayLike<number>;
  readonly shape?: readonly number[] | null | undefined;
  readonly isSparse?: boolean;
  toDense?(): ShapedValues;
}

type TypedNumbers =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | Uint8Array
  | Uint16Array
  | Uint32Array;

/** Operand of an operation: a tensor, or a constant in any usual form. */
export type Operand = Tensor | number | TypedNumbers | NestedList | ShapedValues;

/** A constant, over the same array where it is one of 64-bit floats; a tensor is returned as it is. */
export function tensor(value: Operand, shape?: readonly number[]): Tensor {
  const converted = toTensor(value, "tensor");
  return shape === undefined ? converted : new Tensor(converted.values, shape, converted);
}

/** A tensor that a loss can be differentiated by, over the same array where it is one of 64-bit floats. */
export function variable(value: Operand, options: { readonly label?: string } = {}): Tensor {
  const { values, shape } = toTensor(value, "variable");
  return new Tensor(values, shape, { requiresGradient: true, label: options.label });
}

/** @internal */
export function toTensor(value: Operand, operation: string): Tensor {
  if (isTensor(value)) return value;
  if (typeof value === "number") return new Tensor(Float64Array.of(value), []);
  if (Array.isArray(value)) return fromNested(value as NestedList, operation);
  if (ArrayBuffer.isView(value) && "length" in value) {
    return new Tensor(toFloats(value as TypedNumbers), [value.length]);
  }
  if (typeof value === "object" && value !== null && "data" in value) {
    const dense = value.isSparse === true && value.toDense !== undefined ? value.toDense() : value;
    const shape = [...(dense.shape ?? [dense.data.length])];
    // A datum does not change, so it is read in place; a bare array may be overwritten before the gradients are computed.
    return new Tensor(dense.data instanceof Float32Array ? dense.data : toFloats(dense.data), shape);
  }
  throw new ValidationError(
    operation,
    `${operation}: expected a tensor, a number or a list of numbers, got ${value === null ? "null" : typeof value}`,
  );
}

/** Not by `Float64Array.from`, which goes through an iterator. */
function toFloats(values: ArrayLike<number>): Float64Array {
  return values instanceof Float64Array ? values : new Float64Array(values);
}

function fromNested(list: NestedList, operation: string): Tensor {
  const shape: number[] = [];
  for (let level: number | NestedList | undefined = list; typeof level === "object"; level = level[0]) {
    shape.push(level.length);
  }
  const values: number[] = [];
  const collect = (level: number | NestedList, depth: number): void => {
    const isList = typeof level === "object" && level !== null;
    if (isList !== depth < shape.length || (isList && level.length !== shape[depth])) {
      throw new ValidationError(
        operation,
        `${operation}: lists must be rectangular, as the shape ${shapeText(shape)} of their beginning is`,
      );
    }
    if (!isList) {
      if (typeof level !== "number") {
        throw new ValidationError(operation, `${operation}: expected numbers in lists, got ${typeof level}`);
      }
      values.push(level);
    } else for (const item of level) collect(item, depth + 1);
  };
  collect(list, 0);
  return new Tensor(Float64Array.from(values), shape);
}

/** @internal The result of an operation; it stays out of the graph when no input needs a gradient. */
export function result(
  operation: string,
  values: Values,
  shape: readonly number[],
  inputs: readonly Tensor[],
  backward: Backward,
  { accumulates = false }: { readonly accumulates?: boolean } = {},
): Tensor {
  if (!inputs.some((input) => input.requiresGradient)) return new Tensor(values, shape);
  return new Tensor(values, shape, {
    requiresGradient: true,
    node: { operation, inputs, backward, accumulates },
  });
}
