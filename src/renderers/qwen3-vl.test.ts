import { describe, expect, it } from "vitest";
import { CharacterTokenizer } from "../../test/support/character-tokenizer.js";
import { exampleText, parseText } from "../../test/support/marked-text.js";
import { pngHeader } from "../../test/support/png-header.js";
import { getRenderer, type Message } from "./index.js";

const tokenizer = new CharacterTokenizer({ eosToken: "<|im_end|>" });
const vision = getRenderer("qwen3_vl", tokenizer);
const instruct = getRenderer("qwen3_vl_instruct", tokenizer);

const user: Message = { role: "user", content: "2+2?" };
const call = { name: "add", arguments: "{}" };
const written = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>';

describe("qwen3_vl", () => {
  it("opens thoughts in the prompt, and keeps them in the turn being produced alone", () => {
    const thought: Message = {
      role: "assistant",
      content: [
        { type: "thinking", thinking: "Hm." },
        { type: "text", text: "4" },
      ],
    };
    expect(exampleText(vision, [user, thought, user, thought])).toBe(
      "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n" +
        "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n⟦Hm.\n</think>\n\n4<|im_end|>⟧",
    );
  });

  it("puts a newline between content and a call, and none before a call alone", () => {
    expect(exampleText(vision, [user, { role: "assistant", content: "Wait.", toolCalls: [call] }])).toContain(
      `<think>\n⟦\n</think>\n\nWait.\n${written}<|im_end|>⟧`,
    );
    expect(
      exampleText(vision, [user, { role: "assistant", content: "", toolCalls: [call, call] }]),
    ).toContain(`<think>\n⟦\n</think>\n\n${written}\n${written}<|im_end|>⟧`);
  });

  it("carries an image's bytes as they are, with the positions that it takes", () => {
    const image = pngHeader(640, 480);
    const content: Message["content"] = [
      { type: "text", text: "See " },
      { type: "image", image },
      { type: "text", text: "?" },
    ];
    const { chunks } = vision.buildPrompt([{ role: "user", content }]);
    expect(
      chunks.map((chunk) => (chunk.type === "encoded_text" ? tokenizer.decode(chunk.tokens) : chunk)),
    ).toEqual([
      "<|im_start|>user\nSee <|vision_start|>",
      { type: "image", data: image, format: "png", expectedTokens: 300 },
      "<|vision_end|>?<|im_end|>\n<|im_start|>assistant\n<think>\n",
    ]);
  });

  it("weighs an image in an example by its positions", () => {
    const content: Message["content"] = [{ type: "image", image: pngHeader(640, 480) }];
    const { input, weights } = instruct.buildSupervisedExample(
      [
        { role: "user", content },
        { role: "assistant", content: "A cat." },
      ],
      "all_messages",
    );
    expect(weights).toHaveLength(input.length);
    expect(weights.filter((weight) => weight === 1)).toHaveLength(300 + "vve".length + "A cat.e".length);
  });

  it("refuses an address on the web", () => {
    const content: Message["content"] = [{ type: "image", image: "https://example.com/cat.png" }];
    expect(() => vision.buildPrompt([{ role: "user", content }])).toThrow("fetch it first");
  });
});

describe("qwen3_vl_instruct", () => {
  it("reads thoughts as they stand, where qwen3_vl takes their newlines away", () => {
    const answer = "<think>\nHm.\n</think>\n\n4<|im_end|>";
    expect(parseText(instruct, answer).message.content).toEqual([
      { type: "thinking", thinking: "\nHm.\n" },
      { type: "text", text: "\n\n4" },
    ]);
    expect(parseText(vision, answer).message.content).toEqual([
      { type: "thinking", thinking: "Hm." },
      { type: "text", text: "4" },
    ]);
  });
});
