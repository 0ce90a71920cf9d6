import type { PublishedLoss } from "../../../wire/training/losses.js";

/** Inputs of a token loss for each target besides its logprob; those that the loss does not read may be empty. */
export interface TokenLossInputs {
  weights: Float32Array;
  advantages: Float32Array;
  logprobs: Float32Array;
  clipLowThreshold: Float32Array;
  clipHighThreshold: Float32Array;
  beta: number;
}

/** Added to target by target, so that the sum is the same bits however the targets are cut into steps. */
export interface LossSums {
  loss: number;
  clippedTokens: number;
}

/**
 * The losses of targets: each is a sum over targets, so that a logprob's gradient needs no other token.
 * Adds to the sums and returns d loss / d logprob.
 */
export function tokenLosses(
  loss: PublishedLoss,
  inputs: TokenLossInputs,
  logprobs: Float32Array,
  sums: LossSums,
): Float32Array {
  const gradients = new Float32Array(logprobs.length);
  for (let i = 0; i < logprobs.length; i++) {
    if (!canLearn(loss, inputs, i)) continue;
    const logprob = logprobs[i]!;
    const weight = inputs.weights[i]!;
    if (loss === "cross_entropy") {
      sums.loss -= weight * logprob;
      gradients[i] = -weight;
      continue;
    }
    const advantage = inputs.advantages[i]!;
    const difference = logprob - inputs.logprobs[i]!;
    const ratio = Math.exp(difference);
    const clippedRatio = Math.min(Math.max(ratio, inputs.clipLowThreshold[i]!), inputs.clipHighThreshold[i]!);
    switch (loss) {
      case "importance_sampling":
        sums.loss -= weight * (ratio * advantage);
        gradients[i] = -weight * (ratio * advantage);
        break;
      case "ppo": {
        const limited = clippedRatio * advantage < ratio * advantage;
        sums.loss -= weight * (limited ? clippedRatio * advantage : ratio * advantage);
        gradients[i] = limited ? 0 : -weight * (ratio * advantage);
        if (limited) sums.clippedTokens += 1;
        break;
      }
      case "cispo":
        sums.loss -= weight * (clippedRatio * logprob * advantage);
        gradients[i] = -weight * (clippedRatio * advantage);
        if (clippedRatio !== ratio) sums.clippedTokens += 1;
        break;
      case "dro":
        sums.loss -= weight * (logprob * advantage - 0.5 * inputs.beta * difference * difference);
        gradients[i] = -weight * (advantage - inputs.beta * difference);
        break;
      default:
        loss satisfies never;
    }
  }
  return gradients;
}

/** Whether a target counts at all; where it does not, its gradient is zero whatever its logprob. */
export function canLearn(loss: PublishedLoss, inputs: TokenLossInputs, index: number): boolean {
  if (inputs.weights[index] === 0) return false;
  return loss === "cross_entropy" || loss === "dro" || inputs.advantages[index] !== 0;
}
