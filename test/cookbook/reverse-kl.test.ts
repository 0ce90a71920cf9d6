import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { reverseKlMetrics, reverseKlOfDatum } from "../../src/cookbook/distillation/reverse-kl-loss.js";
import { reverseKlLoss } from "../../src/cookbook/index.js";
import { Datum, ModelInput } from "../../src/index.js";
import { backward, stack, sum, tensor, variable } from "../../src/training/autograd/index.js";
import { evaluateCustomLoss } from "../../src/training/custom-loss.js";

interface Golden {
  readonly loss: number;
  readonly entropy: number;
  readonly positions: number;
  readonly data: readonly Record<"weights" | "logprobs" | "gradients", number[][]>[];
}

/** What PyTorch says: scripts/golden/make_reverse_kl_fixtures.py. */
const golden = JSON.parse(
  readFileSync(new URL("../fixtures/losses/reverse-kl.json", import.meta.url), "utf8"),
) as Golden;

describe("the reverse KL to a teacher's likeliest tokens", () => {
  const data = golden.data.map(
    ({ weights }) =>
      new Datum({
        modelInput: ModelInput.fromInts(weights.map((_, position) => position)),
        lossFnInputs: { targetTokens: weights.map((row) => row.map((_, slot) => slot)), weights },
      }),
  );

  it("has PyTorch's loss and gradients", async () => {
    const logprobs = golden.data.map((each) => variable(each.logprobs));
    const { loss, gradients, metrics } = await evaluateCustomLoss(reverseKlLoss, data, logprobs);
    expect(loss).toBeCloseTo(golden.loss, 5);
    for (const [index, gradient] of gradients.entries()) {
      const expected = golden.data[index]!.gradients.flat();
      expect(gradient).toHaveLength(expected.length);
      for (const [at, value] of gradient.entries()) expect(value).toBeCloseTo(expected[at]!, 5);
    }
    expect(metrics["sdft/reverse_kl_mean"]).toBeCloseTo(golden.loss / golden.positions, 5);
    expect(metrics["sdft/student_entropy_mean"]).toBeCloseTo(golden.entropy, 5);
    expect(metrics["sdft/reverse_kl_positions"]).toBe(golden.positions);
  });

  it("is the same datum by datum, as a server computes it", async () => {
    const logprobs = golden.data.map((each) => variable(each.logprobs));
    const metrics: Record<string, number> = {};
    const losses = golden.data.map(({ weights }, index) => {
      const one = reverseKlOfDatum(logprobs[index]!, { weights: tensor(weights) });
      for (const [name, value] of Object.entries(one.metrics!))
        metrics[name] = (metrics[name] ?? 0) + value.item();
      return one.loss;
    });
    const gradients = backward(sum(stack(losses)));
    for (const [index, { gradients: expected }] of golden.data.entries())
      for (const [at, value] of expected.flat().entries())
        expect(gradients.of(logprobs[index]!)[at]).toBeCloseTo(value, 5);
    expect(reverseKlMetrics(metrics)).toEqual({
      "sdft/reverse_kl_loss": expect.closeTo(golden.loss, 5),
      "sdft/reverse_kl_mean": expect.closeTo(golden.loss / golden.positions, 5),
      "sdft/student_entropy_mean": expect.closeTo(golden.entropy, 5),
      "sdft/reverse_kl_positions": golden.positions,
    });
  });

  it("is 0 for a student that agrees with its teacher, whatever it thinks of other tokens", async () => {
    const agreeing = golden.data.map(({ weights }) =>
      variable(weights.map((row) => row.map((weight) => (weight > 0 ? Math.log(weight) - 1.5 : -7)))),
    );
    const { loss, gradients } = await evaluateCustomLoss(reverseKlLoss, data, agreeing);
    expect(loss).toBeCloseTo(0, 6);
    for (const gradient of gradients) for (const value of gradient) expect(value).toBeCloseTo(0, 6);
  });
});
