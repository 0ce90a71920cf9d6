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
import * as f from "../../wire/fields/index.js";
import type { Datum, TensorData } from "../../wire/index.js";

/**
 * A loss over pairs of answers for `forwardBackwardCustom`: the chosen answer at an even position, the rejected one
 * after it. `weights` mark the tokens of the answer. A pair that is a tie has `preference: [0.5]` in the inputs of its
 * first datum.
 */
export type PairLoss = (data: readonly Datum[], logprobs: readonly Tensor[]) => TensorLoss;

/** Strength of DPO and noise of the labels. */
export interface DpoLossOptions {
  /** Higher values keep the model closer to its reference. Default: 0.1. */
  readonly beta?: number | undefined;
  /** Expected share of wrong labels, below 0.5. Default: 0. */
  readonly labelSmoothing?: number | undefined;
}

const beta = f.option(f.withDefault(f.positive, 0.1), "strength of the pull towards the starting model", {
  flag: true,
  config: "dpo_beta",
});
/** The option table of `dpoLoss`, also used by `trainDpo`. */
export const DPO_LOSS_OPTIONS = f.optionTable({
  beta,
  labelSmoothing: f.option(
    f.withDefault(
      f.numberThat("a number from 0 to below 0.5", (given) => given >= 0 && given < 0.5),
      0,
    ),
    "share of comparisons whose label is taken to be wrong",
    { config: "label_smoothing" },
  ),
} satisfies f.OptionsOf<DpoLossOptions>);
/** The option table of `ipoLoss`. */
export const IPO_LOSS_OPTIONS = f.optionTable({ beta });

/**
 * Direct preference optimization: -log sigmoid(beta x margin). The margin is how much likelier the chosen answer has
 * become compared with the rejected one, relative to the reference in the input `refLogprobs`. For a tie, the margin is
 * pulled to 0.
 */
export function dpoLoss(options: DpoLossOptions = {}): PairLoss {
  const { beta, labelSmoothing } = DPO_LOSS_OPTIONS.check(options, "dpoLoss");
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
 * Identity preference optimization: (margin - 1 / (2 beta))², with the margin per token. Unlike DPO, it does not push a
 * pair further apart without end. For a tie, the margin is pulled to 0.
 */
export function ipoLoss(options: Pick<DpoLossOptions, "beta"> = {}): PairLoss {
  const { beta } = IPO_LOSS_OPTIONS.check(options, "ipoLoss");
  return (data, logprobs) => {
    const pairs = pairsOf(data, logprobs, perToken(gainedLogprob));
    const targets = pairs.preferences.map((preference) => (2 * preference - 1) / (2 * beta));
    return withMetrics(mean(pow(sub(sub(pairs.chosen, pairs.rejected), targets), 2)), pairs, beta);
  };
}

/** Strength of SimPO and its target margin. */
export interface SimpoLossOptions {
  /** Scale of the reward margin. Default: 2. */
  readonly beta?: number | undefined;
  /** Target lead of the chosen answer, gamma in the paper. Default: 1. */
  readonly targetMargin?: number | undefined;
}

/** The option table of `simpoLoss`. */
export const SIMPO_LOSS_OPTIONS = f.optionTable({
  beta: f.option(f.withDefault(f.positive, 2), "scale of the reward margin"),
  targetMargin: f.option(f.withDefault(f.nonNegative, 1), "by how much the chosen answer should be ahead"),
} satisfies f.OptionsOf<SimpoLossOptions>);

/** Simple preference optimization: -log sigmoid(beta x margin per token - targetMargin), without a reference. */
export function simpoLoss(options: SimpoLossOptions = {}): PairLoss {
  const { beta, targetMargin } = SIMPO_LOSS_OPTIONS.check(options, "simpoLoss");
  return (data, logprobs) => {
    const pairs = pairsOf(data, logprobs, perToken(answerLogprob));
    if (pairs.preferences.some((preference) => preference === 0.5))
      throw f.wrongField("data", "must not contain ties: simpoLoss cannot train on them");
    const margins = mul(sub(pairs.chosen, pairs.rejected), beta);
    return withMetrics(neg(mean(logSigmoid(sub(margins, targetMargin)))), pairs, beta);
  };
}

interface Pairs {
  /** Scores of the chosen answers. */
  readonly chosen: Tensor;
  readonly rejected: Tensor;
  /** 1 for an ordered pair, 0.5 for a tie. */
  readonly preferences: readonly number[];
}

function pairsOf(data: readonly Datum[], logprobs: readonly Tensor[], score: Score): Pairs {
  if (data.length === 0 || data.length % 2 !== 0)
    throw f.wrongField("data", `must be pairs of answers, got ${data.length} datums`);
  const scores = data.map((datum, place) => score(datum, logprobs[place]!, place));
  return {
    chosen: stack(scores.filter((_, place) => place % 2 === 0)),
    rejected: stack(scores.filter((_, place) => place % 2 === 1)),
    preferences: data.flatMap(({ lossFnInputs }, place) =>
      place % 2 === 0 ? [lossFnInputs["preference"]?.toDense().data[0] ?? 1] : [],
    ),
  };
}

/** Score of an answer: the sum of its tokens' logprobs. */
type Score = (datum: Datum, logprobs: Tensor, place: number) => Tensor;

/** Sum of the logprobs that count. A token that does not count may have a logprob of minus infinity, and 0 times that is NaN. */
const answerLogprob: Score = (datum, logprobs, place) => {
  const weights = inputOf(datum, "weights", place);
  return sum(where(weights, mul(logprobs, weights), 0));
};

/** How much likelier the answer is than under the reference. */
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
  throw f.wrongField(field, `is missing: one for each of the targetTokens`);
}

/** Metrics with the Python cookbook's names. A tie has no right order: it counts only in `dpo_loss`. */
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
