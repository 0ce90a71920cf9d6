import { describe, expect, it } from "vitest";
import { bitsPerByte, meanNll } from "./likelihood.js";

describe("likelihoods", () => {
  const tokenizer = {
    encode: () => [],
    // 9 is a special token, 7 is half of a character that 7, 7 make whole.
    decode: (tokens: ArrayLike<number>, { skipSpecialTokens = false } = {}) =>
      Array.from(tokens)
        .map(String)
        .join("")
        .replaceAll("77", "é")
        .replaceAll("9", skipSpecialTokens ? "" : "<end>"),
  };

  it("weigh tokens as the batch does", () => {
    const batch = [
      { logprobs: [-1, -2, Number.NEGATIVE_INFINITY], weights: [0.5, 0.5, 0] },
      { logprobs: [-4], weights: [1] },
    ];
    expect(meanNll(batch)).toBe((0.5 + 1 + 4) / 2);
    expect(meanNll([{ logprobs: [-1], weights: [0] }])).toBeNaN();
  });

  it("count the bytes of trained tokens, without special tokens on either side", () => {
    const scored = (logprobs: number[], weights: number[], targetTokens: number[]) => [
      { logprobs, weights, targetTokens },
    ];
    // "é" is two bytes; the untrained token and the special one do not count.
    const bits = bitsPerByte(
      scored([-1, -1, -100, -100, -2], [0.1, 0.1, 0, 1, 1], [7, 7, 5, 9, 3]),
      tokenizer,
    );
    expect(bits).toBeCloseTo(4 / (Math.LN2 * 3), 12);
    expect(bitsPerByte(scored([-1], [1], [9]), tokenizer)).toBeNaN();
  });
});
