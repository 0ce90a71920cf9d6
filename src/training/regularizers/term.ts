import type { Datum } from "../../wire/index.js";
import type { Tensor } from "../autograd/index.js";
import type { EvaluatedLoss } from "../custom-loss.js";

/** Inputs of a regularizer term. */
export interface TermInput {
  readonly data: readonly Datum[];
  /** One tensor per datum, as the loss function gets them. */
  readonly logprobs: readonly Tensor[];
  /** The loss without its regularizers, at these logprobs. */
  readonly base: EvaluatedLoss;
  /** Evaluates the base loss at other logprobs. */
  evaluateBase(logprobs: readonly Tensor[]): Promise<EvaluatedLoss>;
}

/** One number to be added to a loss, computed from the logprobs. */
export type Term = (input: TermInput) => Tensor | Promise<Tensor>;

/** A term under the name that reports give it. */
export function namedTerm(name: string, term: Term): Term {
  return Object.defineProperty((input: TermInput) => term(input), "name", { value: name });
}
