/** The five losses, token by token: each is a sum over targets, so a logprob's slope needs no other token. */
import { type EngineDatum, EngineInputError, type LossName } from "../engine.js";

/** Loss inputs of consecutive datums, one entry for each target. */
export interface LossInputs {
  weights: Float32Array;
  advantages: Float32Array;
  logprobs: Float32Array;
  clipLow: Float32Array;
  clipHigh: Float32Array;
  beta: number;
}

/** Added to target by target, so that the sum is the same bits however the targets are cut into steps. */
export interface LossSums {
  loss: number;
  clipped: number;
}

const configKeys: Record<LossName, readonly string[]> = {
  cross_entropy: [],
  importance_sampling: [],
  ppo: ["clip_low_threshold", "clip_high_threshold"],
  cispo: ["clip_low_threshold", "clip_high_threshold"],
  dro: ["beta"],
};
const defaults = { clipLow: 0.8, clipHigh: 1.2, beta: 0.05 };

export function checkLossConfig(lossFn: LossName, config: Record<string, number>): void {
  const known = configKeys[lossFn];
  if (!known)
    throw new EngineInputError(`loss_fn ${String(lossFn)} is not one of ${Object.keys(configKeys)}`);
  for (const [key, value] of Object.entries(config)) {
    if (!known.includes(key)) {
      const allowed = known.length > 0 ? `it takes ${known.join(" and ")}` : "it takes none";
      throw new EngineInputError(`loss_fn_config.${key} is not a setting of ${lossFn}: ${allowed}`);
    }
    if (!Number.isFinite(value))
      throw new EngineInputError(`loss_fn_config.${key} must be a number, got ${value}`);
  }
}

export function checkDatum(
  datum: EngineDatum,
  index: number,
  lossFn: LossName,
  limits: { vocabSize: number; maxLength: number },
): void {
  const where = `data[${index}]`;
  const { tokens, targetTokens, targetsPerToken } = datum;
  const fail = (what: string) => {
    throw new EngineInputError(`${where}${what}`);
  };
  if (tokens.length === 0) fail(".model_input is empty");
  if (tokens.length > limits.maxLength) {
    fail(`.model_input has ${tokens.length} tokens, the model's context is ${limits.maxLength}`);
  }
  if (targetsPerToken < 1 || targetTokens.length !== tokens.length * targetsPerToken) {
    fail(`.target_tokens has ${targetTokens.length} entries for ${tokens.length} x ${targetsPerToken}`);
  }
  if (lossFn !== "cross_entropy" && targetsPerToken !== 1) {
    fail(`.target_tokens has ${targetsPerToken} columns, but ${lossFn} takes one target for each token`);
  }
  for (const [field, ids] of [
    ["model_input", tokens],
    ["target_tokens", targetTokens],
  ] as const) {
    const bad = ids.findIndex((id) => id < 0 || id >= limits.vocabSize);
    if (bad >= 0) fail(`.${field}[${bad}] is token ${ids[bad]}, the vocabulary has ${limits.vocabSize}`);
  }
  const lengths: [string, Float32Array | undefined, boolean][] = [
    ["weights", datum.weights, false],
    ["advantages", datum.advantages, lossFn !== "cross_entropy"],
    ["logprobs", datum.logprobs, lossFn !== "cross_entropy"],
    ["clip_low_threshold", datum.clipLowThreshold, false],
    ["clip_high_threshold", datum.clipHighThreshold, false],
  ];
  for (const [field, values, required] of lengths) {
    if (required && !values) fail(`.${field} is missing: ${lossFn} needs it`);
    if (values && values.length !== targetTokens.length) {
      fail(`.${field} has ${values.length} values, target_tokens has ${targetTokens.length}`);
    }
  }
}

export function gatherLossInputs(data: EngineDatum[], config: Record<string, number>): LossInputs {
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
    weights: join((datum) => datum.weights, 0),
    advantages: join((datum) => datum.advantages, 0),
    logprobs: join((datum) => datum.logprobs, 0),
    clipLow: join((datum) => datum.clipLowThreshold, config["clip_low_threshold"] ?? defaults.clipLow),
    clipHigh: join((datum) => datum.clipHighThreshold, config["clip_high_threshold"] ?? defaults.clipHigh),
    beta: config["beta"] ?? defaults.beta,
  };
}

/**
 * For targets start..start+logprobs.length of the inputs: writes d loss / d logprob into `slopes` and adds to the sums.
 */
export function tokenLosses(
  lossFn: LossName,
  inputs: LossInputs,
  start: number,
  logprobs: Float32Array,
  slopes: Float32Array,
  sums: LossSums,
): void {
  for (let i = 0; i < logprobs.length; i++) {
    const at = start + i;
    const logprob = logprobs[i]!;
    if (lossFn === "cross_entropy") {
      const weight = inputs.weights[at]!;
      if (weight !== 0) sums.loss -= weight * logprob;
      slopes[i] = -weight;
      continue;
    }
    const advantage = inputs.advantages[at]!;
    if (advantage === 0 && lossFn !== "dro") {
      slopes[i] = 0;
      continue;
    }
    const difference = logprob - inputs.logprobs[at]!;
    const ratio = Math.exp(difference);
    const clippedRatio = Math.min(Math.max(ratio, inputs.clipLow[at]!), inputs.clipHigh[at]!);
    switch (lossFn) {
      case "importance_sampling":
        sums.loss -= ratio * advantage;
        slopes[i] = -ratio * advantage;
        break;
      case "ppo": {
        const limited = clippedRatio * advantage < ratio * advantage;
        sums.loss -= limited ? clippedRatio * advantage : ratio * advantage;
        slopes[i] = limited ? 0 : -ratio * advantage;
        if (limited) sums.clipped += 1;
        break;
      }
      case "cispo":
        sums.loss -= clippedRatio * logprob * advantage;
        slopes[i] = -clippedRatio * advantage;
        if (clippedRatio !== ratio) sums.clipped += 1;
        break;
      case "dro":
        sums.loss -= logprob * advantage - 0.5 * inputs.beta * difference * difference;
        slopes[i] = -(advantage - inputs.beta * difference);
        break;
      default:
        lossFn satisfies never;
    }
  }
}
