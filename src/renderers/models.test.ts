import { describe, expect, it } from "vitest";
import { ValidationError } from "../errors.js";
import { knownRenderers, recommendedRenderer, renderersOf } from "./models.js";

describe("the renderer of a model", () => {
  it.each([
    ["tinkerts/nano", "qwen3_instruct"],
    ["meta-llama/Llama-3.1-8B", "role_colon"],
    ["meta-llama/Llama-3.3-70B-Instruct", "llama3"],
    ["Qwen/Qwen3-8B", "qwen3"],
    ["Qwen/Qwen3.6-27B", "qwen3_5"],
    ["Qwen/Qwen3.8-27B", "qwen3_8_xhigh_reasoning"],
    ["deepseek-ai/DeepSeek-V3.1", "deepseekv3"],
    ["openai/gpt-oss-20b", "gpt_oss_no_sysprompt"],
    ["moonshotai/Kimi-K2.6", "kimi_k26"],
    ["zai-org/GLM-5.3-Flash", "glm5_3_max_reasoning"],
    ["nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16", "nemotron3_ultra"],
    ["thinkingmachines/Inkling-Small", "tml_v0"],
  ])("of %s is %s", (model, name) => expect(recommendedRenderer(model)).toBe(name));

  it("does not depend on what follows a colon", () => {
    expect(recommendedRenderer("Qwen/Qwen3-8B:peft:262144")).toBe("qwen3");
  });

  it("is known for an Inkling that is newer than the table, and for no other newcomer", () => {
    expect(recommendedRenderer("thinkingmachines/Inkling-Large")).toBe("tml_v0");
    expect(knownRenderers("thinkingmachines/Blot")).toBeUndefined();
    expect(knownRenderers("other/Inkling")).toBeUndefined();
    expect(knownRenderers("Qwen/toString")).toBeUndefined();
    expect(knownRenderers("toString/toString")).toBeUndefined();
  });

  it("has companions where the model can think more or less", () => {
    expect(renderersOf("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16")).toEqual([
      "nemotron3_ultra",
      "nemotron3_ultra_disable_thinking",
      "nemotron3_ultra_preserve_thinking",
    ]);
    expect(renderersOf("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16").at(-1)).toBe(
      "nemotron3_low_thinking",
    );
  });

  it("names what is known where it does not know", () => {
    expect(() => renderersOf("openai/gpt-7")).toThrow(ValidationError);
    expect(() => renderersOf("openai/gpt-7")).toThrow("known of openai are gpt-oss-20b, gpt-oss-120b");
    expect(() => renderersOf("mistral/Small")).toThrow("known are models of tinkerts, meta-llama, Qwen");
    expect(() => renderersOf("Qwen3-8B")).toThrow("is not named as organization/model");
    expect(() => renderersOf("tinker://run/sampler_weights/1")).toThrow("pass the base model");
  });
});
