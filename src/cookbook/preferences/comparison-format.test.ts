import { describe, expect, it } from "vitest";
import { characterVocabulary } from "../../../test/conformance/vocabularies.js";
import { getRenderer, rendererNames } from "../../renderers/index.js";
import { comparisonMessages, labelDatum, renderComparison } from "./comparison-format.js";
import { pairData } from "./pairs.js";

const COMPARISON = {
  prompt: [{ role: "user", content: "1+1=" }],
  completionA: [{ role: "assistant", content: "2" }],
  completionB: [{ role: "assistant", content: "3" }],
};
const names = rendererNames().filter((name) => name !== "template");
const rendererOf = (name: string) => getRenderer(name, characterVocabulary(name).tokenizer);

describe("a comparison that dpoLoss learns from", () => {
  const renderer = rendererOf("qwen3_instruct");
  const answersOf = (label: "A" | "B" | "Tie") =>
    pairData({ ...COMPARISON, label }, renderer).map(({ lossFnInputs: { targetTokens, weights } }) =>
      renderer.tokenizer.decode([...targetTokens!.toDense().data].filter((_, at) => weights!.data[at]! > 0)),
    );

  it("has the better answer first, and its weights on the answers alone", () => {
    expect(answersOf("A").map((answer) => answer[0])).toEqual(["2", "3"]);
    expect(answersOf("B")).toEqual(answersOf("A").toReversed());
    const [tied] = pairData({ ...COMPARISON, label: "Tie" }, renderer);
    expect([...tied!.lossFnInputs["preference"]!.data]).toEqual([0.5]);
  });

  it("has nothing where the answers are the same, or are cut off", () => {
    const same = { ...COMPARISON, completionB: COMPARISON.completionA, label: "A" } as const;
    expect(pairData(same, renderer)).toEqual([]);
    expect(pairData({ ...COMPARISON, label: "A" }, renderer, { maxLength: 3 })).toEqual([]);
  });
});

describe("a comparison that a preference model reads", () => {
  it("is a conversation with headings", () => {
    expect(comparisonMessages(COMPARISON).map(({ role, content }) => `${role}: ${content}`)).toEqual([
      "user: 1+1=",
      "system: ==== Completion A ====",
      "assistant: 2",
      "system: ==== Completion B ====",
      "assistant: 3",
      "system: ==== Preference ====",
    ]);
  });

  it.each(names)("has the label as the very next token with %s, and learns nothing else", (name) => {
    const renderer = rendererOf(name);
    const { prompt, labels } = renderComparison(COMPARISON, renderer);
    expect(Object.values(labels).map((token) => renderer.tokenizer.decode([token]))).toEqual(["A", "B", "T"]);
    const text = renderer.tokenizer.decode([...prompt.toInts()]);
    const parts = [
      "1+1=",
      "==== Completion A ====",
      "2",
      "==== Completion B ====",
      "3",
      "==== Preference ====",
    ];
    let from = 0;
    for (const part of parts) {
      expect(text.indexOf(part, from), `${part} in ${text}`).toBeGreaterThanOrEqual(from);
      from = text.indexOf(part, from) + part.length;
    }
    for (const label of ["A", "B", "Tie"] as const) {
      const { modelInput, lossFnInputs } = labelDatum({ ...COMPARISON, label }, renderer);
      expect([...modelInput.toInts()]).toEqual([...prompt.toInts()]);
      expect(lossFnInputs["targetTokens"]!.data.at(-1)).toBe(labels[label]);
      const weights = lossFnInputs["weights"]!.toDense().data;
      expect([...weights].map((weight, place) => weight * (place + 1)).filter(Boolean)).toEqual([
        prompt.length,
      ]);
    }
  });

  it("comes from the user if a format has no later system messages", () => {
    const renderer = rendererOf("deepseekv3");
    const { prompt } = renderComparison(COMPARISON, renderer);
    expect(renderer.tokenizer.decode([...prompt.toInts()])).toContain("<｜User｜>==== Preference ====");
  });
});
