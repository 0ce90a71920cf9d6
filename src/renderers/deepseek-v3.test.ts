import { describe, expect, it } from "vitest";
import { CharacterTokenizer } from "../../test/support/character-tokenizer.js";
import { exampleText, parseText } from "../../test/support/marked-text.js";
import { ANSWER, BE_BRIEF, QUESTION, THOUGHT } from "../../test/support/small-talk.js";
import { getRenderer, type Message, type Renderer } from "./index.js";

const tokenizer = new CharacterTokenizer({ eosToken: "<｜end▁of▁sentence｜>" });
const plain = getRenderer("deepseekv3", tokenizer);
const thinking = getRenderer("deepseekv3_thinking", tokenizer);

const prompt = (renderer: Renderer, messages: readonly Message[], role?: string) =>
  tokenizer.decode(renderer.buildPrompt(messages, { role }).toInts());

const BOS = "<｜begin▁of▁sentence｜>";
const EOS = "<｜end▁of▁sentence｜>";
const toolCalls = [
  { name: "add", arguments: '{"a":2}' },
  { name: "f-1", arguments: "{}" },
];
const call: Message = { role: "assistant", content: "", toolCalls };
const result: Message = { role: "tool", content: "4" };
const CALLS =
  '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a":2}<｜tool▁call▁end｜>' +
  "<｜tool▁call▁begin｜>f-1<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
const RESULT = "<｜tool▁output▁begin｜>4<｜tool▁output▁end｜>";

describe("deepseekv3", () => {
  it("closes thoughts in the prompt, and writes none anywhere", () => {
    expect(prompt(plain, [BE_BRIEF, QUESTION])).toBe(`${BOS}Be brief.<｜User｜>2+2?<｜Assistant｜></think>`);
    expect(plain.hasExtensionProperty).toBe(true);
    expect(exampleText(plain, [QUESTION, THOUGHT, QUESTION, ANSWER], "all_assistant_messages")).toBe(
      `${BOS}<｜User｜>2+2?<｜Assistant｜></think>⟦4${EOS}⟧<｜User｜>2+2?<｜Assistant｜></think>⟦4${EOS}⟧`,
    );
  });

  it("goes on behind a tool's result without a sign, and without thoughts there too", () => {
    expect(prompt(plain, [QUESTION, call, result])).toBe(
      `${BOS}<｜User｜>2+2?<｜Assistant｜></think>${CALLS}${EOS}${RESULT}`,
    );
    expect(exampleText(plain, [QUESTION, call, result, THOUGHT])).toContain(`${RESULT}⟦4${EOS}⟧`);
  });

  it("ends an answer that only calls tools", () => {
    expect(exampleText(plain, [QUESTION, call])).toBe(
      `${BOS}<｜User｜>2+2?<｜Assistant｜></think>⟦${CALLS}${EOS}⟧`,
    );
  });

  it("is also called by its whole name", () => {
    const whole = getRenderer("deepseekv3_disable_thinking", tokenizer);
    expect(prompt(whole, [BE_BRIEF, QUESTION, THOUGHT, QUESTION])).toBe(
      prompt(plain, [BE_BRIEF, QUESTION, THOUGHT, QUESTION]),
    );
  });

  it("refuses what its format does not have", () => {
    expect(() => prompt(plain, [QUESTION, BE_BRIEF])).toThrow("first message only");
    expect(() => prompt(plain, [{ role: "developer", content: "" }])).toThrow('no role "developer"');
    const image = { role: "assistant", content: [{ type: "image" as const, image: new Uint8Array(4) }] };
    expect(() => prompt(plain, [QUESTION, image])).toThrow("no images");
  });

  it("declares tools behind the system prompt", () => {
    const tool = { name: "add", description: "Adds é.", parameters: { type: "object" } };
    const [{ content }] = plain.declareTools([tool, tool], "Be brief.") as [Message];
    expect(content).toContain(
      "Be brief.\n\n## Tools\nYou have access to the following tools:\n\n" +
        '### add\nDescription: Adds é.\n\nParameters: {"type": "object"}\n### add\n',
    );
    expect(plain.declareTools([])).toEqual([{ role: "system", content: "" }]);
  });
});

describe("deepseekv3_thinking", () => {
  it("opens thoughts in the prompt, and learns them to the end", () => {
    expect(prompt(thinking, [QUESTION])).toBe(`${BOS}<｜User｜>2+2?<｜Assistant｜><think>`);
    expect(prompt(thinking, [QUESTION, ANSWER], "user")).toMatch(/<｜User｜>$/);
    expect(exampleText(thinking, [QUESTION, THOUGHT])).toBe(
      `${BOS}<｜User｜>2+2?<｜Assistant｜><think>⟦Easy.</think>4${EOS}⟧`,
    );
    for (const silent of [ANSWER, call]) {
      expect(exampleText(thinking, [QUESTION, silent])).toContain("<｜Assistant｜><think>⟦</think>");
    }
  });

  it("forgets thoughts once they are history, however they were written", () => {
    const written = { role: "assistant", content: "<think>Easy.</think>4" };
    for (const old of [THOUGHT, written]) {
      expect(prompt(thinking, [QUESTION, old, QUESTION])).toBe(
        `${BOS}<｜User｜>2+2?<｜Assistant｜></think>4${EOS}<｜User｜>2+2?<｜Assistant｜><think>`,
      );
    }
    expect(prompt(thinking, [QUESTION, { ...THOUGHT, toolCalls }, result])).toBe(
      `${BOS}<｜User｜>2+2?<｜Assistant｜></think>4${CALLS}${EOS}${RESULT}`,
    );
    expect(
      thinking.buildSupervisedExamples([QUESTION, THOUGHT, QUESTION, THOUGHT], "all_assistant_messages"),
    ).toHaveLength(2);
  });

  it("reads thoughts that the prompt opened, and calls of any name", () => {
    expect(parseText(thinking, `Easy.</think>4 ${CALLS}${EOS}`)).toEqual({
      message: {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "Easy." },
          { type: "text", text: "4 " },
        ],
        toolCalls,
      },
      termination: "stop_sequence",
    });
    expect(parseText(thinking, "Easy.").termination).toBe("malformed");
  });

  it("keeps what is broken in calls", () => {
    const broken = CALLS.replace('{"a":2}', "{a}").replace("f-1<｜tool▁sep｜>", "");
    const { message } = parseText(plain, `${broken}<｜tool▁calls▁begin｜>${EOS}`);
    expect(message.toolCalls).toBeUndefined();
    expect(message.unparsedToolCalls?.map(({ error }) => error)).toEqual([
      expect.stringContaining("Invalid JSON"),
      expect.stringContaining("a call must be a name"),
      expect.stringContaining("unterminated tool block"),
    ]);
  });

  it("streams thoughts, but not behind a tool's result", () => {
    const kinds = (answered: readonly Message[]) => {
      const stream = thinking.streamParser(answered);
      return [...stream.push(tokenizer.encode("Easy.")), ...stream.end()].map(({ type }) => type);
    };
    expect(new Set(kinds([QUESTION]))).toEqual(new Set(["header", "thinking", "message"]));
    expect(new Set(kinds([QUESTION, call, result]))).toEqual(new Set(["header", "text", "message"]));
  });
});
