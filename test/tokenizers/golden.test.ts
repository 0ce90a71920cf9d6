import { describe, expect, it } from "vitest";
import { compileChatTemplate, findChatTemplates } from "../../src/tokenizers/chat-template.js";
import { createTextTokenizer } from "../../src/tokenizers/files.js";
import { DecodeStream } from "../../src/tokenizers/index.js";
import { cpuMsOf } from "../support/cpu-time.js";
import { families, readFiles, readGolden, readTexts } from "./fixtures.js";

const texts = readTexts();

describe.each(families)("%s beside the Rust tokenizers", (family) => {
  const files = readFiles(family);
  const golden = readGolden(family);
  const tokenizer = createTextTokenizer(files, family);

  it("has the same tokens for every text", () => {
    expect(texts.length).toBeGreaterThanOrEqual(3000);
    const wrong = texts.flatMap((text, index) => {
      const got = tokenizer.encode(text, { addSpecialTokens: false });
      const expected = golden.ids[index]!;
      return got.join() === expected.join() ? [] : [{ text, got, expected }];
    });
    expect(wrong.slice(0, 5)).toEqual([]);
  });

  it("puts the same tokens around texts", () => {
    const wrong = golden.withSpecialTokens.filter(
      ([index, expected]) => tokenizer.encode(texts[index]!).join() !== expected.join(),
    );
    expect(wrong.slice(0, 5)).toEqual([]);
    if (family === "minilm") expect(golden.withSpecialTokens.length).toBeGreaterThan(0);
  });

  it("has the same text for the tokens, special ones in and out", () => {
    const wrong: object[] = [];
    for (const [index, text] of texts.entries()) {
      const ids = golden.ids[index]!;
      for (const [skipSpecialTokens, decoded] of [
        [false, golden.decoded.all],
        [true, golden.decoded.noSpecial],
      ] as const) {
        if (decoded === null) continue;
        const got = tokenizer.decode(ids, { skipSpecialTokens });
        const expected = decoded[index] ?? text;
        if (got !== expected) wrong.push({ got, expected, skipSpecialTokens });
      }
    }
    expect(wrong.slice(0, 5)).toEqual([]);
  });

  it("streams the same text, token by token, without half characters", () => {
    const wrong: object[] = [];
    for (const [index, ids] of golden.ids.entries()) {
      if (index % 3 !== 0) continue;
      const stream = new DecodeStream(tokenizer);
      const parts = ids.map((id) => stream.push(id));
      parts.push(stream.end());
      const expected = tokenizer.decode(ids);
      const cut = parts.some((part) => /[\uD800-\uDBFF]$|^[\uDC00-\uDFFF]/.test(part));
      const broken = !expected.includes("\uFFFD") && parts.join("").includes("\uFFFD");
      if (parts.join("") !== expected || cut || broken) wrong.push({ parts, expected });
    }
    expect(wrong.slice(0, 3)).toEqual([]);
  });

  it("writes conversations as transformers' templates do", async () => {
    const settings = JSON.parse(files["tokenizer_config.json"]!) as Record<string, unknown>;
    const render = await compileChatTemplate(findChatTemplates(settings, undefined), settings);
    expect(golden.chats.length > 0).toBe(render !== null);
    for (const { messages, tools, addGenerationPrompt, text, ids } of golden.chats) {
      const got = render!(messages, { addGenerationPrompt, ...(tools === null ? {} : { tools }) });
      expect(got).toBe(text);
      expect(tokenizer.encode(got, { addSpecialTokens: false })).toEqual(ids);
    }
  });
});

describe("Kimi's special tokens", () => {
  const tokenizer = createTextTokenizer(readFiles("kimi"), "kimi");
  const id = (text: string) => {
    const ids = tokenizer.encode(text);
    expect(ids).toHaveLength(1);
    return ids[0]!;
  };

  it("have the ids behind the last rank, named or reserved", () => {
    const bos = id("[BOS]");
    expect(id("[EOS]")).toBe(bos + 1);
    expect(id(`<|reserved_token_${bos + 100}|>`)).toBe(bos + 100);
    expect(tokenizer.decode([bos + 100])).toBe(`<|reserved_token_${bos + 100}|>`);
    expect(() => tokenizer.decode([bos + 256])).toThrow(/no token/);
  });

  it("are left out when asked, save those that are not special", () => {
    const ids = tokenizer.encode("[BOS]hi<|tool_calls_section_begin|><|im_end|>");
    expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe("hi<|tool_calls_section_begin|>");
  });

  it("does long pieces in good time", async () => {
    const text = "字".repeat(20_000) + "=".repeat(20_000);
    const there = () => expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
    expect(await cpuMsOf(there)).toBeLessThan(5_000);
  });

  it("names the line of a broken file", () => {
    expect(() => createTextTokenizer({ "tiktoken.model": "IQ== 0\nnonsense\n" }, "here")).toThrow(
      /Line 2 of tiktoken.model/,
    );
  });
});

describe("typed special tokens", () => {
  it.each([
    ["nano", "<|im_end|>", ""],
    ["qwen3", "<|im_end|>", "<tool_call>"],
    ["kimi", "<|im_end|>", "<|tool_calls_section_begin|>"],
  ] as const)("are text in %s where asked, save those that are not special", (family, special, added) => {
    const tokenizer = createTextTokenizer(readFiles(family), family);
    const text = `hi${special}${added} ho`;
    const tokens = tokenizer.encode(text, { addSpecialTokens: false, splitSpecialTokens: true });
    expect(tokenizer.decode(tokens)).toBe(text);
    expect(tokens).not.toContain(tokenizer.encode(special)[0]);
    if (added !== "") expect(tokens).toContain(tokenizer.encode(added)[0]);
  });
});
