import { describe, expect, it } from "vitest";
import { CharacterTokenizer } from "../../test/support/character-tokenizer.js";
import { exampleText, parseText, promptText } from "../../test/support/marked-text.js";
import { BE_BRIEF, QUESTION, THOUGHT } from "../../test/support/small-talk.js";
import { getRenderer, type Message, type Renderer } from "./index.js";

const tokenizer = new CharacterTokenizer({ eosToken: "<｜end▁of▁sentence｜>" });
const [high, low, max, disabled, preserving] = [
  "deepseekv4_1",
  "deepseekv4_1_low_reasoning",
  "deepseekv4_1_max_reasoning",
  "deepseekv4_1_disable_thinking",
  "deepseekv4_1_preserve_thinking",
].map((name) => getRenderer(name, tokenizer)) as [Renderer, Renderer, Renderer, Renderer, Renderer];

const BOS = "<｜begin▁of▁sentence｜>";
const EOS = "<｜end▁of▁sentence｜>";
const effort = (value: number) =>
  `<｜System｜>Reasoning Effort: ${value} (range 1-100, the higher the value, the more thorough the reasoning)\n\n`;
const toolCalls = [
  { id: "one", name: "add", arguments: '{"10": 1.0, "2": "é", "to": ["é", null]}' },
  { id: "two", name: "now", arguments: "{}" },
];
const call: Message = { role: "assistant", content: "Wait.", toolCalls };
const CALLS = `

<｜DSML｜ calls>
<｜DSML｜ invoke name="add">
<｜DSML｜ parameter name="10" string="false">1.0</｜DSML｜ parameter>
<｜DSML｜ parameter name="2" string="true">é</｜DSML｜ parameter>
<｜DSML｜ parameter name="to" string="false">["é", null]</｜DSML｜ parameter>
</｜DSML｜ invoke>
<｜DSML｜ invoke name="now">

</｜DSML｜ invoke>
</｜DSML｜ calls>`;

describe("deepseekv4_1", () => {
  it("says how much to think, before the system prompt", () => {
    expect(promptText(high, [BE_BRIEF, QUESTION])).toBe(
      `${BOS}${effort(75)}Be brief.<｜User｜>2+2?<｜Assistant｜><think>`,
    );
    expect(promptText(low, [QUESTION])).toBe(`${BOS}${effort(50)}<｜User｜>2+2?<｜Assistant｜><think>`);
    expect(promptText(max, [QUESTION])).toBe(`${BOS}${effort(100)}<｜User｜>2+2?<｜Assistant｜><think>`);
    expect(promptText(disabled, [BE_BRIEF, QUESTION])).toBe(
      `${BOS}<｜System｜>Be brief.<｜User｜>2+2?<｜Assistant｜></think>`,
    );
    expect(promptText(disabled, [QUESTION])).toBe(`${BOS}<｜User｜>2+2?<｜Assistant｜></think>`);
  });

  it("forgets the thoughts of earlier turns, unless asked to keep them or with tools declared", () => {
    const messages = [QUESTION, THOUGHT, QUESTION, THOUGHT];
    const turns = (thoughts: string) =>
      `<｜User｜>2+2?<｜Assistant｜>${thoughts}4${EOS}<｜User｜>2+2?<｜Assistant｜><think>⟦Easy.</think>4${EOS}⟧`;
    expect(exampleText(high, messages)).toBe(`${BOS}${effort(75)}${turns("</think>")}`);
    expect(exampleText(preserving, messages)).toBe(`${BOS}${effort(75)}${turns("<think>Easy.</think>")}`);
    const tools = high.declareTools([{ name: "now", description: "", parameters: {} }]);
    expect(exampleText(high, [...tools, ...messages])).toContain(turns("<think>Easy.</think>"));
    expect([high, disabled, preserving].map((renderer) => renderer.hasExtensionProperty)).toEqual([
      false,
      true,
      true,
    ]);
  });

  it("writes no thoughts if it is asked not to think", () => {
    expect(exampleText(disabled, [QUESTION, THOUGHT])).toBe(
      `${BOS}<｜User｜>2+2?<｜Assistant｜></think>⟦4${EOS}⟧`,
    );
  });

  it("gives results and the user's words in one turn, results in the order of their calls", () => {
    const results = ["two", "one"].map((id) => ({ role: "tool", content: id, toolCallId: id }));
    expect(
      exampleText(disabled, [QUESTION, call, ...results, QUESTION, THOUGHT], "all_assistant_messages"),
    ).toBe(
      `${BOS}<｜User｜>2+2?<｜Assistant｜></think>⟦Wait.${CALLS}${EOS}⟧` +
        "<｜User｜><tool_result>one</tool_result>\n\n<tool_result>two</tool_result>\n\n2+2?" +
        `<｜Assistant｜></think>⟦4${EOS}⟧`,
    );
  });

  it("declares tools in the system message, which there always is then", () => {
    const declared = (prompts: string) =>
      disabled.declareTools([{ name: "add", description: "é", parameters: {} }], prompts);
    expect(declared("Be brief.")[1]).toEqual({
      role: "tool_declare",
      content:
        '[{"type": "function", "function": {"name": "add", "description": "\\u00e9", "parameters": {}}}]',
    });
    const schema = '### Available Tool Schemas\n\n{"name": "add", "description": "é", "parameters": {}}\n\n';
    for (const text of ["Be brief.", ""]) {
      const written = promptText(disabled, [...declared(text), QUESTION]);
      expect(written).toContain(`${BOS}<｜System｜>${text}\n\n## Tools\n\nYou have access`);
      expect(written).toContain(schema);
    }
    expect(() => promptText(disabled, [QUESTION, ...declared("")])).toThrow("messages[1] declares tools");
    expect(() => promptText(disabled, [{ role: "tool_declare", content: "[1]" }, QUESTION])).toThrow(
      "declareTools",
    );
  });

  it("reads calls back, and says what is broken in them", () => {
    expect(parseText(high, `Easy.</think>Wait.${CALLS}${EOS}`)).toEqual({
      message: {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "Easy." },
          { type: "text", text: "Wait." },
        ],
        toolCalls: [
          { name: "add", arguments: '{"10": 1.0, "2": "\\u00e9", "to": ["\\u00e9", null]}' },
          { name: "now", arguments: "{}" },
        ],
      },
      termination: "stop_sequence",
    });
    const errors = (text: string) =>
      parseText(disabled, text + EOS).message.unparsedToolCalls?.map(({ error }) => error);
    expect(errors(CALLS.replace("1.0", "1.").replace("now", " "))).toEqual([
      expect.stringContaining("Invalid JSON"),
      "Invalid DSML: empty function name",
    ]);
    expect(errors(CALLS.replace('name="2"', 'name="10"'))).toEqual(["Invalid DSML: duplicate parameter 10"]);
    expect(errors(`${CALLS} Done.`)).toEqual(["Invalid DSML: text behind the calls"]);
    expect(errors(CALLS.replace("</｜DSML｜ calls>", ""))).toEqual([
      expect.stringContaining("unterminated tool block"),
    ]);
    expect(errors("<｜DSML｜ invoke>")).toEqual(["Invalid DSML: a tag of calls without calls"]);
  });
});
