import { TinkerError, ValidationError } from "../../errors.js";
import type { ModelInput } from "../../wire/index.js";
import type { RolledGroup } from "./group-feed.js";
import { countTaught, type RolloutDatum } from "./rollout-datum.js";

/** Changes advantages before they are trained with. Groups that were rewarded alike are kept for it. */
export interface AdvantagePenalty {
  /** Changes `advantages` in place, and gives metrics. */
  apply(data: readonly RolloutDatum[], context: PenaltyContext): Promise<Readonly<Record<string, number>>>;
}

/** What a penalty may know besides the data. */
export interface PenaltyContext {
  /** Those that the data are of: `groups[datum.group]`. */
  readonly groups: readonly RolledGroup[];
  readonly signal: AbortSignal;
}

/** Says how likely the tokens of a text are. A SamplingClient does. */
export interface LogprobSource {
  computeLogprobs(
    prompt: ModelInput,
    options?: { readonly signal?: AbortSignal | undefined },
  ): PromiseLike<readonly (number | null)[]>;
}

/** How far the model may go from a reference. */
export interface KlPenaltyOptions {
  /** The model to stay close to: usually the base model, or the weights that the run began with. */
  readonly reference: LogprobSource;
  /** How much a unit of divergence counts against a unit of reward. */
  readonly coefficient: number;
  /** How much of what later tokens diverge is put down to a token, per position. Default: 0, each answers for itself. */
  readonly discount?: number | undefined;
}

/** Takes off what tokens diverge from a reference beyond the mean of the batch. Its metric is `kl_policy_base`. */
export function klPenalty({ reference, coefficient, discount = 0 }: KlPenaltyOptions): AdvantagePenalty {
  if (!Number.isFinite(coefficient))
    throw new ValidationError(
      "coefficient",
      `coefficient must be a finite number, got ${String(coefficient)}`,
    );
  if (!(discount >= 0 && discount <= 1))
    throw new ValidationError("discount", `discount must be a number from 0 to 1, got ${String(discount)}`);
  return {
    apply: async (data, { signal }) => {
      const divergences = logprobDifferences(data, await logprobsUnder(reference, data, signal));
      const tokens = countTaught(data);
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

/** At each place the sum of what is there and of what follows, each `discount` times as much as the one before. */
export function discountedSums(values: ArrayLike<number>, discount: number): Float32Array {
  const sums = Float32Array.from(values);
  const factor = Math.fround(discount);
  for (let at = sums.length - 2; at >= 0; at--) sums[at]! += Math.fround(factor * sums[at + 1]!);
  return sums;
}

/**
 * How far the trainer is from the sampler, which should be next to nothing where both had the same weights: the mean
 * difference of logprobs (v1) and half their mean square (v2). With it the entropy of what was sampled.
 */
export function klSampleTrain(
  data: readonly RolloutDatum[],
  trainingLogprobs: readonly ArrayLike<number>[],
): Record<string, number> {
  const tokens = countTaught(data);
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

/** How far a step moved the model, by what the new weights say of the same tokens: `kl_pre_post_v1` and `_v2`. */
export async function postKl(
  data: readonly RolloutDatum[],
  sampler: LogprobSource,
  signal?: AbortSignal,
): Promise<Record<string, number>> {
  const tokens = countTaught(data);
  if (tokens === 0) return {};
  const { v1, v2 } = divergence(data, await logprobsUnder(sampler, data, signal), tokens);
  return { kl_pre_post_v1: v1, kl_pre_post_v2: v2 };
}

/** The logprobs of all targets under another model; 0 where one is neither known nor learnt from. */
export function logprobsUnder(
  sampler: LogprobSource,
  data: readonly Pick<RolloutDatum, "input" | "targetTokens" | "mask">[],
  signal?: AbortSignal,
): Promise<Float32Array[]> {
  return Promise.all(
    data.map(async ({ input, targetTokens, mask }, index) => {
      const sequence = input.appendInt(targetTokens.at(-1)!);
      const found = await sampler.computeLogprobs(sequence, { signal });
      // There is none of the first token; some servers leave it out, others say null.
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

/** By how much each token was likelier when it was sampled than here; 0 for tokens that are not learnt from. */
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
