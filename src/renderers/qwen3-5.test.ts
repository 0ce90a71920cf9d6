import { describe, expect, it } from "vitest";
import { CharacterTokenizer } from "../../test/support/character-tokenizer.js";
import { exampleText, parseText, promptText } from "../../test/support/marked-text.js";
import { ANSWER } from "../../test/support/small-talk.js";
import { getRenderer, type Message } from "./index.js";

const tokenizer = new CharacterTokenizer({ eosToken: "<|im_end|>" });
const named = (name: string) => getRenderer(name, tokenizer);

const user: Message = { role: "user", content: " 2+2?\n" };
const thought: Message = {
  role: "assistant",
  content: [
    { type: "thinking", thinking: "\nEasy. " },
    { type: "text", text: "\n\n4" },
  ],
};
const call = { name: "add", arguments: '{"a": 2, "b": true, "c": [1.0, null], "d": "two"}' };

/** A PNG file. */
const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const ASKED = "<|im_start|>user\n2+2?<|im_end|>\n";

describe("qwen3_5", () => {
  it("opens the block of thoughts in the prompt and learns what follows it", () => {
    expect(promptText(named("qwen3_5"), [user])).toBe(`${ASKED}<|im_start|>assistant\n<think>\n`);
    expect(exampleText(named("qwen3_5"), [user, ANSWER])).toBe(
      `${ASKED}<|im_start|>assistant\n<think>\n⟦\n</think>\n\n4<|im_end|>⟧`,
    );
    expect(exampleText(named("qwen3_5"), [user, thought])).toBe(
      `${ASKED}<|im_start|>assistant\n<think>\n⟦Easy.\n</think>\n\n4<|im_end|>⟧`,
    );
  });

  it("drops the thoughts of earlier turns, unless they are preserved", () => {
    const messages = [user, thought, user];
    expect(promptText(named("qwen3_5"), messages)).toBe(
      `${ASKED}<|im_start|>assistant\n4<|im_end|>\n${ASKED}<|im_start|>assistant\n<think>\n`,
    );
    expect(promptText(named("qwen3_5_preserve_thinking"), messages)).toContain(
      "<|im_start|>assistant\n<think>\nEasy.\n</think>\n\n4<|im_end|>\n",
    );
  });

  it("closes the block in the prompt where thinking is disabled", () => {
    const closed = `${ASKED}<|im_start|>assistant\n<think>\n\n</think>\n\n`;
    expect(promptText(named("qwen3_5_disable_thinking"), [user])).toBe(closed);
    expect(exampleText(named("qwen3_5_disable_thinking"), [user, ANSWER])).toBe(`${closed}⟦4<|im_end|>⟧`);
    expect(() => exampleText(named("qwen3_5_disable_thinking"), [user, thought])).toThrow("not to think");
  });

  it("gives every argument of a call its tag, with Python's words for scalars", () => {
    const written =
      "<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n" +
      "<parameter=c>\n[1.0, null]\n</parameter>\n<parameter=d>\ntwo\n</parameter>\n</function>\n</tool_call>";
    expect(exampleText(named("qwen3_5"), [user, { ...ANSWER, toolCalls: [call, call] }])).toContain(
      `4\n\n${written}\n${written}<|im_end|>⟧`,
    );
    expect(exampleText(named("qwen3_5"), [user, { ...ANSWER, content: "", toolCalls: [call] }])).toContain(
      `</think>\n\n${written}<|im_end|>⟧`,
    );
    const list = { ...ANSWER, toolCalls: [{ name: "add", arguments: "[2, 2]" }] };
    expect(() => exampleText(named("qwen3_5"), [user, list])).toThrow("must be a JSON object");
  });

  it("learns what follows the prompt behind an image too", () => {
    const image = `data:image/png;base64,${PIXEL}`;
    const seen: Message = { role: "user", content: [{ type: "image", image }] };
    const { input, weights } = named("qwen3_5").buildSupervisedExample([seen, thought]);
    const prompt = named("qwen3_5").buildPrompt([seen]);
    expect(weights).toHaveLength(input.length);
    expect(Array.from(weights)).toEqual(Array.from(weights, (_, index) => (index < prompt.length ? 0 : 1)));
    expect(() => exampleText(named("qwen3_5_disable_thinking"), [seen, thought])).toThrow("not to think");
  });

  it("joins results of tools in one turn", () => {
    const results = ["4", "5"].map((content) => ({ role: "tool", content }));
    expect(
      promptText(named("qwen3_5"), [user, { ...ANSWER, toolCalls: [call, call] }, ...results]),
    ).toContain(
      "\n<|im_start|>user\n<tool_response>\n4\n</tool_response>\n<tool_response>\n5\n</tool_response><|im_end|>\n",
    );
  });

  it("declares tools before the system prompt", () => {
    const tool = { name: "add", description: "Adds.", parameters: {} };
    const [{ content }] = named("qwen3_5").declareTools([tool], "Be brief.") as [Message];
    expect(content).toMatch(
      /^# Tools\n\nYou have access to the following functions:\n\n<tools>\n\{"type": "function", "function": \{"name": "add"/,
    );
    expect(content).toMatch(/<\/IMPORTANT>\n\nBe brief\.$/);
  });

  it("reads an answer that begins within the block, or opens it once more", () => {
    const read = {
      role: "assistant",
      content: [
        { type: "thinking", thinking: "Easy." },
        { type: "text", text: "4" },
      ],
    };
    for (const start of ["", "<think>", "<think>\n\n"]) {
      expect(parseText(named("qwen3_5"), `${start}Easy.\n</think>\n\n4<|im_end|>`).message).toEqual(read);
    }
    expect(parseText(named("qwen3_5"), "4<|im_end|>").message).toEqual({ role: "assistant", content: "4" });
  });

  it("reads a tag that closes nothing as text", () => {
    expect(parseText(named("qwen3_5_disable_thinking"), "Hm.</think>4<|im_end|>").message.content).toBe(
      "Hm.</think>4",
    );
  });

  it("reads calls in tags and in JSON, in their order", () => {
    const { message } = parseText(
      named("qwen3_5"),
      "<tool_call>\n<function=add>\n<parameter=a>\n1.0\n</parameter>\n<parameter=b>\ntwo\nlines\n</parameter>\n</function>\n" +
        '</tool_call>\n<tool_call>\n{"name": "sub", "arguments": {}}\n</tool_call><|im_end|>',
    );
    expect(message.toolCalls).toEqual([
      { name: "add", arguments: '{"a": 1.0, "b": "two\\nlines"}' },
      { name: "sub", arguments: "{}" },
    ]);
  });

  it.each([
    "<function=add>",
    "<function= ></function>",
    "<function=add>text</function>",
    "<function=add><parameter= >1</parameter></function>",
    "<function=add><parameter=a>1</function>",
  ])("takes %s for no call", (body) => {
    const { message } = parseText(named("qwen3_5"), `<tool_call>${body}</tool_call><|im_end|>`);
    expect(message.toolCalls).toBeUndefined();
    expect(message.unparsedToolCalls).toMatchObject([{ rawText: `<tool_call>${body}</tool_call>` }]);
  });

  it("streams thoughts as thoughts from the first token on", () => {
    const stream = named("qwen3_5").streamParser();
    expect(stream.push(tokenizer.encode("Ea")).map(({ type }) => type)).toEqual([
      "header",
      "thinking",
      "thinking",
    ]);
    expect(stream.push(tokenizer.encode("</think>4")).map(({ type }) => type)).toEqual(["text"]);
  });
});

