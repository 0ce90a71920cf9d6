import { describe, expect, it } from "vitest";
import { resolveTokenizerId } from "./resolve-id.js";

const idOf = (modelName: string, tokenizerId?: string | null) => {
  const { id, revision } = resolveTokenizerId({ modelName, tokenizerId });
  return revision === "main" ? id : `${id}@${revision.slice(0, 8)}`;
};

describe("resolveTokenizerId", () => {
  it("goes by the model's name", () => {
    expect(idOf("Qwen/Qwen3-8B")).toBe("Qwen/Qwen3-8B");
    expect(idOf("Qwen/Qwen3-8B:peft:128k")).toBe("Qwen/Qwen3-8B");
    expect(idOf("deepseek-ai/DeepSeek-V3.1/fast")).toBe("deepseek-ai/DeepSeek-V3.1");
    expect(idOf("tinkerts/nano")).toBe("tinkerts/nano");
  });

  it("avoids the gated repositories of Llama 3", () => {
    const open = "thinkingmachineslabinc/meta-llama-3-instruct-tokenizer";
    expect(idOf("meta-llama/Llama-3.1-8B-Instruct")).toBe(open);
    expect(idOf("meta-llama/Llama-3.3-70B-Instruct/x")).toBe(open);
    expect(idOf("meta-llama/Llama-2-7b")).toBe("meta-llama/Llama-2-7b");
  });

  it("lets the server's tokenizer id rule, without the rules for names of models", () => {
    expect(idOf("a/b", "Qwen/Qwen3-8B:v2")).toBe("Qwen/Qwen3-8B");
    expect(idOf("a/b", "meta-llama/Llama-3.1-8B")).toBe("meta-llama/Llama-3.1-8B");
    expect(idOf("a/b/c", null)).toBe("a/b");
    expect(idOf("a/b", "C:\\models\\nano")).toBe("C:\\models\\nano");
  });

  it("pins the commits of the Kimi models", () => {
    expect(idOf("moonshotai/Kimi-K2-Thinking")).toBe("moonshotai/Kimi-K2-Thinking@61268193");
    expect(idOf("moonshotai/Kimi-K2.5-Text-Only")).toBe("moonshotai/Kimi-K2.5@4d01dfe0");
    expect(idOf("moonshotai/Kimi-K2.5/variant")).toBe("moonshotai/Kimi-K2.5@4d01dfe0");
    expect(idOf("x", "moonshotai/Kimi-K2.6")).toBe("moonshotai/Kimi-K2.6@b5aabbfb");
    expect(idOf("moonshotai/Kimi-K3:peft")).toBe("moonshotai/Kimi-K3@f831ab66");
  });

  it("says that Thinking Machines' own models have none", () => {
    expect(() => idOf("thinkingmachines/x")).toThrow(/thinkingmachines\/x is not public/);
    expect(() => idOf("a/b", "TML/x")).toThrow(/TML\/x is not public/);
    expect(idOf("thinkingmachineslabinc/x")).toBe("thinkingmachineslabinc/x");
  });
});
