import { describe, expect, it } from "vitest";
import { CharacterTokenizer } from "../../test/support/character-tokenizer.js";
import { exampleText, markedText, parseText, promptText } from "../../test/support/marked-text.js";
import { QUESTION } from "../../test/support/small-talk.js";
import { getRenderer, type Message } from "./index.js";

const tokenizer = new CharacterTokenizer({ eosToken: "<|im_end|>" });
const qwen3 = getRenderer("qwen3", tokenizer);
const disabled = getRenderer("qwen3_disable_thinking", tokenizer);
const instruct = getRenderer("qwen3_instruct", tokenizer);

const thought: Message = {
  role: "assistant",
  content: [
    { type: "thinking", thinking: "\nEasy.\n" },
    { type: "text", text: "4" },
  ],
};
const call = { name: "add", arguments: '{"a": 2, "2": 1.0, "b": "é"}' };

describe("qwen3", () => {
  it("begins the turn being produced with a block of thoughts, empty where there are none", () => {
    expect(promptText(qwen3, [{ role: "system", content: "Be brief." }, QUESTION])).toBe(
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n",
    );
    expect(exampleText(qwen3, [QUESTION, { role: "assistant", content: "\n4" }])).toBe(
      "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n⟦<think>\n\n</think>\n\n4<|im_end|>⟧",
    );
    expect(exampleText(qwen3, [QUESTION, thought])).toBe(
      "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n⟦<think>\nEasy.\n</think>\n\n4<|im_end|>⟧",
    );
  });

  it("drops the thoughts of earlier turns, so that each answer is an example of its own", () => {
    const messages = [QUESTION, thought, QUESTION, thought];
    expect(qwen3.hasExtensionProperty).toBe(false);
    const [first, second] = qwen3.buildSupervisedExamples(messages, "all_assistant_messages");
    expect(markedText(tokenizer, first!)).toBe(exampleText(qwen3, messages.slice(0, 2)));
    expect(markedText(tokenizer, second!)).toBe(
      "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n" +
        "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n⟦<think>\nEasy.\n</think>\n\n4<|im_end|>⟧",
    );
  });

  it("takes thoughts that are written out, with or without the sign that opens them", () => {
    for (const content of ["<think>Easy.</think>4", "Easy.\n</think>\n\n4"]) {
      expect(exampleText(qwen3, [QUESTION, { role: "assistant", content }])).toBe(
        exampleText(qwen3, [QUESTION, thought]),
      );
    }
  });

  it("keeps typed signs of the format as text", () => {
    const tokens = qwen3.buildPrompt([{ role: "user", content: "<|im_end|>" }]).toInts();
    const end = tokenizer.encode("<|im_end|>")[0];
    expect(Array.from(tokens).filter((token) => token === end)).toHaveLength(1);
  });

  it("writes calls behind text on a line of their own, and directly behind thoughts", () => {
    const written = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "2": 1.0, "b": "é"}}\n</tool_call>';
    const withText = { role: "assistant", content: "Wait.", toolCalls: [call, call] };
    expect(exampleText(qwen3, [QUESTION, withText])).toContain(
      `⟦<think>\n\n</think>\n\nWait.\n${written}\n${written}<|im_end|>⟧`,
    );
    const thinking = [{ type: "thinking" as const, thinking: "Hm." }];
    for (const content of ["<think>Hm.</think>", thinking]) {
      expect(exampleText(qwen3, [QUESTION, { role: "assistant", content, toolCalls: [call] }])).toContain(
        `⟦<think>\nHm.\n</think>\n\n${written}<|im_end|>⟧`,
      );
    }
    expect(exampleText(qwen3, [QUESTION, { role: "assistant", content: "4", toolCalls: [] }])).toContain(
      "4<|im_end|>",
    );
  });

  it("gives results of tools as the user's, in one turn", () => {
    const messages = [QUESTION, { role: "assistant", content: "", toolCalls: [call, call] }];
    const results = ["4", "5"].map((content) => ({ role: "tool", content }));
    expect(promptText(qwen3, [...messages, ...results])).toContain(
      "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n4\n</tool_response>\n" +
        "<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    );
  });

  it("declares tools behind the system prompt", () => {
    const tool = { name: "add", description: "Adds é.", parameters: { type: "object" } };
    const [{ content }] = qwen3.declareTools([tool], "Be brief.") as [Message];
    expect(content).toContain("Be brief.\n\n# Tools\n\nYou may call");
    expect(content).toContain(
      '<tools>\n{"type": "function", "function": {"name": "add", "description": "Adds é.", ' +
        '"parameters": {"type": "object"}}}\n</tools>',
    );
    expect(qwen3.declareTools([], "Be brief.")).toEqual([{ role: "system", content: "Be brief." }]);
  });

  it("reads thoughts, text and calls back, and what is broken as such", () => {
    const written =
      '<think>\nEasy.\n</think>\n\n4\n<tool_call>\n{"name": "add", "arguments": {"a":1.0}}\n</tool_call>';
    expect(parseText(qwen3, `${written}<|im_end|>`)).toEqual({
      message: {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "Easy." },
          { type: "text", text: "4" },
        ],
        toolCalls: [{ name: "add", arguments: '{"a": 1.0}' }],
      },
      termination: "stop_sequence",
    });
    expect(parseText(qwen3, "4")).toEqual({
      message: { role: "assistant", content: "4" },
      termination: "malformed",
    });
    const { message } = parseText(
      qwen3,
      "<tool_call>{]</tool_call><tool_call>[]</tool_call><tool_call><|im_end|>",
    );
    expect(message.unparsedToolCalls?.map(({ error }) => error)).toEqual([
      expect.stringContaining("Invalid JSON"),
      "Tool call is not a JSON object",
      "unterminated tool block: '<tool_call>' opened without a matching '</tool_call>'",
    ]);
  });

  it("refuses images and calls that are no JSON", () => {
    const image = { role: "user", content: [{ type: "image" as const, image: new Uint8Array(4) }] };
    expect(() => qwen3.buildPrompt([image])).toThrow("take no images");
    const broken = { role: "assistant", content: "", toolCalls: [{ name: "add", arguments: "{" }] };
    expect(() => qwen3.buildPrompt([broken])).toThrow('the arguments of the call to "add" must be JSON');
  });
});

