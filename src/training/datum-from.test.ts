import { describe, expect, it } from "vitest";
import { type Datum, ModelInput } from "../wire/index.js";
import { datumFromAnswer, datumFromSample } from "./datum-from.js";

const inputsOf = ({ lossFnInputs }: Datum) =>
  Object.fromEntries(Object.entries(lossFnInputs).map(([key, tensor]) => [key, tensor.toDense().toArray()]));

describe("datumFromAnswer", () => {
  it("shifts by one and weighs the answer alone", () => {
    const datum = datumFromAnswer([1, 2, 3], [4, 5]);
    expect(datum.modelInput.toInts()).toEqual([1, 2, 3, 4]);
    expect(inputsOf(datum)).toEqual({ targetTokens: [2, 3, 4, 5], weights: [0, 0, 1, 1] });
  });

  it("takes tokens in any form, and no chunk boundary moves a token", () => {
    const chunked = ModelInput.from([
      { type: "encoded_text", tokens: [1] },
      { type: "encoded_text", tokens: [2, 3] },
    ]);
    const expected = inputsOf(datumFromAnswer([1, 2, 3], [4, 5]));
    for (const [prompt, answer] of [
      [Int32Array.of(1, 2, 3), Int32Array.of(4, 5)],
      [chunked, ModelInput.fromInts([4, 5])],
      [BigInt64Array.of(1n, 2n, 3n), [4, 5]],
    ] as const) {
      expect(inputsOf(datumFromAnswer(prompt, answer))).toEqual(expected);
    }
  });

  it("learns all of a text that has no prompt", () => {
    for (const prompt of [[], ModelInput.empty()]) {
      const datum = datumFromAnswer(prompt, [7, 8, 9]);
      expect(datum.modelInput.toInts()).toEqual([7, 8]);
      expect(inputsOf(datum)).toEqual({ targetTokens: [8, 9], weights: [1, 1] });
    }
  });

  it("learns nothing at the places of an image", () => {
    const image = { type: "image", data: new Uint8Array(4), format: "png", expectedTokens: 3 } as const;
    const prompt = [{ type: "encoded_text", tokens: [1] } as const, image];
    const datum = datumFromAnswer(prompt, [4, 5]);
    expect(datum.modelInput.chunks.map(({ type }) => type)).toEqual([
      "encoded_text",
      "image",
      "encoded_text",
    ]);
    expect(datum.modelInput.length).toBe(5);
    expect(inputsOf(datum)).toEqual({ targetTokens: [0, 0, 0, 4, 5], weights: [0, 0, 0, 1, 1] });
    expect(datumFromAnswer(prompt, [4]).modelInput.chunks).toHaveLength(2);
  });

  it.each([
    [[1, 2], [], "answer must have at least one token, got 0"],
    [[], [1], "answer must have at least two tokens, as the prompt is empty, got 1"],
    [[1, -2], [3], "prompt[1] must be a token id (an integer from 0 to 2147483647), got -2"],
    [[1], [3.5], "answer[0] must be a token id (an integer from 0 to 2147483647), got 3.5"],
    ["text", [3], 'prompt must be tokens, got the text "text": encode it with the model\'s tokenizer first'],
    [[1], [{ type: "dmel", dmel: "" }], "answer must be text alone: only tokens can be predicted"],
  ])("refuses %j with the answer %j", (prompt, answer, message) => {
    expect(() => datumFromAnswer(prompt as number[], answer as number[])).toThrow(message);
  });
});

describe("datumFromSample", () => {
  it("gives the sampled tokens their logprobs and the advantage, the prompt neither", () => {
    const sample = { tokens: Int32Array.of(4, 5), logprobs: Float32Array.of(-0.5, -0.25) };
    const datum = datumFromSample([1, 2, 3], sample, -2);
    expect(datum.modelInput.toInts()).toEqual([1, 2, 3, 4]);
    expect(inputsOf(datum)).toEqual({
      targetTokens: [2, 3, 4, 5],
      logprobs: [0, 0, -0.5, -0.25],
      advantages: [0, 0, -2, -2],
    });
  });

  it("leaves the first token out where nothing comes before it", () => {
    const datum = datumFromSample([], { tokens: [4, 5], logprobs: [-0.5, -0.25] }, 1);
    expect(inputsOf(datum)).toEqual({ targetTokens: [5], logprobs: [-0.25], advantages: [1] });
  });

  it.each([
    [
      { tokens: [4, 5], logprobs: null },
      1,
      "sample.logprobs must have one logprob for each of the 2 tokens, got none",
    ],
    [
      { tokens: [4, 5], logprobs: [-1] },
      1,
      "sample.logprobs must have one logprob for each of the 2 tokens, got 1",
    ],
    [{ tokens: [], logprobs: [] }, 1, "sample.tokens must have at least one token, got 0"],
    [{ tokens: [4], logprobs: [-1] }, Number.NaN, "advantage must be a finite number, got NaN"],
  ])("refuses %j with the advantage %d", (sample, advantage, message) => {
    expect(() => datumFromSample([1], sample, advantage)).toThrow(message);
  });
});
