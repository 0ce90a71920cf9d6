import { ValidationError } from "../../errors.js";
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
import { unknownChoice } from "./choices.js";
import {
  masked,
  type PerDatum,
  readMask,
  readPerDatum,
  reduceTokens,
  rowMask,
  type TokenOptions,
} from "./per-token.js";
import { namedTerm, type Term, type TermInput } from "./term.js";

/** Keeps logarithms and norms away from 0. */
const TINY = 1e-6;

/** How the distance between two lists of logprobs is measured. */
export type ConsistencyKind = "mse" | "l1" | "cosine" | "kl";

/** What logprobs should agree with, for `consistency`: give a `reference` or `pairs`. */
export interface ConsistencyOptions extends TokenOptions {
  /** `mse` when absent. */
  readonly kind?: ConsistencyKind | undefined;
  /** Logprobs to agree with, per datum: the name of an input, a list, or a function. */
  readonly reference?: PerDatum | undefined;
  /** Or pairs of datums, by index, that should agree with each other; their logprobs must have the same shape. */
  readonly pairs?: readonly (readonly [first: number, second: number])[] | undefined;
}

interface Part {
  readonly values: Tensor;
  readonly mask: Tensor;
}

/**
 * How far logprobs are from others of the same tokens. `kl` is KL(reference || model) between what the logprobs tell
 * of each position: the probabilities of its tokens, and of anything else. Pairs are compared both ways.
 */
export function consistency(options: ConsistencyOptions): Term {
  const { kind = "mse", reference, pairs } = options;
  if ((reference === undefined) === (pairs === undefined)) {
    throw new ValidationError("reference", "consistency: give either a reference or pairs");
  }
  return namedTerm("consistency", (input) => {
    const maskOf = (index: number) => readMask("consistency", options, input, index);
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
    return reduceTokens(options, parts);
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
      throw unknownChoice("consistency", "kind", kind satisfies never);
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
