import { afterAll, describe, expect, it } from "vitest";
import { type Kernels, sliceBuffer } from "../../../src/local/engine/kernels/kernels.js";
import { put, randomFloats } from "../../../src/local/engine/kernels/test-support.js";
import { type TokenLossInputs, tokenLosses } from "../../../src/local/engine/kernels/token-losses.js";
import { compare, compareTwice, ints, openKernels, random } from "../gpus.js";

const kernels = await openKernels();
afterAll(() => kernels.close());

describe("logSoftmaxGather and logitsGradient", () => {
  const bothWays =
    (rows: number, vocabSize: number, targetsPerRow: number, skip: number) => (on: Kernels) => {
      const logits = random(on, rows * vocabSize, 1, skip);
      on.scale(logits, 12);
      const count = rows * targetsPerRow;
      // Some rows have a target twice.
      const targets = ints(
        on,
        Array.from({ length: count }, (_, i) => ((i >> (i % 3 === 2 ? 1 : 0)) * 3119) % vocabSize),
      );
      const coefficients = random(on, count, 2);
      on.zero(sliceBuffer(coefficients, 0, 1));
      const [logprobs, logSumExp] = [on.alloc(count), on.alloc(rows)];
      const shared = { logits, logSumExp, targets, rows, vocabSize, targetsPerRow };
      on.logSoftmaxGather({ ...shared, logprobs });
      on.logitsGradient({ ...shared, coefficients });
      return [logprobs, logSumExp, logits];
    };

  it.each([
    [1, 1, 1, 0],
    [3, 7, 2, 0],
    [9, 64, 1, 0],
    [9, 64, 1, 1],
    [30, 1003, 3, 0],
    [2, 20_004, 5, 0],
    [1, 9001, 2, 0],
  ])("of %i rows of %i with %i targets, %i after an aligned place", async (rows, vocabSize, perRow, skip) => {
    await compare(kernels, 2e-6, bothWays(rows, vocabSize, perRow, skip));
  });

  it.each([7, 64])("never hide that one of %i logits is not finite", async (vocabSize) => {
    const values = randomFloats(4 * vocabSize, 3);
    values.fill(Number.NaN, 0, vocabSize);
    values[2 * vocabSize - 1] = Number.NaN;
    values[2 * vocabSize + 3] = Number.POSITIVE_INFINITY;
    const logits = put(kernels, values);
    const targets = ints(kernels, [0, 1, 2, 3]);
    const [logprobs, logSumExp] = [kernels.alloc(4), kernels.alloc(4)];
    const shared = { logits, logSumExp, targets, rows: 4, vocabSize, targetsPerRow: 1 };
    kernels.logSoftmaxGather({ ...shared, logprobs });
    kernels.logitsGradient({ ...shared, coefficients: put(kernels, new Float32Array(4).fill(1)) });
    const finite = (numbers: Float32Array) => Array.from(numbers, Number.isFinite);
    expect(finite(await kernels.download(logSumExp))).toEqual([false, false, false, true]);
    const gradients = finite(await kernels.download(logits));
    expect([0, 1, 2, 3].map((row) => gradients[row * vocabSize + 3])).toEqual([false, false, false, true]);
  });

  it("have the same bits again", () => compareTwice(kernels, bothWays(2, 20_004, 5, 0)));

  it("give a row the same bits alone and among others", async () => {
    const [vocabSize, rows] = [5000, 12];
    const logits = random(kernels, rows * vocabSize, 1);
    const logSumExps = async (first: number, count: number) => {
      const [logprobs, logSumExp] = [kernels.alloc(count), kernels.alloc(count)];
      const part = sliceBuffer(logits, first * vocabSize, count * vocabSize);
      const targets = ints(kernels, new Array(count).fill(0));
      kernels.logSoftmaxGather({
        logprobs,
        logSumExp,
        logits: part,
        targets,
        rows: count,
        vocabSize,
        targetsPerRow: 1,
      });
      return kernels.download(logSumExp);
    };
    expect((await logSumExps(7, 1))[0]).toBe((await logSumExps(0, rows))[7]);
  });

  it("stay finite for logits of any size", async () => {
    const logits = put(kernels, Float32Array.of(3e38, -3e38, 0, 88, 1000, 1001, -1e4, 999));
    const [logprobs, logSumExp] = [kernels.alloc(2), kernels.alloc(2)];
    const shared = {
      logSumExp,
      logits,
      targets: ints(kernels, [0, 1]),
      rows: 2,
      vocabSize: 4,
      targetsPerRow: 1,
    };
    kernels.logSoftmaxGather({ ...shared, logprobs });
    const [first, second] = await kernels.download(logprobs);
    expect(first).toBe(0);
    expect(second).toBeCloseTo(-Math.log(1 + Math.exp(-1) + Math.exp(-2)), 4);
    kernels.logitsGradient({ ...shared, coefficients: put(kernels, Float32Array.of(1, 1)) });
    const gradient = await kernels.download(logits);
    expect(Array.from(gradient.subarray(0, 4), Math.abs)).toEqual([0, 0, 0, 0]);
    expect(gradient[5]).toBeCloseTo(1 - Math.exp(second!), 3);
  });
});

describe("tokenGradients", () => {
  const count = 203;
  const none = new Float32Array(0);
  const near = (seed: number) => randomFloats(count, seed).map((value) => value - 3);
  const spoiled = (values: Float32Array, every: number) =>
    values.map((value, i) => (i % every === 0 ? 0 : value));
  const weights = spoiled(randomFloats(count, 1), 7);
  const logprobs = near(2);
  const ratio: TokenLossInputs = {
    weights,
    advantages: spoiled(randomFloats(count, 3), 5),
    // A token that does not count may have been as good as impossible.
    logprobs: near(4).map((value, i) => (i % 35 === 0 ? -1e30 : value)),
    clipLowThreshold: none,
    clipHighThreshold: none,
    beta: 0.05,
  };
  const clip = {
    clipLowThreshold: randomFloats(count, 5).map((value) => 0.8 + 0.1 * value),
    clipHighThreshold: randomFloats(count, 6).map((value) => 1.2 + 0.1 * value),
  };
  const cases = {
    cross_entropy: { ...ratio, advantages: none, logprobs: none },
    importance_sampling: ratio,
    ppo: { ...ratio, ...clip },
    cispo: { ...ratio, ...clip },
    dro: { ...ratio, logprobs: near(4) },
  } as const;

  it.each(Object.keys(cases) as (keyof typeof cases)[])("of %s", async (loss) => {
    const inputs = cases[loss];
    const gradients = random(kernels, count, 9);
    kernels.tokenGradients({
      gradients,
      logprobs: put(kernels, logprobs),
      loss,
      inputs: {
        weights: put(kernels, inputs.weights),
        advantages: put(kernels, inputs.advantages),
        logprobs: put(kernels, inputs.logprobs),
        clipLowThreshold: put(kernels, inputs.clipLowThreshold),
        clipHighThreshold: put(kernels, inputs.clipHighThreshold),
        beta: inputs.beta,
      },
      count,
    });
    const expected = tokenLosses(loss, inputs, logprobs, { loss: 0, clippedTokens: 0 });
    const actual = await kernels.download(gradients);
    expected.forEach((value, i) => {
      expect(Math.abs(actual[i]! - value), `target ${i}`).toBeLessThanOrEqual(1e-7 + 2e-6 * Math.abs(value));
    });
  });
});
