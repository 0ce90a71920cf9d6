import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { variable } from "../../training/autograd/index.js";
import { evaluateCustomLoss } from "../../training/custom-loss.js";
import { Datum } from "../../wire/index.js";
import { dpoLoss, ipoLoss, type PairLoss, simpoLoss } from "./pair-losses.js";

interface Vectors {
  readonly data: readonly { logprobs: number[]; reference: number[]; weights: number[] }[];
  readonly vectors: readonly {
    readonly loss: "dpo" | "ipo" | "simpo";
    readonly options: Record<string, number>;
    readonly ties?: readonly number[];
    readonly value: number;
    readonly metrics: Readonly<Record<string, number>>;
    readonly gradients: readonly (readonly number[])[];
  }[];
}

/** Made by torch: scripts/golden/make_pair_loss_fixtures.py. */
const golden = JSON.parse(
  readFileSync(new URL("../../../test/fixtures/losses/pairs.json", import.meta.url), "utf8"),
) as Vectors;

const LOSSES = { dpo: dpoLoss, ipo: ipoLoss, simpo: simpoLoss };

const datumsOf = (data: Vectors["data"], ties: readonly number[] = []) =>
  data.map(
    ({ reference, weights }, place) =>
      new Datum({
        modelInput: weights.map(() => 1),
        lossFnInputs: {
          targetTokens: Int32Array.from(weights, () => 2),
          weights: Float32Array.from(weights),
          refLogprobs: Float32Array.from(reference),
          ...(place % 2 === 0 && ties[place / 2] === 1 && { preference: Float32Array.of(0.5) }),
        },
      }),
  );

const evaluate = (
  loss: PairLoss,
  datums: readonly Datum[],
  logprobs = golden.data.map((each) => each.logprobs),
) =>
  evaluateCustomLoss(
    loss,
    datums,
    logprobs.map((each) => variable(each)),
  );

describe("losses over pairs", () => {
  it.each(golden.vectors)("have torch's values and gradients: $loss $options, ties $ties", async (vector) => {
    const loss = LOSSES[vector.loss](vector.options);
    const made = await evaluate(loss, datumsOf(golden.data, vector.ties));
    expect(made.loss).toBeCloseTo(vector.value, 5);
    expect(made.metrics["dpo_loss"]).toBe(made.loss);
    for (const [name, value] of Object.entries(vector.metrics))
      expect(made.metrics[name], name).toBeCloseTo(value, 5);
    for (const [place, gradient] of vector.gradients.entries())
      for (const [token, slope] of gradient.entries())
        expect(made.gradients[place]![token], `gradient ${token} of datum ${place}`).toBeCloseTo(slope, 5);
  });

  it("count ties in the loss alone", async () => {
    const { data } = golden;
    const all = await evaluate(dpoLoss(), datumsOf(data));
    const tied = await evaluate(dpoLoss(), datumsOf(data, [0, 1, 1, 1, 1]));
    expect(all.metrics).toMatchObject({ num_pairs: 5 });
    expect(all.metrics).not.toHaveProperty("num_ties");
    const first = await evaluate(
      dpoLoss(),
      datumsOf(data).slice(0, 2),
      data.slice(0, 2).map((each) => each.logprobs),
    );
    const { num_pairs, num_ties, dpo_loss, ...others } = tied.metrics;
    expect({ num_pairs, num_ties }).toEqual({ num_pairs: 5, num_ties: 4 });
    expect(others).toEqual({
      accuracy: first.metrics["accuracy"],
      margin: first.metrics["margin"],
      chosen_reward: first.metrics["chosen_reward"],
      rejected_reward: first.metrics["rejected_reward"],
    });
    expect(dpo_loss).toBeGreaterThan(0);
    const allTied = await evaluate(dpoLoss(), datumsOf(data, [1, 1, 1, 1, 1]));
    expect(Object.keys(allTied.metrics)).toEqual(["dpo_loss", "num_pairs", "num_ties"]);
  });

  it("pull the margin of a tie to 0, from either side", async () => {
    const pair = [
      { logprobs: [-1], reference: [-2], weights: [1] },
      { logprobs: [-2], reference: [-2], weights: [1] },
    ];
    for (const loss of [dpoLoss(), ipoLoss()]) {
      const ahead = await evaluate(loss, datumsOf(pair, [1]), [[-1], [-2]]);
      const behind = await evaluate(loss, datumsOf(pair, [1]), [[-3], [-2]]);
      const level = await evaluate(loss, datumsOf(pair, [1]), [[-2], [-2]]);
      expect(ahead.gradients[0]![0]).toBeGreaterThan(0);
      expect(behind.gradients[0]![0]).toBeLessThan(0);
      expect(level.gradients[0]![0]).toBeCloseTo(0, 12);
    }
  });

  it("give no weight to what is only read, be it infinite", async () => {
    const logprobs = golden.data.map((each) => [...each.logprobs]);
    const before = await evaluate(dpoLoss(), datumsOf(golden.data), logprobs);
    logprobs[0]![0] = Number.NEGATIVE_INFINITY;
    const after = await evaluate(dpoLoss(), datumsOf(golden.data), logprobs);
    expect(after.loss).toBe(before.loss);
    expect(after.gradients[0]![0]).toBe(0);
  });

  it("refuse data that are not pairs, or lack a reference", async () => {
    const datums = datumsOf(golden.data);
    await expect(
      evaluate(
        dpoLoss(),
        datums.slice(1),
        golden.data.slice(1).map((each) => each.logprobs),
      ),
    ).rejects.toThrow("data must be pairs of answers, got 9 datums");
    const { modelInput, lossFnInputs } = datums[1]!;
    const { refLogprobs: _, ...inputs } = lossFnInputs as Record<string, never>;
    const without = [datums[0]!, new Datum({ modelInput, lossFnInputs: inputs })];
    const logprobs = golden.data.slice(0, 2).map((each) => each.logprobs);
    await expect(evaluate(dpoLoss(), without, logprobs)).rejects.toThrow(
      "data[1].lossFnInputs.refLogprobs is missing",
    );
    await expect(evaluate(simpoLoss(), without, logprobs)).resolves.toBeDefined();
    await expect(evaluate(simpoLoss(), datumsOf(golden.data, [1]))).rejects.toThrow(
      "data must not contain ties: simpoLoss cannot train on them",
    );
    expect(() => dpoLoss({ beta: 0 })).toThrow("beta must be a number above 0, got 0");
    expect(() => dpoLoss({ labelSmoothing: 0.5 })).toThrow(
      "labelSmoothing must be a number from 0 to below 0.5",
    );
    expect(() => simpoLoss({ targetMargin: -1 })).toThrow(
      "targetMargin must be a non-negative number, got -1",
    );
  });
});
