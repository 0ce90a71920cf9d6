import {
  add,
  clamp,
  div,
  exp,
  minimum,
  mul,
  stopGradient,
  sub,
  sum,
  type Tensor,
  tensor,
  where,
} from "../../training/autograd/index.js";
import type { CustomLossFn } from "../../training/custom-loss.js";
import { countTaught, type RolloutDatum } from "./rollout-datum.js";

/** Where ratios of whole episodes are clipped: they vary far less than those of tokens. The paper's values. */
export const GSPO_CLIP = { clipLowThreshold: 1 - 3e-4, clipHighThreshold: 1 + 4e-4 };

/**
 * Group sequence policy optimization: one ratio for each episode, `exp(mean(logprob - sampled logprob))` over its
 * tokens, clipped as in PPO. Where tokens of an episode have different advantages, each pushes with its own
 * (GSPO-token); where they are the same, both are one.
 */
export function gspoLoss(
  data: readonly RolloutDatum[],
  { clipLowThreshold: min, clipHighThreshold: max }: typeof GSPO_CLIP,
): CustomLossFn {
  return (_, logprobs) => {
    const episodes = episodesOf(data, logprobs);
    let total: Tensor = tensor(0);
    let clippedTokens = 0;
    for (const parts of episodes) {
      const length = countTaught(parts);
      const drift = parts.reduce((sum, part) => add(sum, part.drift), tensor(0));
      const ratio = stopGradient(exp(div(drift, length)));
      for (const { mask, advantages, learnt } of parts) {
        const ratios = mul(exp(sub(learnt, stopGradient(learnt))), ratio);
        const free = mul(ratios, advantages);
        const clipped = mul(clamp(ratios, { min, max }), advantages);
        total = sub(total, div(sum(where(mask, minimum(free, clipped), 0)), length));
        clippedTokens += mask.filter((each, at) => each > 0 && clipped.data[at]! < free.data[at]!).length;
      }
    }
    return { loss: div(total, episodes.length), metrics: { "clippedTokens:sum": clippedTokens } };
  };
}

/** The data of each episode, with what is known of the tokens that are learnt from. */
function episodesOf(data: readonly RolloutDatum[], logprobs: readonly Tensor[]) {
  const parts = data.map(({ group, trajectory, mask, advantages, logprobs: sampled }, index) => {
    // What does not count may be anything, also infinite.
    const learnt = where(mask, logprobs[index]!, 0);
    const drift = sum(sub(learnt, where(mask, sampled, 0)));
    return { episode: `${group}/${trajectory}`, mask, advantages, learnt, drift };
  });
  const episodes = new Map<string, typeof parts>();
  for (const part of parts) {
    if (!part.mask.some((each) => each > 0)) continue;
    episodes.set(part.episode, [...(episodes.get(part.episode) ?? []), part]);
  }
  return [...episodes.values()];
}
