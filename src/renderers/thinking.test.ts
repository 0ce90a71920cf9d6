import { describe, expect, it } from "vitest";
import { rendererWithThinking } from "./model-formats.js";

const nameFor = (model: string, effort: Parameters<typeof rendererWithThinking>[1]) =>
  rendererWithThinking(model, effort)?.name;

describe("a renderer by how much is to be thought", () => {
  it("is the family's, or the nearest that there is", () => {
    expect(nameFor("Qwen/Qwen3-8B", "none")).toBe("qwen3_disable_thinking");
    expect(nameFor("Qwen/Qwen3-8B", "low")).toBe("qwen3");
    expect(nameFor("Qwen/Qwen3.8-27B", "minimal")).toBe("qwen3_8_low_reasoning");
    expect(nameFor("Qwen/Qwen3.8-27B", "medium")).toBe("qwen3_8_medium_reasoning");
    expect(nameFor("Qwen/Qwen3.8-27B", "max")).toBe("qwen3_8_xhigh_reasoning");
    expect(nameFor("deepseek-ai/DeepSeek-V3.1", "none")).toBe("deepseekv3");
    expect(nameFor("deepseek-ai/DeepSeek-V3.1", "high")).toBe("deepseekv3_thinking");
    expect(nameFor("deepseek-ai/DeepSeek-V4.1-Flash", "max")).toBe("deepseekv4_1_max_reasoning");
    expect(nameFor("deepseek-ai/DeepSeek-V4.1-Flash", "high")).toBe("deepseekv4_1");
    expect(nameFor("openai/gpt-oss-20b", "low")).toBe("gpt_oss_low_reasoning");
    expect(nameFor("openai/gpt-oss-20b", "max")).toBe("gpt_oss_high_reasoning");
    expect(nameFor("openai/gpt-oss-20b", "high")).toBe("gpt_oss_high_reasoning");
    expect(nameFor("Qwen/Qwen3.5-4B", true)).toBe("qwen3_5");
    expect(nameFor("deepseek-ai/DeepSeek-V3.1", true)).toBe("deepseekv3_thinking");
    expect(nameFor("Qwen/Qwen3-8B", false)).toBe("qwen3_disable_thinking");
    expect(nameFor("zai-org/GLM-5.3", "minimal")).toBe("glm5_3_low_reasoning");
    expect(nameFor("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "medium")).toBe(
      "nemotron3_ultra_medium_thinking",
    );
    expect(rendererWithThinking("thinkingmachines/Inkling", "none")).toEqual({
      name: "tml_v0",
      options: { effort: "none" },
    });
  });

  it("is none where a family has no choice", () => {
    expect(nameFor("openai/gpt-oss-20b", "none")).toBeUndefined();
    expect(nameFor("zai-org/GLM-5.3", "none")).toBeUndefined();
    expect(nameFor("tinkerts/nano", "high")).toBeUndefined();
    expect(nameFor("somebody/model", "high")).toBeUndefined();
    expect(nameFor("tinkerts/nano", "none")).toBeUndefined();
  });
});
