import { add, exp, mul, neg, stopGradient, sub, sum, type Tensor } from "../autograd/index.js";
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
import { namedTerm, type Term } from "./term.js";

/** Which tokens `entropy` counts, and which gradient it has. */
export interface EntropyOptions extends TokenOptions {
  /**
   * `score` (the default): the gradient of the entropy itself, right for tokens the model has just sampled.
   * `direct`: the gradient of the estimate as it is written, which for such tokens is zero on average.
   * Of no consequence where each position has several alternatives.
   */
  readonly gradient?: "score" | "direct" | undefined;
}

/**
 * The entropy of the model: a negative weight keeps it up. With one token per position it is estimated as
 * `mean -logprob`; with several alternatives it is `mean over positions of -sum_k p_k log p_k`.
 */
export function entropy(options: EntropyOptions = {}): Term {
  return namedTerm("entropy", (input) =>
    reduceTokens(
      options,
      input.logprobs.map((logprobs, index) => {
        const mask = readMask("entropy", options, input, index);
        const counted = masked(mask, logprobs);
        if (logprobs.shape.length === 2) {
          return { values: neg(expectation(counted, counted, mask)), mask: rowMask(mask) };
        }
        if (options.gradient === "direct") return { values: neg(counted), mask };
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
   * each. Of no consequence where each position has several alternatives.
   */
  readonly gradient?: "direct" | "score" | undefined;
}

/**
 * KL(model || reference). With one token per position the estimate's mean; with several alternatives per position the
 * estimate's expectation over them, each with its probability under the model.
 */
export function klToReference(options: KlOptions): Term {
  const { estimator = "k3" } = options;
  return namedTerm("klToReference", (input) =>
    reduceTokens(
      options,
      input.logprobs.map((logprobs, index) => {
        const mask = readMask("klToReference", options, input, index);
        const counted = masked(mask, logprobs);
        const reference = readPerDatum("klToReference", "reference", options.reference, input, index);
        const difference = sub(counted, masked(mask, reference));
        const values = estimate(estimator, difference);
        if (logprobs.shape.length === 2) {
          return { values: expectation(counted, values, mask), mask: rowMask(mask) };
        }
        if (options.gradient !== "score") return { values, mask };
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
      throw unknownChoice("klToReference", "estimator", estimator satisfies never);
  }
}

/** The sum over the alternatives of each position that count, weighted by their probability. */
function expectation(logprobs: Tensor, values: Tensor, mask: Tensor): Tensor {
  return sum(masked(mask, mul(exp(logprobs), values)), { axis: 1 });
}

/** These values, with `score * d logprob` for their gradient: that of an expectation over what the model samples. */
function withScoreGradient(values: Tensor, score: Tensor, logprobs: Tensor): Tensor {
  const surrogate = mul(stopGradient(score), logprobs);
  return add(stopGradient(values), sub(surrogate, stopGradient(surrogate)));
}
