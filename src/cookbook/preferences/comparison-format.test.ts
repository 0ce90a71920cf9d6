import { describe, expect, it } from "vitest";
import { characterVocabulary } from "../../../test/conformance/vocabularies.js";
import { getRenderer, rendererNames } from "../../renderers/index.js";
import { comparisonMessages, labelDatum, renderComparison } from "./comparison-format.js";

const COMPARISON = {
  prompt: [{ role: "user", content: "1+1=" }],
  completionA: [{ role: "assistant", content: "2" }],
  completionB: [{ role: "assistant", content: "3" }],
};
const names = rendererNames().filter((name) => name !== "template");
const rendererOf = (name: string) => getRenderer(name, characterVocabulary(name).tokenizer);

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

  it("is told by the user where a format knows no later system messages", () => {
    const renderer = rendererOf("deepseekv3");
    const { prompt } = renderComparison(COMPARISON, renderer);
    expect(renderer.tokenizer.decode([...prompt.toInts()])).toContain("<｜User｜>==== Preference ====");
  });
});
