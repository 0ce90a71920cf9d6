import { ValidationError } from "../../errors.js";
import { abs, add, mul, sub, type Tensor } from "../autograd/index.js";
import {
  masked,
  type PerDatum,
  readMask,
  readPerDatum,
  reduceTokens,
  type TokenOptions,
} from "./per-token.js";
import { namedTerm, type Term, type TermInput } from "./term.js";

/** Which tokens `l1`, `l2` and `elasticNet` count, and what they are held close to. */
export interface NormOptions extends TokenOptions {
  /** What the logprobs are held close to: one number (0 when absent), or numbers of each datum. */
  readonly centre?: number | PerDatum | undefined;
}

/** `mean |logprob - centre|` */
export function l1(options: NormOptions = {}): Term {
  return namedTerm("l1", (input) => norm("l1", options, input, abs));
}

/** `mean (logprob - centre)^2` */
export function l2(options: NormOptions = {}): Term {
  return namedTerm("l2", (input) => norm("l2", options, input, square));
}

/** `l1Ratio * l1 + (1 - l1Ratio) * l2` */
export function elasticNet(options: NormOptions & { readonly l1Ratio?: number | undefined } = {}): Term {
  const { l1Ratio = 0.5 } = options;
  if (!(l1Ratio >= 0 && l1Ratio <= 1)) {
    throw new ValidationError("l1Ratio", `elasticNet: l1Ratio must be from 0 to 1, got ${l1Ratio}`);
  }
  return namedTerm("elasticNet", (input) =>
    norm("elasticNet", options, input, (distance) =>
      add(mul(abs(distance), l1Ratio), mul(square(distance), 1 - l1Ratio)),
    ),
  );
}

const square = (values: Tensor): Tensor => mul(values, values);

function norm(
  termName: string,
  options: NormOptions,
  input: TermInput,
  measure: (distance: Tensor) => Tensor,
): Tensor {
  const { centre = 0 } = options;
  return reduceTokens(
    options,
    input.logprobs.map((logprobs, index) => {
      const mask = readMask(termName, options, input, index);
      const target =
        typeof centre === "number" ? centre : readPerDatum(termName, "centre", centre, input, index);
      return { values: measure(sub(masked(mask, logprobs), masked(mask, target))), mask };
    }),
  );
}
