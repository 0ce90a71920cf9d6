import { describe, expect, it } from "vitest";
import { CharacterTokenizer } from "../../test/support/character-tokenizer.js";
import { exampleText, parseText, promptText } from "../../test/support/marked-text.js";
import { QUESTION, THOUGHT } from "../../test/support/small-talk.js";
import { getRenderer, type Message, type TrainOn } from "./index.js";

const tokenizer = new CharacterTokenizer({ eosToken: "<|endoftext|>" });
const renderer = getRenderer("glm5_3_max_reasoning", tokenizer);

const prompt = (messages: readonly Message[]) => promptText(renderer, messages);
const example = (messages: readonly Message[], trainOn?: TrainOn) => exampleText(renderer, messages, trainOn);
const parse = (text: string) => parseText(renderer, text);

const START = "[gMASK]<sop><|system|>Reasoning Effort: Max";
const answer: Message = { role: "assistant", content: "\n4 " };
const toolCalls = [
  { id: "one", name: "add", arguments: '{"10": 1.0, "2": "é", "to": {"x": "é"}}' },
  { id: "two", name: "now", arguments: "" },
];
const call: Message = { role: "assistant", content: "", toolCalls };
const CALLS =
  "<tool_call>add<arg_key>10</arg_key><arg_value>1.0</arg_value><arg_key>2</arg_key><arg_value>é</arg_value>" +
  '<arg_key>to</arg_key><arg_value>{"x": "é"}</arg_value></tool_call><tool_call>now</tool_call>';

describe("glm5_3", () => {
  it.each([
    ["glm5_3_max_reasoning", "Max"],
    ["glm5_3_high_reasoning", "High"],
    ["glm5_3_low_reasoning", "Low"],
  ])("%s says how much to think, before everything else", (name, effort) => {
    const tokens = getRenderer(name, tokenizer).buildPrompt([
      { role: "system", content: "Be brief." },
      QUESTION,
    ]);
    expect(tokenizer.decode(tokens.toInts())).toBe(
      `[gMASK]<sop><|system|>Reasoning Effort: ${effort}<|system|>Be brief.<|user|>2+2?<|assistant|><think>`,
    );
  });

  it("learns with each answer the sign of who speaks next", () => {
    expect(renderer.hasExtensionProperty).toBe(true);
    expect(example([QUESTION, THOUGHT, QUESTION, answer], "all_assistant_messages")).toBe(
      `${START}<|user|>2+2?<|assistant|><think>⟦Easy.</think>4<|user|>⟧2+2?<|assistant|><think>⟦</think>4<|user|>⟧`,
    );
    expect(example([QUESTION, call, { role: "tool", content: "4" }, answer], "last_assistant_turn")).toBe(
      `${START}<|user|>2+2?<|assistant|><think>⟦</think>${CALLS}<|observation|>⟧` +
        "<tool_response>4</tool_response><|assistant|><think>⟦</think>4<|user|>⟧",
    );
  });

  it("leaves a sign that the answer would not write to the message behind it", () => {
    const result = { role: "tool", content: "4" };
    expect(example([QUESTION, THOUGHT, result, answer], "all_assistant_messages")).toContain(
      "⟦Easy.</think>4⟧<|observation|><tool_response>",
    );
    expect(example([QUESTION, THOUGHT, { role: "system", content: "!" }, QUESTION, answer])).toContain(
      "</think>4<|system|>!<|user|>2+2?",
    );
  });

  it("takes thoughts that are written out", () => {
    expect(example([QUESTION, { role: "assistant", content: "<think>Easy.</think> 4" }])).toBe(
      example([QUESTION, THOUGHT]),
    );
  });

  it("gives results in the order of their calls where ids tell it", () => {
    const results = (...ids: string[]) =>
      ids.map((id) => ({ role: "tool", content: id, ...(id !== "" && { toolCallId: id }) }));
    const written = (...ids: string[]) =>
      `<|observation|>${ids.map((id) => `<tool_response>${id}</tool_response>`).join("")}<|assistant|>`;
    expect(prompt([QUESTION, call, ...results("two", "one")])).toContain(written("one", "two"));
    for (const doubtful of [
      ["two", ""],
      ["two", "two"],
      ["two", "three"],
    ]) {
      expect(prompt([QUESTION, call, ...results(...doubtful)])).toContain(written(...doubtful));
    }
  });

  it("declares tools before the system prompt", () => {
    const tool = { name: "add", description: "é", parameters: {} };
    const [tools, system] = renderer.declareTools([tool], "Be brief.");
    expect(tools?.content).toContain(
      '\n<tools>\n{"name": "add", "description": "é", "parameters": {}}\n</tools>\n',
    );
    expect(system).toEqual({ role: "system", content: "Be brief." });
    expect(renderer.declareTools([])).toEqual([]);
  });

  it("reads an answer back, whatever ended it", () => {
    expect(parse(`Easy.</think>${CALLS}<|observation|>`)).toEqual({
      message: {
        role: "assistant",
        content: [{ type: "thinking", thinking: "Easy." }],
        toolCalls: [
          { name: "add", arguments: '{"10": 1.0, "2": "\\u00e9", "to": {"x": "\\u00e9"}}' },
          { name: "now", arguments: "{}" },
        ],
      },
      termination: "stop_sequence",
    });
    expect(parse("</think>4<|endoftext|>").termination).toBe("eos");
    expect(parse("</think>4").termination).toBe("malformed");
    expect(parse("4<|user|>5<|observation|>").termination).toBe("malformed");
  });

  it("keeps what is broken in calls", () => {
    const broken =
      "<tool_call>{</tool_call><tool_call>f<arg_key>a</arg_key></tool_call>" +
      "<tool_call>f<arg_key> </arg_key><arg_value>1</arg_value></tool_call><tool_call>f<|user|>";
    expect(parse(broken).message.unparsedToolCalls?.map(({ error }) => error)).toEqual([
      "a call must begin with the name of its function",
      "a call has text outside of its arguments",
      "an argument of a call has no name",
      expect.stringContaining("unterminated tool block"),
    ]);
    expect(() =>
      prompt([QUESTION, { role: "assistant", content: "", toolCalls: [{ name: "f", arguments: "[1]" }] }]),
    ).toThrow("must be a JSON object");
  });

  it("refuses what its format does not have", () => {
    expect(() => prompt([{ role: "developer", content: "" }])).toThrow('no role "developer"');
    expect(() => prompt([{ ...THOUGHT, role: "user" }])).toThrow("text alone");
  });
});
