import { describe, expect, it } from "vitest";
import { createReferenceKernels } from "../../../../test/engine/reference-kernels.js";
import { put } from "./test-support.js";
import { chooseToken, exponential, topTokensOf } from "./token-choice.js";

const probabilities = [0.05, 0.4, 0.1, 0.25, 0.2];
const logits = Float32Array.from(probabilities, Math.log);
const shares = (choice: { temperature?: number; topK?: number; topP?: number }) => {
  const counts = new Array<number>(5).fill(0);
  const draws = 1000;
  for (let i = 0; i < draws; i++) {
    const token = chooseToken(logits, { temperature: 1, topK: -1, topP: 1, ...choice }, (i + 0.5) / draws);
    counts[token]! += 1 / draws;
  }
  return counts;
};
const expectShares = (choice: Parameters<typeof shares>[0], expected: number[]) => {
  for (const [token, share] of shares(choice).entries()) expect(share).toBeCloseTo(expected[token]!, 2);
};

describe("choosing a token", () => {
  it("follows the distribution", () => expectShares({}, probabilities));
  it("sharpens it below temperature 1", () =>
    expectShares({ temperature: 0.5 }, [0.0091, 0.5818, 0.0364, 0.2273, 0.1455]));
  it("keeps the k likeliest", () => expectShares({ topK: 2 }, [0, 0.6154, 0, 0.3846, 0]));
  it("keeps the fewest that reach p", () => expectShares({ topP: 0.6 }, [0, 0.6154, 0, 0.3846, 0]));
  it("applies top-p to what top-k left", () => expectShares({ topK: 3, topP: 0.4 }, [0, 1, 0, 0, 0]));
  it("takes the first of equal tokens at temperature 0", () => {
    const choice = { temperature: 0, topK: -1, topP: 1 };
    expect(chooseToken(Float32Array.of(1, 3, 3), choice, 0.9)).toBe(1);
  });
  it("never draws a token of probability zero", () => {
    const row = Float32Array.of(Number.NEGATIVE_INFINITY, 0, Number.NEGATIVE_INFINITY);
    for (const random of [0, 0.5, 1 - 2 ** -53]) {
      expect(chooseToken(row, { temperature: 1, topK: -1, topP: 1 }, random)).toBe(1);
    }
  });
});

it("takes exponentials to eleven digits", () => {
  for (let x = 0; x >= -45; x -= 0.00917)
    expect(Math.abs(exponential(x) / Math.exp(x) - 1)).toBeLessThan(1e-11);
});

it("lists the likeliest tokens, equal ones by number, and no more than there are", () => {
  expect(topTokensOf(Float32Array.of(1, 2, 3, 2), 3)).toEqual([2, 1, 3]);
  expect(topTokensOf(Float32Array.of(1, 2, 2), 4)).toEqual([1, 2, 0]);
});

it("draws and lists for many rows of the kernels' memory at once, with the logprobs", async () => {
  const kernels = createReferenceKernels();
  const rows = put(kernels, Float32Array.of(0, 1, 2, 5, 4, 3));
  const logSumExp = put(kernels, Float32Array.of(2.5, 6));
  const [tokens, logprobs] = [kernels.allocInts(4), kernels.alloc(4)];
  const greedy = { temperature: 0, topK: -1, topP: 1, random: 0.5 };
  const draws = [
    { ...greedy, row: 1 },
    { ...greedy, row: 0 },
    { ...greedy, row: 1, temperature: 1, random: 1 - 2 ** -53 },
  ];
  kernels.chooseTokens({ tokens, logprobs, logits: rows, logSumExp, vocabSize: 3, draws });
  expect([...(await kernels.downloadInts(tokens))]).toEqual([0, 2, 2, 0]);
  expect([...(await kernels.download(logprobs))]).toEqual([-1, -0.5, -3, 0]);
  kernels.topTokens({ tokens, logprobs, logits: rows, logSumExp, rows: 2, vocabSize: 3, columns: 2 });
  expect([...(await kernels.downloadInts(tokens))]).toEqual([2, 1, 0, 1]);
  expect([...(await kernels.download(logprobs))]).toEqual([-0.5, -1.5, -1, -2]);
});
