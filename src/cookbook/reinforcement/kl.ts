import { TinkerError } from "../../errors.js";
import * as f from "../../wire/fields/index.js";
import type { ModelInput } from "../../wire/index.js";
import type { RolloutGroup } from "./group-feed.js";
import { countTrainedTokens, type RolloutDatum } from "./rollout-datum.js";

/** A change of advantages before training. Constant groups are kept for it. */
export interface AdvantagePenalty {
  /** Changes `advantages` in place and returns metrics. */
  apply(data: readonly RolloutDatum[], context: PenaltyContext): Promise<Readonly<Record<string, number>>>;
}

/** Context of a penalty, besides the data. */
export interface PenaltyContext {
  /** Groups that the data come from: `groups[datum.group]`. */
  readonly groups: readonly RolloutGroup[];
  readonly signal: AbortSignal;
}

/** Scores the tokens of a text, as a SamplingClient does. */
export interface LogprobSource {
  computeLogprobs(
    prompt: ModelInput,
    options?: { readonly signal?: AbortSignal | undefined },
  ): PromiseLike<readonly (number | null)[]>;
}

/** Reference of a KL penalty and its strength. */
export interface KlPenaltyOptions {
  /** The model to stay close to: usually the base model, or the weights at the start of the run. */
  readonly reference: LogprobSource;
  /** Weight of the divergence relative to the reward. */
  readonly coefficient: number;
  /** How much of the divergence of later tokens is attributed to a token, per position. Default: 0, only its own. */
  readonly discount?: number | undefined;
}

/** Field type of a model that scores tokens in an option table. */
export const logprobSource = f.having<LogprobSource>("a SamplingClient", "computeLogprobs");

/** The option table of `klPenalty`. */
export const KL_PENALTY_OPTIONS = f.optionTable({
  reference: f.option(logprobSource, "model to stay close to"),
  coefficient: f.option(f.number, "how much a unit of divergence counts against a unit of reward"),
  discount: f.option(
    f.withDefault(f.portion, 0),
    "how much a token answers for the divergence of later tokens",
  ),
} satisfies f.OptionsOf<KlPenaltyOptions>);

/** Subtracts each token's divergence from a reference, less the mean of the batch. Its metric is `kl_policy_base`. */
export function klPenalty(options: KlPenaltyOptions): AdvantagePenalty {
  const { reference, coefficient, discount } = KL_PENALTY_OPTIONS.check(options, "klPenalty");
  return {
    apply: async (data, { signal }) => {
      const divergences = logprobDifferences(data, await logprobsUnder(reference, data, signal));
      const tokens = countTrainedTokens(data);
      if (tokens === 0) return {};
      const total = divergences.reduce((sum, values) => values.reduce((some, each) => some + each, sum), 0);
      const mean = Math.fround(Math.fround(total) / tokens);
      const weight = Math.fround(coefficient);
      for (const [index, { advantages, mask }] of data.entries()) {
        const penalties = divergences[index]!.map(
          (each, at) => mask[at]! * weight * Math.fround(mean - each),
        );
        const counted = discountedSums(penalties, discount);
        for (let at = 0; at < mask.length; at++) if (mask[at]! > 0) advantages[at]! += counted[at]!;
      }
      return { kl_policy_base: mean };
    },
  };
}

/** At each position the value there plus the following ones, each discounted by `discount` per position. */
export function discountedSums(values: ArrayLike<number>, discount: number): Float32Array {
  const sums = Float32Array.from(values);
  const factor = Math.fround(discount);
  for (let at = sums.length - 2; at >= 0; at--) sums[at]! += Math.fround(factor * sums[at + 1]!);
  return sums;
}

/**
 * Difference between the trainer and the sampler, which should be almost 0 if both have the same weights: the mean
 * difference of logprobs (v1), half their mean square (v2), and the entropy of the sampled tokens.
 */
export function klSampleTrain(
  data: readonly RolloutDatum[],
  trainingLogprobs: readonly ArrayLike<number>[],
): Record<string, number> {
  const tokens = countTrainedTokens(data);
  if (tokens === 0) return {};
  const { v1, v2 } = divergence(data, trainingLogprobs, tokens);
  const sampled = data.reduce(
    (sum, { logprobs, mask }) =>
      logprobs.reduce((some, each, at) => (mask[at]! > 0 ? some + each : some), sum),
    0,
  );
  return {
    "optim/kl_sample_train_v1": v1,
    "optim/kl_sample_train_v2": v2,
    "optim/entropy": -sampled / tokens,
  };
}

/** How far a step moved the model, from the new weights' logprobs of the same tokens: `kl_pre_post_v1` and `_v2`. */
export async function postKl(
  data: readonly RolloutDatum[],
  sampler: LogprobSource,
  signal?: AbortSignal,
): Promise<Record<string, number>> {
  const tokens = countTrainedTokens(data);
  if (tokens === 0) return {};
  const { v1, v2 } = divergence(data, await logprobsUnder(sampler, data, signal), tokens);
  return { kl_pre_post_v1: v1, kl_pre_post_v2: v2 };
}

/** The logprobs of all targets under another model; 0 if unknown or not trained. */
export function logprobsUnder(
  sampler: LogprobSource,
  data: readonly Pick<RolloutDatum, "input" | "targetTokens" | "mask">[],
  signal?: AbortSignal,
): Promise<Float32Array[]> {
  return Promise.all(
    data.map(async ({ input, targetTokens, mask }, index) => {
      const sequence = input.appendInt(targetTokens.at(-1)!);
      const found = await sampler.computeLogprobs(sequence, { signal });
      // The first token has none; some servers leave it out, others send null.
      const logprobs = found.slice(-targetTokens.length);
      checkLength(index, logprobs.length, targetTokens.length);
      return Float32Array.from(logprobs, (logprob, at) => {
        if (logprob === null && mask[at]! > 0)
          throw new TinkerError(`The server sent no logprob of token ${at + 1} of data[${index}].`);
        return logprob ?? 0;
      });
    }),
  );
}

/** Sampling logprob of each token minus its logprob here; 0 for tokens that are not trained. */
export function logprobDifferences(
  data: readonly RolloutDatum[],
  logprobs: readonly ArrayLike<number>[],
): Float32Array[] {
  return data.map(({ logprobs: sampled, mask }, index) => {
    const others = logprobs[index] ?? [];
    checkLength(index, others.length, sampled.length);
    return sampled.map((each, at) => (mask[at]! > 0 ? each - others[at]! : 0));
  });
}

function divergence(data: readonly RolloutDatum[], logprobs: readonly ArrayLike<number>[], tokens: number) {
  let [sum, squares] = [0, 0];
  for (const differences of logprobDifferences(data, logprobs)) {
    for (const difference of differences) {
      sum += difference;
      squares += difference * difference;
    }
  }
  return { v1: sum / tokens, v2: (0.5 * squares) / tokens };
}

function checkLength(index: number, found: number, expected: number): void {
  if (found !== expected)
    throw new TinkerError(`There are ${found} logprobs for the ${expected} targets of data[${index}].`);
}
