import { describe, expect, it } from "vitest";
import { characterVocabulary } from "../../test/conformance/vocabularies.js";
import { getRenderer } from "./registry.js";
import type { TrainOn } from "./renderer.js";

const { tokenizer } = characterVocabulary("llama3");
const renderer = getRenderer("llama3", tokenizer);
const cookbook = getRenderer("llama3_cookbook", tokenizer);
const user = { role: "user", content: " Hello\n" };

const DATES = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
const turn = (role: string, text: string) =>
  `<|start_header_id|>${role}<|end_header_id|>\n\n${text}<|eot_id|>`;
const HEADER = "<|start_header_id|>assistant<|end_header_id|>\n\n";

describe("llama3", () => {
  const prompt = (...messages: { role: string; content: string }[]) =>
    tokenizer.decode(renderer.buildPrompt(messages).toInts());

  it("writes the dates of the template of Llama 3.1 and 3.3 before the system prompt, or alone", () => {
    expect(prompt(user)).toBe(`<|begin_of_text|>${turn("system", DATES)}${turn("user", "Hello")}${HEADER}`);
    expect(prompt({ role: "system", content: " Be brief.\n" }, user)).toBe(
      `<|begin_of_text|>${turn("system", `${DATES}Be brief.`)}${turn("user", "Hello")}${HEADER}`,
    );
  });

  it("writes them once, also where a system message stands later", () => {
    expect(prompt(user, { role: "system", content: "Now in German." })).toBe(
      `<|begin_of_text|>${turn("system", DATES)}${turn("user", "Hello")}${turn("system", "Now in German.")}${HEADER}`,
    );
  });

  it("never trains on the dates where messages are trained on", () => {
    const trained = (trainOn: TrainOn, messages: { role: string; content: string }[]) => {
      const { input, weights } = renderer.buildSupervisedExample(messages, trainOn);
      return tokenizer.decode(input.toInts().filter((_, index) => weights[index] === 1));
    };
    expect(trained("all_messages", [user])).toBe("Hello<|eot_id|>");
    expect(trained("all_messages", [{ role: "system", content: "Be brief." }, user])).toBe(
      "Be brief.<|eot_id|>Hello<|eot_id|>",
    );
  });

  it("writes as the Python cookbook did under its compatibility name: no dates, white space as given", () => {
    expect(tokenizer.decode(cookbook.buildPrompt([user]).toInts())).toBe(
      `<|begin_of_text|>${turn("user", " Hello\n")}${HEADER}`,
    );
  });
});
