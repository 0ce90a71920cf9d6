import { ValidationError } from "../../errors.js";
import {
  add,
  div,
  logSigmoid,
  mean,
  mul,
  neg,
  pow,
  stack,
  sub,
  sum,
  type Tensor,
  where,
} from "../../training/autograd/index.js";
import type { TensorLoss } from "../../training/custom-loss.js";
import { type Datum, type TensorData, wrongValue } from "../../wire/index.js";

/**
 * A loss over pairs of answers for `forwardBackwardCustom`: the chosen answer at an even place, the rejected one behind
 * it. `weights` say which tokens are the answer. In a pair that is a tie, the first has the input `preference: [0.5]`.
 */
export type PairLoss = (data: readonly Datum[], logprobs: readonly Tensor[]) => TensorLoss;

/** How hard DPO pushes. */
export interface DpoLossOptions {
  /** The higher, the nearer the model stays to its reference. Default: 0.1. */
  readonly beta?: number | undefined;
  /** How often the labels are expected to be wrong, below 0.5. Default: 0. */
  readonly labelSmoothing?: number | undefined;
}

/**
 * Direct preference optimization: -log sigmoid(beta x margin), where the margin is by how much more likely the chosen
 * answer has become than the rejected one, against the reference in the input `refLogprobs`. A tie pulls the margin to 0.
 */
export function dpoLoss({ beta = 0.1, labelSmoothing = 0 }: DpoLossOptions = {}): PairLoss {
  checkBeta(beta);
  if (!(labelSmoothing >= 0 && labelSmoothing < 0.5))
    throw wrongValue("labelSmoothing", "a number from 0 to below 0.5", labelSmoothing);
  return (data, logprobs) => {
    const pairs = pairsOf(data, logprobs, gainedLogprob);
    const margins = mul(sub(pairs.chosen, pairs.rejected), beta);
    const targets = pairs.preferences.map((preference) =>
      Math.min(Math.max(preference, labelSmoothing), 1 - labelSmoothing),
    );
    const losses = neg(
      add(
        mul(targets, logSigmoid(margins)),
        mul(
          targets.map((target) => 1 - target),
          logSigmoid(neg(margins)),
        ),
      ),
    );
    return withMetrics(mean(losses), pairs, beta);
  };
}

/**
 * Identity preference optimization: (margin - 1 / (2 beta))², with the margin of a mean token. Unlike DPO it does not
 * push a pair on for ever that is told apart already. A tie pulls the margin to 0.
 */
export function ipoLoss({ beta = 0.1 }: Pick<DpoLossOptions, "beta"> = {}): PairLoss {
  checkBeta(beta);
  return (data, logprobs) => {
    const pairs = pairsOf(data, logprobs, perToken(gainedLogprob));
    const targets = pairs.preferences.map((preference) => (2 * preference - 1) / (2 * beta));
    return withMetrics(mean(pow(sub(sub(pairs.chosen, pairs.rejected), targets), 2)), pairs, beta);
  };
}

/** How hard SimPO pushes, and how far. */
export interface SimpoLossOptions {
  /** Default: 2. */
  readonly beta?: number | undefined;
  /** By how much the chosen answer should be ahead, gamma in the paper. Default: 1. */
  readonly targetMargin?: number | undefined;
}

/** Simple preference optimization: -log sigmoid(beta x margin of a mean token - targetMargin), without a reference. */
export function simpoLoss({ beta = 2, targetMargin = 1 }: SimpoLossOptions = {}): PairLoss {
  checkBeta(beta);
  if (!(targetMargin >= 0 && Number.isFinite(targetMargin)))
    throw wrongValue("targetMargin", "a number from 0", targetMargin);
  return (data, logprobs) => {
    const pairs = pairsOf(data, logprobs, perToken(answerLogprob));
    if (pairs.preferences.some((preference) => preference === 0.5))
      throw new ValidationError(
        "data",
        "data must have no ties with simpoLoss, which knows no equal answers",
      );
    const margins = mul(sub(pairs.chosen, pairs.rejected), beta);
    return withMetrics(neg(mean(logSigmoid(sub(margins, targetMargin)))), pairs, beta);
  };
}

interface Pairs {
  /** What each chosen answer scores. */
  readonly chosen: Tensor;
  readonly rejected: Tensor;
  /** 1, and 0.5 for ties. */
  readonly preferences: readonly number[];
}

function pairsOf(data: readonly Datum[], logprobs: readonly Tensor[], score: Score): Pairs {
  if (data.length === 0 || data.length % 2 !== 0)
    throw new ValidationError("data", `data must be pairs of answers, got ${data.length} datums`);
  const scores = data.map((datum, place) => score(datum, logprobs[place]!, place));
  return {
    chosen: stack(scores.filter((_, place) => place % 2 === 0)),
    rejected: stack(scores.filter((_, place) => place % 2 === 1)),
    preferences: data.flatMap(({ lossFnInputs }, place) =>
      place % 2 === 0 ? [lossFnInputs["preference"]?.toDense().data[0] ?? 1] : [],
    ),
  };
}

/** What an answer scores: the logprobs of its tokens are added up. */
type Score = (datum: Datum, logprobs: Tensor, place: number) => Tensor;

/** A token that does not count may be impossible: 0 times minus infinity is no number. */
const answerLogprob: Score = (datum, logprobs, place) => {
  const weights = inputOf(datum, "weights", place);
  return sum(where(weights, mul(logprobs, weights), 0));
};

/** How much likelier the answer is than it was to the reference. */
const gainedLogprob: Score = (datum, logprobs, place) =>
  answerLogprob(datum, sub(logprobs, inputOf(datum, "refLogprobs", place)), place);

const perToken =
  (score: Score): Score =>
  (datum, logprobs, place) =>
    div(score(datum, logprobs, place), sum(inputOf(datum, "weights", place)));

function inputOf({ lossFnInputs }: Datum, name: string, place: number): TensorData {
  const input = lossFnInputs[name];
  if (input !== undefined) return input;
  const field = `data[${place}].lossFnInputs.${name}`;
  throw new ValidationError(field, `${field} is missing: one for each of the targetTokens`);
}

/** Under upstream's names. A tie has no right order: it counts in `dpo_loss` alone. */
function withMetrics(loss: Tensor, { chosen, rejected, preferences }: Pairs, beta: number): TensorLoss {
  const decided = preferences.flatMap((preference, pair) => (preference === 0.5 ? [] : [pair]));
  const average = (value: (pair: number) => number) =>
    decided.reduce((total, pair) => total + value(pair), 0) / decided.length;
  const [better, worse] = [chosen.data, rejected.data];
  const ties = preferences.length - decided.length;
  return {
    loss,
    metrics: {
      dpo_loss: loss,
      ...(decided.length > 0 && {
        accuracy: average((pair) => (better[pair]! > worse[pair]! ? 1 : 0)),
        margin: average((pair) => beta * (better[pair]! - worse[pair]!)),
        chosen_reward: average((pair) => beta * better[pair]!),
        rejected_reward: average((pair) => beta * worse[pair]!),
      }),
      num_pairs: preferences.length,
      ...(ties > 0 && { num_ties: ties }),
    },
  };
}

function checkBeta(beta: number): void {
  if (!(beta > 0 && Number.isFinite(beta))) throw wrongValue("beta", "a number above 0", beta);
}
