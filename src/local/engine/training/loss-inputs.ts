import { LOSS_CONFIG_DEFAULTS } from "../../../wire/training/losses.js";
import type { EngineDatum, LossConfig } from "../engine.js";
import type { TokenLossInputs } from "../kernels/token-losses.js";

/** Joins the inputs of datums that are computed together; a datum that leaves weights out counts in full, other inputs are the config's value, or zero. */
export function gatherLossInputs(data: EngineDatum[], config: LossConfig): TokenLossInputs {
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
export function crossEntropyInputs(weights: Float32Array): TokenLossInputs {
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