describe("qwen3_8", () => {
  it("says the effort before the system message, or as one", () => {
    expect(promptText(named("qwen3_8_low_reasoning"), [user])).toMatch(
      /^<\|im_start\|>system\nReasoning effort is set to low\. .* elaboration\.<\|im_end\|>\n<\|im_start\|>user/,
    );
    const system = { role: "system", content: " Be brief. " };
    expect(promptText(named("qwen3_8_xhigh_reasoning"), [system, user])).toMatch(
      /^<\|im_start\|>system\nReasoning effort is set to xhigh\. .* final answer\.\n\nBe brief\.<\|im_end\|>/,
    );
    for (const name of ["qwen3_8_medium_reasoning", "qwen3_8_disable_thinking"]) {
      expect(promptText(named(name), [{ role: "system", content: " " }, user])).toMatch(
        /^<\|im_start\|>user/,
      );
    }
  });

  it("learns behind the prompt that it builds, with the effort said once", () => {
    expect(exampleText(named("qwen3_8_low_reasoning"), [user, thought])).toBe(
      `${promptText(named("qwen3_8_low_reasoning"), [user])}⟦Easy.\n</think>\n\n4<|im_end|>⟧`,
    );
    const flagged = [user, ANSWER].map((message, index) => ({ ...message, trainable: index === 1 }));
    expect(exampleText(named("qwen3_8_low_reasoning"), flagged, "customized")).toMatch(
      /⟦\n<\/think>\n\n4<\|im_end\|>⟧$/,
    );
  });

  it("keeps all thoughts, and writes an empty block into every answer without", () => {
    expect(promptText(named("qwen3_8_medium_reasoning"), [user, thought, user, ANSWER, user])).toBe(
      `${ASKED}<|im_start|>assistant\n<think>\nEasy.\n</think>\n\n4<|im_end|>\n` +
        `${ASKED}<|im_start|>assistant\n<think>\n\n</think>\n\n4<|im_end|>\n${ASKED}<|im_start|>assistant\n<think>\n`,
    );
  });

  it("writes scalars as JSON", () => {
    expect(
      exampleText(named("qwen3_8_disable_thinking"), [user, { ...ANSWER, toolCalls: [call] }]),
    ).toContain("<parameter=b>\ntrue\n</parameter>");
  });
});
