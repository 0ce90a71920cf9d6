import { ValidationError } from "../../errors.js";
import {
  type Field,
  type FieldsOf,
  list,
  oneOf,
  opaque,
  optional,
  optionTable,
  withDefault,
} from "../../wire/index.js";
import {
  abs,
  add,
  clamp,
  div,
  exp,
  log,
  mul,
  reshape,
  sqrt,
  sub,
  sum,
  type Tensor,
  tensor,
} from "../autograd/index.js";
import {
  masked,
  type PerDatum,
  perDatum,
  readMask,
  readPerDatum,
  reduceTokens,
  rowMask,
  TOKEN_OPTIONS,
  type TokenOptions,
} from "./per-token.js";
import { namedTerm, type Term, type TermInput } from "./term.js";

/** Keeps logarithms and norms away from 0. */
const TINY = 1e-6;

const KINDS = ["mse", "l1", "cosine", "kl"] as const;

/** How the distance between two lists of logprobs is measured. */
export type ConsistencyKind = (typeof KINDS)[number];

/** Options of `consistency`: a `reference` or `pairs` that logprobs should agree with. */
export interface ConsistencyOptions extends TokenOptions {
  /** Measure of disagreement; default `mse`. */
  readonly kind?: ConsistencyKind | undefined;
  /** Logprobs to agree with, per datum: the name of an input, a list, or a function. */
  readonly reference?: PerDatum | undefined;
  /** Or pairs of datums, by index, that should agree with each other; their logprobs must have the same shape. */
  readonly pairs?: readonly (readonly [first: number, second: number])[] | undefined;
}

const CONSISTENCY_OPTIONS = optionTable({
  ...TOKEN_OPTIONS,
  kind: withDefault(oneOf(...KINDS), "mse"),
  reference: optional(perDatum),
  pairs: optional(list(opaque as Field<readonly [first: number, second: number]>)),
} satisfies FieldsOf<ConsistencyOptions>);

interface Part {
  readonly values: Tensor;
  readonly mask: Tensor;
}

/**
 * How far logprobs are from others of the same tokens. `kl` is KL(reference || model) between what the logprobs tell
 * of each position: the probabilities of its tokens, and of anything else. Pairs are compared both ways.
 */
export function consistency(options: ConsistencyOptions): Term {
  const settings = CONSISTENCY_OPTIONS.check(options, "consistency");
  const { kind, reference, pairs } = settings;
  if ((reference === undefined) === (pairs === undefined)) {
    throw new ValidationError("reference", "consistency: give either a reference or pairs");
  }
  return namedTerm("consistency", (input) => {
    const maskOf = (index: number) => readMask("consistency", settings, input, index);
    const parts: Part[] =
      reference !== undefined
        ? input.logprobs.map((logprobs, index) =>
            compare(
              kind,
              logprobs,
              readPerDatum("consistency", "reference", reference, input, index),
              maskOf(index),
            ),
          )
        : pairs!.flatMap(([first, second]) => {
            const [one, other] = pairOf(input, first, second);
            const mask = mul(maskOf(first), maskOf(second));
            return [compare(kind, one, other, mask), compare(kind, other, one, mask)];
          });
    return reduceTokens(settings, parts);
  });
}

function pairOf(input: TermInput, first: number, second: number): [Tensor, Tensor] {
  const [one, other] = [input.logprobs[first], input.logprobs[second]];
  if (one === undefined || other === undefined) {
    const text = `data[${first}] and data[${second}]`;
    throw new ValidationError(
      "pairs",
      `consistency: there is no pair of ${text} in ${input.data.length} datums`,
    );
  }
  if (one.shape.length !== other.shape.length || one.shape.some((size, axis) => size !== other.shape[axis])) {
    throw new ValidationError(
      "pairs",
      `consistency: data[${first}] and data[${second}] must have logprobs of one shape, ` +
        `got [${one.shape.join(", ")}] and [${other.shape.join(", ")}]`,
    );
  }
  return [one, other];
}

function compare(kind: ConsistencyKind, logprobs: Tensor, reference: Tensor, mask: Tensor): Part {
  const model = masked(mask, logprobs);
  const target = masked(mask, reference);
  switch (kind) {
    case "mse":
      return { values: mul(sub(model, target), sub(model, target)), mask };
    case "l1":
      return { values: abs(sub(model, target)), mask };
    case "cosine":
      return cosineDistance(model, target, mask);
    case "kl":
      return klOfRows(model, target, mask);
    default:
      throw kind satisfies never;
  }
}

/** One value per datum: 1 - the cosine of the angle between the two, over the positions that count. */
function cosineDistance(model: Tensor, target: Tensor, mask: Tensor): Part {
  const weigh = (left: Tensor, right: Tensor) => sum(mul(mul(left, right), mask));
  const norms = sqrt(add(mul(weigh(model, model), weigh(target, target)), TINY ** 2));
  const counts = mask.data.some((each) => each !== 0) ? 1 : 0;
  return { values: sub(1, div(weigh(model, target), norms)), mask: tensor(counts) };
}

function klOfRows(model: Tensor, target: Tensor, mask: Tensor): Part {
  const shape = model.shape.length === 2 ? model.shape : [model.size, 1];
  const asRows = (each: Tensor) => reshape(each, shape);
  const [p, q] = [asRows(target), asRows(model)];
  const counts = asRows(mask);
  const known = sum(masked(counts, mul(exp(p), sub(p, q))), { axis: 1 });
  const restOf = (logprobs: Tensor) =>
    clamp(sub(1, sum(masked(counts, exp(logprobs)), { axis: 1 })), { min: TINY });
  const [restP, restQ] = [restOf(p), restOf(q)];
  return { values: add(known, mul(restP, sub(log(restP), log(restQ)))), mask: rowMask(counts) };
}
