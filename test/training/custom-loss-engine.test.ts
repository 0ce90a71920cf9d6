import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Datum, ServiceClient, TrainingClient } from "../../src/index.js";
import {
  logSigmoid,
  mean,
  mul,
  neg,
  stack,
  sub,
  sum,
  type Tensor,
} from "../../src/training/autograd/index.js";
import type { CustomLossFn } from "../../src/training/custom-loss.js";
import { entropy, klToReference, withRegularizers } from "../../src/training/index.js";
import { startTinyBackend, TINY } from "../support/tiny-backend.js";

const WEIGHTS = Array.from({ length: 12 }, (_, position) => (position < 4 ? 0 : (position % 3) / 8));
const example = (first: number) => {
  const modelInput = Array.from({ length: 12 }, (_, index) => (first * 7 + index * 3) % 50);
  const targetTokens = modelInput.map((token) => (token * 5 + first) % 50);
  return { modelInput, lossFnInputs: { targetTokens, weights: WEIGHTS } };
};

describe("custom losses on the built-in backend", () => {
  let close: () => Promise<void>;
  let service: ServiceClient;
  beforeAll(async () => {
    ({ service, close } = await startTinyBackend());
  });
  afterAll(() => close());
  const create = (seed: number) => service.createLoraTrainingClient({ baseModel: TINY, rank: 4, seed });
  const logprobsOf = async (training: TrainingClient) =>
    (await training.forward([example(1), example(2)], "cross_entropy")).lossFnOutputs.map((output) =>
      output["logprobs"]!.toArray(),
    );

  it("cross entropy written by hand trains bit for bit as the server's own", async () => {
    const byHand: CustomLossFn = (data, logprobs) => ({
      loss: neg(
        sum(stack(logprobs.map((each, index) => sum(mul(each, data[index]!.lossFnInputs["weights"]!))))),
      ),
    });
    const [own, custom] = [await create(3), await create(3)];
    for (let step = 0; step < 5; step++) {
      const batch = [example(step), example(step + 1)];
      const pass = own.forwardBackward(batch, "cross_entropy");
      void own.optimStep({ learningRate: 1e-2 });
      const customPass = custom.forwardBackwardCustom(batch, byHand);
      void custom.optimStep({ learningRate: 1e-2 });
      const expected = (await pass).metrics["loss:sum"]!;
      const { metrics } = await customPass;
      expect(metrics["loss:sum"]).toBeCloseTo(expected, 5);
      expect(metrics["surrogate_loss:sum"]).toBe(expected);
    }
    expect(await logprobsOf(custom)).toEqual(await logprobsOf(own));
  });

  const total = (datum: Datum, logprobs: Tensor) => sum(mul(logprobs, datum.lossFnInputs["weights"]!));

  it("DPO comes to prefer what was chosen, with regularizers on top", async () => {
    const training = await create(4);
    const pairs = [1, 2, 3].flatMap((first) => [example(first), example(first + 10)]);
    const reference = await training.forward(pairs, "cross_entropy");
    const batch = pairs.map(({ modelInput, lossFnInputs }, index) => ({
      modelInput,
      lossFnInputs: { ...lossFnInputs, refLogprobs: reference.lossFnOutputs[index]!["logprobs"]! },
    }));
    const dpo: CustomLossFn = (data, logprobs) => {
      const gains = data.map((datum, index) =>
        sub(
          total(datum, logprobs[index]!),
          sum(mul(datum.lossFnInputs["refLogprobs"]!, datum.lossFnInputs["weights"]!)),
        ),
      );
      const margins = stack([0, 2, 4].map((chosen) => sub(gains[chosen]!, gains[chosen + 1]!)));
      return { loss: neg(mean(logSigmoid(mul(margins, 2)))), metrics: { "margin:mean": mean(margins) } };
    };
    const lossFn = withRegularizers(dpo, [
      { weight: 0.01, term: klToReference({ reference: "refLogprobs" }) },
      { weight: -0.001, term: entropy() },
    ]);
    const results = [];
    for (let step = 0; step < 12; step++) {
      const pass = training.forwardBackwardCustom(batch, lossFn);
      const update = training.optimStep({ learningRate: 1e-2 });
      results.push(await pass);
      await update;
    }
    const [first, last] = [results[0]!, results.at(-1)!];
    expect(first.metrics["base_loss:sum"]).toBeCloseTo(Math.log(2), 5);
    expect(first.regularizers!.terms[0]!.value).toBeCloseTo(0, 6);
    expect(last.metrics["base_loss:sum"]).toBeLessThan(0.35);
    expect(last.metrics["margin:mean"]).toBeGreaterThan(0.5);
    expect(last.regularizers!.terms[0]!.value).toBeGreaterThan(0.01);
    expect(last.regularizers!.terms.map(({ name }) => name)).toEqual(["klToReference", "entropy"]);
  });

  it("a loss that throws in the middle leaves the model as it was, and usable", async () => {
    const training = await create(5);
    const before = await logprobsOf(training);
    const failed = training.forwardBackwardCustom([example(1)], () => {
      throw new Error("mine");
    });
    await expect(failed).rejects.toThrow("mine");
    expect(await logprobsOf(training)).toEqual(before);
  });
});
