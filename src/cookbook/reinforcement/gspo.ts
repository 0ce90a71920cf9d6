import {
  add,
  clamp,
  div,
  exp,
  greater,
  less,
  maximum,
  minimum,
  mul,
  neg,
  stopGradient,
  sub,
  sum,
  type Tensor,
  tensor,
  where,
} from "../../training/autograd/index.js";
import type { CustomLossFn } from "../../training/custom-loss.js";
import type { PerDatumLossFn } from "../../training/tracing/trace-loss.js";
import { countTrainedTokens, type RolloutDatum } from "./rollout-datum.js";

/**
 * Group sequence policy optimization: one ratio for each episode, `exp(mean(logprob - sampled logprob))` over its
 * tokens, clipped as in PPO. If tokens of an episode have different advantages, each counts with its own (GSPO-token).
 */
export function gspoLoss(
  data: readonly RolloutDatum[],
  {
    clipLowThreshold: min,
    clipHighThreshold: max,
  }: { readonly clipLowThreshold: number; readonly clipHighThreshold: number },
): CustomLossFn {
  return (_, logprobs) => {
    const episodes = episodesOf(data, logprobs);
    let total: Tensor = tensor(0);
    let clippedTokens = 0;
    for (const parts of episodes) {
      const length = countTrainedTokens(parts);
      const drift = parts.reduce((sum, part) => add(sum, part.drift), tensor(0));
      const ratio = stopGradient(exp(div(drift, length)));
      for (const { mask, advantages, current } of parts) {
        const ratios = mul(exp(sub(current, stopGradient(current))), ratio);
        const free = mul(ratios, advantages);
        const clipped = mul(clamp(ratios, { min, max }), advantages);
        total = sub(total, div(sum(where(mask, minimum(free, clipped), 0)), length));
        clippedTokens += mask.filter((each, at) => each > 0 && clipped.data[at]! < free.data[at]!).length;
      }
    }
    return { loss: div(total, episodes.length), metrics: { "clippedTokens:sum": clippedTokens } };
  };
}

/** The inputs of `gspoOfEpisode`, by their names in `lossFnInputs`. */
export const GSPO_INPUTS = { samplingLogprobs: 1, advantages: 1, mask: 1, scale: 0 } as const;

/** GSPO for an episode that is one datum, which a server can run; `scale` is its part in the mean. */
export function gspoOfEpisode({
  clipLowThreshold: min,
  clipHighThreshold: max,
}: {
  readonly clipLowThreshold: number;
  readonly clipHighThreshold: number;
}): PerDatumLossFn<keyof typeof GSPO_INPUTS> {
  return (logprobs, { samplingLogprobs, advantages, mask, scale }) => {
    const current = where(mask, logprobs, 0);
    const drift = sum(sub(current, where(mask, samplingLogprobs, 0)));
    const ratio = stopGradient(exp(div(drift, maximum(sum(mask), 1))));
    const ratios = mul(exp(sub(current, stopGradient(current))), ratio);
    const free = mul(ratios, advantages);
    const clipped = mul(clamp(ratios, { min, max }), advantages);
    const objective = sum(where(mask, minimum(free, clipped), 0));
    const clippedTokens = sum(mul(greater(mask, 0), less(clipped, free)));
    return { loss: neg(mul(scale, objective)), metrics: { "custom/clipped_tokens:sum": clippedTokens } };
  };
}

/** The part of each datum in the mean over episodes; undefined if an episode has several data. */
export function scalesOfEpisodes(data: readonly RolloutDatum[]): number[] | undefined {
  const lengths = data.map((datum) => countTrainedTokens([datum]));
  const trained = data.filter((_, index) => lengths[index]! > 0);
  const episodes = new Set(trained.map(({ group, trajectory }) => `${group}/${trajectory}`));
  if (episodes.size !== trained.length) return undefined;
  return lengths.map((length) => (length === 0 ? 0 : 1 / (length * episodes.size)));
}

/** The data of each episode, with the values of its trained tokens. */
function episodesOf(data: readonly RolloutDatum[], logprobs: readonly Tensor[]) {
  const parts = data.map(({ group, trajectory, mask, advantages, logprobs: sampled }, index) => {
    // Tokens that do not count may have any value, even infinite ones.
    const current = where(mask, logprobs[index]!, 0);
    const drift = sum(sub(current, where(mask, sampled, 0)));
    return { episode: `${group}/${trajectory}`, mask, advantages, current, drift };
  });
  const episodes = new Map<string, typeof parts>();
  for (const part of parts) {
    if (!part.mask.some((each) => each > 0)) continue;
    episodes.set(part.episode, [...(episodes.get(part.episode) ?? []), part]);
  }
  return [...episodes.values()];
}