describe("qwen3_disable_thinking", () => {
  it("closes the block of thoughts in the prompt, which is not trained on", () => {
    expect(promptText(disabled, [QUESTION])).toBe(
      "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    );
    expect(exampleText(disabled, [QUESTION, { role: "assistant", content: "4" }])).toBe(
      "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n⟦4<|im_end|>⟧",
    );
  });

  it("refuses to train on thoughts, and an answer without a question", () => {
    expect(() => exampleText(disabled, [QUESTION, thought])).toThrow("not to think");
    expect(() => exampleText(disabled, [{ role: "assistant", content: "4" }])).toThrow("message of the user");
  });
});

describe("qwen3_instruct", () => {
  it("knows no block of thoughts, and writes history as it was sampled", () => {
    const messages = [
      QUESTION,
      { role: "assistant", content: "4" },
      QUESTION,
      { role: "assistant", content: "\n4" },
    ];
    expect(instruct.hasExtensionProperty).toBe(true);
    expect(exampleText(instruct, messages, "all_assistant_messages")).toBe(
      "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n⟦4<|im_end|>⟧\n" +
        "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n⟦\n4<|im_end|>⟧",
    );
  });

  it("streams text and thoughts", () => {
    const stream = instruct.streamParser();
    const deltas = [...stream.push(tokenizer.encode("<think>Hm</think>4<|im_end|>")), ...stream.end()];
    expect(deltas.map((delta) => delta.type)).toEqual(["header", "thinking", "thinking", "text", "message"]);
  });
});
