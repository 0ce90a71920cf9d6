import { describe, expect, it } from "vitest";
import { datumsFromSteps, type StepLike } from "./datums-from-steps.js";

const step = (
  promptTokens: number[],
  tokens: number[],
  logprobs = tokens.map((token) => -token / 8),
): StepLike => ({
  providerMetadata: { tinkerts: { promptTokens, tokens, logprobs, stopReason: "stop" } },
  model: { provider: "tinkerts", modelId: "m" },
});
const listed = (...data: ReturnType<typeof datumsFromSteps>) =>
  data.map(({ modelInput, lossFnInputs }) => ({
    input: [...modelInput.toInts()],
    ...Object.fromEntries(
      Object.entries(lossFnInputs).map(([name, tensor]) => [name, [...tensor.toArray()]]),
    ),
  }));

describe("datumsFromSteps", () => {
  it("goes on in one datum while prompts grow, with zeros for what was only read", () => {
    const steps = [step([1, 2], [3, 4]), step([1, 2, 3, 4, 5, 6], [7])];
    expect(listed(...datumsFromSteps({ steps }, { advantage: 0.5 }))).toEqual([
      {
        input: [1, 2, 3, 4, 5, 6],
        targetTokens: [2, 3, 4, 5, 6, 7],
        logprobs: [0, -3 / 8, -0.5, 0, 0, -7 / 8],
        advantages: [0, 0.5, 0.5, 0, 0, 0.5],
      },
    ]);
  });

  it("begins another datum if the prompt was written again, and takes an advantage for each step", () => {
    const steps = [step([1, 2], [3, 4]), step([1, 2, 3, 5], [6]), step([1, 2, 3, 5, 6], [7])];
    expect(listed(...datumsFromSteps(steps, { advantage: [1, 2, -3] }))).toEqual([
      {
        input: [1, 2, 3],
        targetTokens: [2, 3, 4],
        logprobs: [0, -3 / 8, -0.5],
        advantages: [0, 1, 1],
      },
      {
        input: [1, 2, 3, 5, 6],
        targetTokens: [2, 3, 5, 6, 7],
        logprobs: [0, 0, 0, -6 / 8, -7 / 8],
        advantages: [0, 0, 0, 2, -3],
      },
    ]);
  });

  it("names what it cannot use", () => {
    const good = step([1], [2]);
    const other: StepLike = {
      providerMetadata: { openai: { tokens: [1] } },
      model: { provider: "openai.responses", modelId: "gpt-9" },
    };
    expect(() => datumsFromSteps([good, other], { advantage: 1 })).toThrow(
      "steps[1] was answered by openai.responses (gpt-9), and only answers of tinkerts have the tokens",
    );
    const bare = (fields: object): StepLike => ({
      providerMetadata: { tinkerts: { tokens: [1], stopReason: "stop", ...fields } },
    });
    expect(() => datumsFromSteps([bare({ logprobs: [0] })], { advantage: 1 })).toThrow(
      "has images in its prompt",
    );
    expect(() => datumsFromSteps([bare({ promptTokens: [1] })], { advantage: 1 })).toThrow("has no logprobs");
    expect(() => datumsFromSteps([], { advantage: 1 })).toThrow("steps must be the steps of generateText");
    expect(() => datumsFromSteps([good], { advantage: Number.NaN })).toThrow(
      "advantage must be a finite number",
    );
    expect(() => datumsFromSteps([good, good], { advantage: [1] })).toThrow("each of the 2 steps, got 1");
    expect(() => datumsFromSteps([good], { advantage: ["1"] as never })).toThrow("advantage[0] must be");
    expect(() => datumsFromSteps([good], { reward: 1 } as never)).toThrow("unknown field reward");
  });
});
