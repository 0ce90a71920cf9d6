import { describe, expect, it } from "vitest";
import { CharacterTokenizer } from "../../test/support/character-tokenizer.js";
import { exampleText, markedText, parseText, promptText } from "../../test/support/marked-text.js";
import { ANSWER, QUESTION, THOUGHT } from "../../test/support/small-talk.js";
import { getRenderer, type Message } from "./index.js";

const tokenizer = new CharacterTokenizer({ eosToken: "<|im_end|>" });
const named = (name: string) => getRenderer(name, tokenizer);

const call = { name: "add", arguments: '{"a": 2, "b": null}' };
const WRITTEN =
  "<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n<parameter=b>\nNone\n</parameter>\n</function>\n</tool_call>\n";

const SYSTEM = "<|im_start|>system\n<|im_end|>\n";
const ASKED = "<|im_start|>user\n2+2?<|im_end|>\n";

describe("nemotron3", () => {
  it("adds an empty system message and opens the block of thoughts", () => {
    expect(promptText(named("nemotron3"), [QUESTION])).toBe(
      `${SYSTEM}${ASKED}<|im_start|>assistant\n<think>\n`,
    );
    expect(exampleText(named("nemotron3"), [QUESTION, THOUGHT])).toBe(
      `${SYSTEM}${ASKED}<|im_start|>assistant\n<think>\n⟦Easy.\n</think>\n4<|im_end|>⟧`,
    );
  });

  it("learns an answer without thoughts as it can be sampled from the prompt", () => {
    expect(exampleText(named("nemotron3"), [QUESTION, ANSWER])).toBe(
      `${promptText(named("nemotron3"), [QUESTION])}⟦</think>\n4<|im_end|>⟧`,
    );
    expect(exampleText(named("nemotron3_ultra"), [QUESTION, ANSWER])).toBe(
      `${promptText(named("nemotron3_ultra"), [QUESTION])}⟦</think>4<|im_end|>⟧`,
    );
    expect(exampleText(named("nemotron3_disable_thinking"), [QUESTION, ANSWER])).toBe(
      `${SYSTEM}${ASKED}<|im_start|>assistant\n<think></think>⟦4<|im_end|>⟧`,
    );
  });

  it("empties the blocks of earlier turns, unless they are preserved", () => {
    const messages = [QUESTION, THOUGHT, QUESTION, ANSWER, QUESTION];
    const between = (first: string, second: string) =>
      `${SYSTEM}${ASKED}<|im_start|>assistant\n${first}<|im_end|>\n${ASKED}<|im_start|>assistant\n${second}<|im_end|>\n` +
      `${ASKED}<|im_start|>assistant\n<think>\n`;
    expect(promptText(named("nemotron3"), messages)).toBe(between("<think></think>\n4", "<think></think>4"));
    expect(promptText(named("nemotron3_ultra"), messages)).toBe(
      between("<think></think>4", "<think></think>4"),
    );
    expect(promptText(named("nemotron3_preserve_thinking"), messages)).toBe(
      between("<think>\nEasy.\n</think>\n4", "<think></think>4"),
    );
    expect(promptText(named("nemotron3_ultra_preserve_thinking"), messages)).toBe(
      between("<think>\nEasy.</think>4", "<think></think>4"),
    );
  });

  it("makes each answer an example of its own, also where thoughts are preserved", () => {
    const examples = named("nemotron3_preserve_thinking").buildSupervisedExamples(
      [QUESTION, ANSWER, QUESTION, THOUGHT],
      "all_assistant_messages",
    );
    expect(examples.map((each) => markedText(tokenizer, each).match(/⟦.*⟧/s)?.[0])).toEqual([
      "⟦</think>\n4<|im_end|>⟧",
      "⟦Easy.\n</think>\n4<|im_end|>⟧",
    ]);
  });

  it("keeps thoughts within the turn, and writes calls on lines of their own", () => {
    const calling = {
      ...THOUGHT,
      content: [{ type: "thinking" as const, thinking: "Hm." }],
      toolCalls: [call, call],
    };
    const results = ["4", "5"].map((content) => ({ role: "tool", content }));
    const answered =
      "<|im_end|>\n<|im_start|>user\n<tool_response>\n4\n</tool_response>\n<tool_response>\n5\n</tool_response>\n<|im_end|>\n";
    expect(promptText(named("nemotron3"), [QUESTION, calling, ...results])).toContain(
      `<think>\nHm.\n</think>\n${WRITTEN}${WRITTEN}${answered}`,
    );
    expect(promptText(named("nemotron3"), [QUESTION, calling, ...results, QUESTION])).toContain(
      `<think></think>\n${WRITTEN}${WRITTEN}${answered}`,
    );
    expect(promptText(named("nemotron3_ultra"), [QUESTION, calling, ...results])).toContain(
      `<think>\nHm.</think>\n${WRITTEN}`,
    );
    expect(promptText(named("nemotron3"), [QUESTION, { ...ANSWER, toolCalls: [call] }, QUESTION])).toContain(
      `<think></think>4\n${WRITTEN}<|im_end|>`,
    );
  });

  it("puts one newline between an empty block and a call, wherever the block ends", () => {
    const calling = { role: "assistant", content: "", toolCalls: [call] };
    const learnt = (name: string) => exampleText(named(name), [QUESTION, calling]).match(/⟦.*⟧/s)?.[0];
    expect(learnt("nemotron3")).toBe(`⟦</think>\n${WRITTEN}<|im_end|>⟧`);
    expect(learnt("nemotron3_ultra")).toBe(`⟦</think>\n${WRITTEN}<|im_end|>⟧`);
    expect(learnt("nemotron3_disable_thinking")).toBe(`⟦\n${WRITTEN}<|im_end|>⟧`);
  });

  it("says the effort behind the user's last message, whatever its shape", () => {
    const parts = { role: "user", content: [{ type: "text" as const, text: "2+2?" }] };
    for (const last of [QUESTION, parts]) {
      expect(promptText(named("nemotron3_low_thinking"), [QUESTION, ANSWER, last])).toBe(
        `${SYSTEM}${ASKED}<|im_start|>assistant\n<think></think>4<|im_end|>\n` +
          "<|im_start|>user\n2+2?\n\n{reasoning effort: low}<|im_end|>\n<|im_start|>assistant\n<think>\n",
      );
    }
    expect(promptText(named("nemotron3_ultra_medium_thinking"), [QUESTION])).toContain(
      "2+2?\n\n{reasoning effort: efficient}<|im_end|>",
    );
  });

  it("learns by flags although it adds a message that has none", () => {
    const flagged = [QUESTION, ANSWER].map((message, index) => ({ ...message, trainable: index === 0 }));
    expect(exampleText(named("nemotron3"), flagged, "customized")).toMatch(
      /^[^⟦]*user\n⟦2\+2\?<\|im_end\|>⟧[^⟦]*$/,
    );
  });

  it("declares tools as XML behind the system prompt", () => {
    const parameters = {
      type: "object",
      properties: {
        a: { type: ["number", "null"], description: " First. ", enum: [1, "é"], minimum: 0, strict: true },
      },
      required: ["a"],
      additionalProperties: false,
    };
    const tools = [
      { name: "add", description: " Adds. ", parameters },
      { name: "now", description: "", parameters: {} },
    ];
    const [{ content }] = named("nemotron3").declareTools(tools, "Be brief.") as [Message];
    expect(content).toContain(`Be brief.

# Tools

You have access to the following functions:

<tools>
<function>
<name>add</name>
<description>Adds.</description>
<parameters>
<parameter>
<name>a</name>
<type>['number', 'null']</type>
<description>First.</description>
<enum>[1, "é"]</enum>
<minimum>0</minimum>
<strict>True</strict>
</parameter>
<additionalProperties>False</additionalProperties>
<required>["a"]</required>
</parameters>
</function>
<function>
<name>now</name>
<description></description>
<parameters>
</parameters>
</function>
</tools>
`);
  });

  it("reads back what it writes", () => {
    for (const name of ["nemotron3", "nemotron3_ultra"]) {
      const answer = exampleText(named(name), [QUESTION, { ...THOUGHT, toolCalls: [call] }]).match(
        /⟦(.*)⟧/s,
      )![1]!;
      expect(parseText(named(name), answer)).toEqual({
        message: {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "Easy." },
            { type: "text", text: "4" },
          ],
          toolCalls: [{ name: "add", arguments: '{"a": 2, "b": "None"}' }],
        },
        termination: "stop_sequence",
      });
    }
  });
});
