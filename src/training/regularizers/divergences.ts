import { type FieldsOf, oneOf, optionTable, withDefault } from "../../wire/index.js";
import { add, exp, mul, neg, stopGradient, sub, sum, type Tensor } from "../autograd/index.js";
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
import { namedTerm, type Term } from "./term.js";

/** Which tokens `entropy` counts, and which gradient it has. */
export interface EntropyOptions extends TokenOptions {
  /**
   * `score` (the default): the gradient of the entropy itself, right for tokens the model has just sampled.
   * `direct`: the gradient of the estimate as it is written, which for such tokens is zero on average.
   * Has no effect if positions have several alternatives.
   */
  readonly gradient?: "score" | "direct" | undefined;
}

const ENTROPY_OPTIONS = optionTable({
  ...TOKEN_OPTIONS,
  gradient: withDefault(oneOf("score", "direct"), "score"),
} satisfies FieldsOf<EntropyOptions>);

/**
 * The entropy of the model: a negative weight keeps it up. With one token per position it is estimated as
 * `mean -logprob`; with several alternatives it is `mean over positions of -sum_k p_k log p_k`.
 */
export function entropy(options: EntropyOptions = {}): Term {
  const settings = ENTROPY_OPTIONS.check(options, "entropy");
  return namedTerm("entropy", (input) =>
    reduceTokens(
      settings,
      input.logprobs.map((logprobs, index) => {
        const mask = readMask("entropy", settings, input, index);
        const counted = masked(mask, logprobs);
        if (logprobs.shape.length === 2) {
          return { values: neg(expectation(counted, counted, mask)), mask: rowMask(mask) };
        }
        if (settings.gradient === "direct") return { values: neg(counted), mask };
        return { values: withScoreGradient(neg(counted), neg(counted), counted), mask };
      }),
    ),
  );
}

/** The reference of `klToReference`, its estimator and its gradient. */
export interface KlOptions extends TokenOptions {
  /** The logprobs of the same tokens under the reference, per datum: the name of an input, a list, or a function. */
  readonly reference: PerDatum;
  /** With d = logprob - reference: k1 is `d`, k2 is `d^2 / 2`, k3 (the default) is `exp(-d) - 1 + d`. */
  readonly estimator?: "k1" | "k2" | "k3" | undefined;
  /**
   * `direct` (the default): the gradient of the estimate as it is written, which for k1 on tokens the model has just
   * sampled is zero on average. `score`: the gradient of KL(model || reference) itself for such tokens, `d` for
   * each. Has no effect if positions have several alternatives.
   */
  readonly gradient?: "direct" | "score" | undefined;
}

const KL_OPTIONS = optionTable({
  ...TOKEN_OPTIONS,
  reference: perDatum,
  estimator: withDefault(oneOf("k1", "k2", "k3"), "k3"),
  gradient: withDefault(oneOf("direct", "score"), "direct"),
} satisfies FieldsOf<KlOptions>);

/**
 * KL(model || reference). With one token per position the estimate's mean; with several alternatives per position the
 * estimate's expectation over them, each with its probability under the model.
 */
export function klToReference(options: KlOptions): Term {
  const settings = KL_OPTIONS.check(options, "klToReference");
  return namedTerm("klToReference", (input) =>
    reduceTokens(
      settings,
      input.logprobs.map((logprobs, index) => {
        const mask = readMask("klToReference", settings, input, index);
        const counted = masked(mask, logprobs);
        const reference = readPerDatum("klToReference", "reference", settings.reference, input, index);
        const difference = sub(counted, masked(mask, reference));
        const values = estimate(settings.estimator, difference);
        if (logprobs.shape.length === 2) {
          return { values: expectation(counted, values, mask), mask: rowMask(mask) };
        }
        if (settings.gradient !== "score") return { values, mask };
        return { values: withScoreGradient(values, difference, counted), mask };
      }),
    ),
  );
}

function estimate(estimator: "k1" | "k2" | "k3", difference: Tensor): Tensor {
  switch (estimator) {
    case "k1":
      return difference;
    case "k2":
      return mul(mul(difference, difference), 0.5);
    case "k3":
      return add(sub(exp(neg(difference)), 1), difference);
    default:
      throw estimator satisfies never;
  }
}

/** The sum over the alternatives of each position that count, weighted by their probability. */
function expectation(logprobs: Tensor, values: Tensor, mask: Tensor): Tensor {
  return sum(masked(mask, mul(exp(logprobs), values)), { axis: 1 });
}

/** Values with the gradient `score * d logprob`, that of an expectation over the model's samples. */
function withScoreGradient(values: Tensor, score: Tensor, logprobs: Tensor): Tensor {
  const surrogate = mul(stopGradient(score), logprobs);
  return add(stopGradient(values), sub(surrogate, stopGradient(surrogate)));
}
