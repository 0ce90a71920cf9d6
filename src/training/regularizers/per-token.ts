import { ValidationError } from "../../errors.js";
import { type Datum, type FieldsOf, oneOf, optional, value, withDefault } from "../../wire/index.js";
import { add, div, mul, type Operand, reshape, sum, type Tensor, tensor, where } from "../autograd/index.js";
import type { TermInput } from "./term.js";

/** Numbers that belong to each datum: the name of one of its inputs, a list with one entry per datum, or a function. */
export type PerDatum = string | readonly Operand[] | ((datum: Datum, index: number) => Operand);

/** Which tokens a term counts, and how their values become one number. */
export interface TokenOptions {
  /**
   * Which positions count, 1 or 0 (or a weight) for each. When absent: the input `mask` of a datum, else the
   * positions where its `weights` are not zero, else all.
   */
  readonly mask?: PerDatum | undefined;
  /** The mean over all positions that count in the whole batch (as usual), or their sum. */
  readonly reduction?: "mean" | "sum" | undefined;
}

/** A value for each datum, in any of its three forms. */
export const perDatum = value<PerDatum>(
  "the name of an input, a list or a function",
  (given) => typeof given === "string" || typeof given === "function" || Array.isArray(given),
);

/** The options of every term over tokens. */
export const TOKEN_OPTIONS = {
  mask: optional(perDatum),
  reduction: withDefault(oneOf("mean", "sum"), "mean"),
} satisfies FieldsOf<TokenOptions>;

/** The numbers of one datum in a shape that broadcasts against its logprobs. */
export function readPerDatum(
  termName: string,
  what: string,
  source: PerDatum,
  input: TermInput,
  index: number,
): Tensor {
  const found = lookUp(source, input.data[index]!, index);
  if (found === undefined) {
    const where = typeof source === "string" ? `has no input "${source}"` : "has none in the list";
    throw new ValidationError(`data[${index}]`, `${termName}: data[${index}] ${where} for its ${what}`);
  }
  const values = tensor(found);
  const { shape } = input.logprobs[index]!;
  const isSame =
    values.shape.length === shape.length && values.shape.every((size, axis) => size === shape[axis]);
  if (isSame || values.size === 1) return isSame ? values : reshape(values, []);
  // One number per position stands for all alternatives of that position.
  if (shape.length === 2 && values.shape.length === 1 && values.size === shape[0]) {
    return reshape(values, [values.size, 1]);
  }
  throw new ValidationError(
    `data[${index}]`,
    `${termName}: the ${what} of data[${index}] must have the shape [${shape.join(", ")}] of its logprobs, ` +
      `got [${values.shape.join(", ")}]`,
  );
}

function lookUp(source: PerDatum, datum: Datum, index: number): Operand | undefined {
  if (typeof source === "string") return datum.lossFnInputs[source];
  return typeof source === "function" ? source(datum, index) : source[index];
}

/** The mask of one datum, in the shape of its logprobs. */
export function readMask(termName: string, options: TokenOptions, input: TermInput, index: number): Tensor {
  const { shape } = input.logprobs[index]!;
  const { mask, weights } = input.data[index]!.lossFnInputs as { mask?: Operand; weights?: Operand };
  const ones = tensor(new Float64Array(input.logprobs[index]!.size).fill(1), shape);
  if (options.mask === undefined && mask === undefined) {
    if (weights === undefined) return ones;
    return where(readPerDatum(termName, "weights", "weights", input, index), ones, 0);
  }
  return mul(readPerDatum(termName, "mask", options.mask ?? "mask", input, index), ones);
}

/** One per row where a position has several alternatives: a position counts with the largest mask among them. */
export function rowMask(mask: Tensor): Tensor {
  if (mask.shape.length < 2) return mask;
  const [rows, columns] = mask.shape as [number, number];
  const values = Float64Array.from({ length: rows }, (_, row) =>
    Math.max(0, ...mask.data.subarray(row * columns, (row + 1) * columns)),
  );
  return tensor(values);
}

/** Values that do not count are 0, whatever they were: an infinite logprob times 0 would be NaN. */
export const masked = (mask: Tensor, values: Operand): Tensor => where(mask, values, 0);

/** The mean (or sum) over all positions that count, of values of one per position and datum. */
export function reduceTokens(
  options: TokenOptions,
  parts: readonly { readonly values: Tensor; readonly mask: Tensor }[],
): Tensor {
  let total: Tensor = tensor(0);
  let count = 0;
  for (const { values, mask } of parts) {
    total = add(total, sum(mul(masked(mask, values), mask)));
    count += sum(mask).item();
  }
  return options.reduction === "sum" || count === 0 ? total : div(total, count);
}
