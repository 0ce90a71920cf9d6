import { describe, expect, it } from "vitest";
import { characterVocabulary } from "../../test/conformance/vocabularies.js";
import { Qwen3Renderer } from "./qwen3.js";
import { getRenderer, rendererNames } from "./registry.js";

describe("the renderer of a model", () => {
  it.each([
    ["tinkerts/nano", "qwen3_instruct"],
    ["meta-llama/Llama-3.1-8B", "role_colon"],
    ["meta-llama/Llama-3.3-70B-Instruct", "llama3"],
    ["Qwen/Qwen3-8B", "qwen3"],
    ["Qwen/Qwen3.6-27B", "qwen3_5"],
    ["Qwen/Qwen3.8-27B", "qwen3_8_xhigh_reasoning"],
    ["deepseek-ai/DeepSeek-V3.1", "deepseekv3"],
    ["openai/gpt-oss-20b", "gpt_oss_medium_reasoning"],
    ["moonshotai/Kimi-K2.6", "kimi_k26"],
    ["zai-org/GLM-5.3-Flash", "glm5_3_max_reasoning"],
    ["nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16", "nemotron3_ultra"],
    ["thinkingmachines/Inkling-Small", "tml_v0"],
  ])("of %s is %s", (model, name) => expect(rendererNames(model)[0]).toBe(name));

  it("does not depend on what follows a colon", () => {
    expect(rendererNames("Qwen/Qwen3-8B:peft:262144")[0]).toBe("qwen3");
  });

  it("is known for an Inkling that is newer than the table, and for no other newcomer", () => {
    expect(rendererNames("thinkingmachines/Inkling-Large")).toEqual(["tml_v0"]);
    expect(rendererNames("thinkingmachines/Blot")).toEqual([]);
    expect(rendererNames("other/Inkling")).toEqual([]);
    expect(rendererNames("Qwen/toString")).toEqual([]);
    expect(rendererNames("toString/toString")).toEqual([]);
  });

  it("has companions where the model can think more or less", () => {
    expect(rendererNames("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16")).toEqual([
      "nemotron3_ultra",
      "nemotron3_ultra_disable_thinking",
      "nemotron3_ultra_preserve_thinking",
    ]);
    expect(rendererNames("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16").at(-1)).toBe(
      "nemotron3_low_thinking",
    );
  });

  it("is found for a model, in its tokenizer's chat template where no other is known", () => {
    const { tokenizer } = characterVocabulary("qwen3_instruct");
    expect(getRenderer({ model: "tinkerts/nano" }, tokenizer)).toBeInstanceOf(Qwen3Renderer);
    expect(() => getRenderer({ model: "mistral/Small" }, tokenizer)).toThrow(
      "mistral/Small has no chat format",
    );
    expect(() => getRenderer("qwen3_instuct", tokenizer)).toThrow(
      'There is no renderer "qwen3_instuct": did you mean qwen3_instruct?',
    );
    expect(() => getRenderer("nothing", tokenizer)).toThrow(
      /^There is no renderer "nothing": one of role_colon, llama3, /,
    );
  });
});
