import { describe, expect, it } from "vitest";
import type { PublishedLoss } from "../../../wire/training/losses.js";
import type { EngineDatum } from "../engine.js";
import { gatherLossInputs } from "../training/loss-inputs.js";
import { tokenLosses } from "./token-losses.js";

const POLICY_LOSSES = ["importance_sampling", "ppo", "cispo", "dro"] as const;
// None of the ratios is at a threshold, where the losses have a corner.
const logprobs = Float32Array.of(-0.5, -1.5, -1, -0.25, -2);
const datum: EngineDatum = {
  tokens: new Int32Array(5),
  targetTokens: new Int32Array(5),
  targetsPerToken: 1,
  logprobs: Float32Array.of(-1, -1, -1.125, -0.25, -1.875),
  advantages: Float32Array.of(1, -2, 0.5, 3, -1),
};
const weighted = { ...datum, weights: Float32Array.of(0.5, 2, 0, 1, -4) };

function lossOf(lossFn: PublishedLoss, one: EngineDatum, at = logprobs) {
  const sums = { loss: 0, clippedTokens: 0 };
  const gradients = tokenLosses(lossFn, gatherLossInputs([one], {}), at, sums);
  return { gradients: [...gradients], ...sums };
}

describe.each(["cross_entropy", ...POLICY_LOSSES] as const)("weights in %s", (lossFn) => {
  it("multiply each token's loss and gradient", () => {
    const plain = lossOf(lossFn, datum);
    const { loss, gradients } = lossOf(lossFn, weighted);
    const alone = [...logprobs.keys()].map((index) => {
      const only = new Float32Array(5);
      only[index] = 1;
      return lossOf(lossFn, { ...datum, weights: only });
    });
    const expected = alone.reduce((sum, one, index) => sum + weighted.weights[index]! * one.loss, 0);
    expect(loss).toBeCloseTo(expected, 10);
    expect(gradients.map(Math.abs)).toEqual(
      plain.gradients.map((gradient, index) => Math.abs(Math.fround(gradient * weighted.weights[index]!))),
    );
  });

  it("count a token in full where there are none", () => {
    const ones = { ...datum, weights: new Float32Array(5).fill(1) };
    expect(lossOf(lossFn, datum)).toEqual(lossOf(lossFn, ones));
  });

  it("leave no trace of a masked token", () => {
    const masked = lossOf(lossFn, { ...datum, weights: new Float32Array(5) });
    expect(masked.loss).toBe(0);
    expect(masked.clippedTokens).toBe(0);
    expect(masked.gradients.every((gradient) => gradient === 0)).toBe(true);
  });

  it.runIf(lossFn !== "cispo")("agree with finite differences of the loss", () => {
    const { gradients } = lossOf(lossFn, weighted);
    // A power of two: the shifted logprobs are exact.
    const step = 2 ** -10;
    for (const index of logprobs.keys()) {
      const shifted = (by: number) =>
        lossOf(
          lossFn,
          weighted,
          logprobs.map((value, i) => value + (i === index ? by : 0)),
        ).loss;
      expect(gradients[index]).toBeCloseTo((shifted(step) - shifted(-step)) / (2 * step), 4);
    }
  });
});
