import { LOSS_CONFIG_DEFAULTS } from "../../../wire/training/losses.js";
import type { EngineDatum, LossConfig, LossName } from "../engine.js";

/** Loss inputs of consecutive datums, one entry for each target. */
export interface LossInputs {
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

/** Joins the inputs of datums that are computed together; a datum that leaves weights out counts in full, other inputs are the config's value, or zero. */
export function gatherLossInputs(data: EngineDatum[], config: LossConfig): LossInputs {
  const defaults = LOSS_CONFIG_DEFAULTS;
  const total = data.reduce((sum, datum) => sum + datum.targetTokens.length, 0);
  const join = (pick: (datum: EngineDatum) => Float32Array | undefined, otherwise: number) => {
    const out = new Float32Array(total);
    let at = 0;
    for (const datum of data) {
      const values = pick(datum);
      if (values) out.set(values, at);
      else out.fill(otherwise, at, at + datum.targetTokens.length);
      at += datum.targetTokens.length;
    }
    return out;
  };
  return {
    weights: join((datum) => datum.weights, 1),
    advantages: join((datum) => datum.advantages, 0),
    logprobs: join((datum) => datum.logprobs, 0),
    clipLowThreshold: join(
      (datum) => datum.clipLowThreshold,
      config.clipLowThreshold ?? defaults.clipLowThreshold,
    ),
    clipHighThreshold: join(
      (datum) => datum.clipHighThreshold,
      config.clipHighThreshold ?? defaults.clipHighThreshold,
    ),
    beta: config.beta ?? defaults.beta,
  };
}

/** Inputs of plain cross-entropy alone. */
export function crossEntropyInputs(weights: Float32Array): LossInputs {
  const none = new Float32Array(0);
  return {
    weights,
    advantages: none,
    logprobs: none,
    clipLowThreshold: none,
    clipHighThreshold: none,
    beta: 0,
  };
}

/**
 * The losses of targets start..start+logprobs.length of the inputs: each is a sum over targets, so that a logprob's
 * gradient needs no other token. Adds to the sums and returns d loss / d logprob.
 */
export function tokenLosses(
  lossFn: LossName,
  inputs: LossInputs,
  start: number,
  logprobs: Float32Array,
  sums: LossSums,
): Float32Array {
  const gradients = new Float32Array(logprobs.length);
  for (let i = 0; i < logprobs.length; i++) {
    const at = start + i;
    const logprob = logprobs[i]!;
    const weight = inputs.weights[at]!;
    if (lossFn === "cross_entropy") {
      if (weight !== 0) sums.loss -= weight * logprob;
      gradients[i] = -weight;
      continue;
    }
    const advantage = inputs.advantages[at]!;
    if (weight === 0 || (advantage === 0 && lossFn !== "dro")) continue;
    const difference = logprob - inputs.logprobs[at]!;
    const ratio = Math.exp(difference);
    const clippedRatio = Math.min(
      Math.max(ratio, inputs.clipLowThreshold[at]!),
      inputs.clipHighThreshold[at]!,
    );
    switch (lossFn) {
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
        lossFn satisfies never;
    }
  }
  return gradients;
}
