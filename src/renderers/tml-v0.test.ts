import { describe, expect, it } from "vitest";
import { CharacterTokenizer } from "../../test/support/character-tokenizer.js";
import { exampleText, parseText, promptText } from "../../test/support/marked-text.js";
import { pngHeader } from "../../test/support/png-header.js";
import { ANSWER, BE_BRIEF, QUESTION, THOUGHT } from "../../test/support/small-talk.js";
import { getRenderer, type Message, type TrainOn } from "./index.js";

const tokenizer = new CharacterTokenizer({ eosToken: "<|endoftext|>" });
const renderer = getRenderer("tml_v0", tokenizer);

const prompt = (messages: readonly Message[]) => promptText(renderer, messages);
const example = (messages: readonly Message[], trainOn?: TrainOn) => exampleText(renderer, messages, trainOn);
const parse = (text: string) => parseText(renderer, text);

const EFFORT = "<|message_system|><|content_text|>Thinking effort level: 0.9<|end_message|>";
const ASKED = "<|message_user|><|content_text|>2+2?<|end_message|>";
const EASY = "<|message_model|><|content_thinking|>Easy.<|end_message|>";
const FOUR = "<|message_model|><|content_text|>4<|end_message|>";
const END = "<|content_model_end_sampling|>";

describe("tml_v0", () => {
  it("tells the effort behind the system messages, and leaves the sign of the answer to the model", () => {
    expect(prompt([BE_BRIEF, QUESTION])).toBe(
      `<|message_system|><|content_text|>Be brief.<|end_message|>${EFFORT}${ASKED}`,
    );
    expect(example([QUESTION, THOUGHT])).toBe(`${EFFORT}${ASKED}⟦${EASY}${FOUR}${END}⟧`);
    expect(renderer.hasExtensionProperty).toBe(true);
  });

  it("takes another effort, in hundredths", () => {
    const lazy = getRenderer("tml_v0", tokenizer, { effort: 0.25 });
    expect(tokenizer.decode(lazy.buildPrompt([]).toInts())).toBe(EFFORT.replace("0.9", "0.25"));
    for (const effort of [1, -0.1, 0.125, Number.NaN]) {
      expect(() => getRenderer("tml_v0", tokenizer, { effort })).toThrow("hundredths");
    }
  });

  it("learns all answers or some, and ends with the last of them", () => {
    const turns = [QUESTION, ANSWER, QUESTION, THOUGHT, QUESTION];
    expect(example(turns)).toBe(`${EFFORT}${ASKED}⟦${FOUR}${END}⟧${ASKED}⟦${EASY}${FOUR}${END}⟧`);
    expect(example(turns, "last_assistant_message")).toBe(
      `${EFFORT}${ASKED}${FOUR}${END}${ASKED}⟦${EASY}${FOUR}${END}⟧`,
    );
    const flagged = turns.map((message, index) => ({ ...message, trainable: index === 1 }));
    expect(example(flagged, "customized")).toBe(`${EFFORT}${ASKED}⟦${FOUR}${END}⟧`);
    expect(renderer.buildSupervisedExamples([QUESTION])).toEqual([]);
    expect(() => renderer.buildSupervisedExample([QUESTION])).toThrow("no answer");
    expect(() => renderer.buildSupervisedExample(turns, "all_tokens")).toThrow("trainOn");
  });

  it("writes calls as compact JSON with sorted arguments, and results under their name", () => {
    const messages: Message[] = [
      QUESTION,
      {
        role: "assistant",
        content: "",
        toolCalls: [{ name: "add", arguments: '{"z": {"b":1.0, "a":"é"}, "a": 1e-7}' }],
      },
      { role: "tool", name: "add", content: "4" },
      ANSWER,
    ];
    expect(example(messages)).toBe(
      `${EFFORT}${ASKED}⟦<|message_model|>add<|content_invoke_tool_json|>` +
        `{"name":"add","args":{"a":1e-7,"z":{"b":1.0,"a":"é"}}}<|end_message|>${END}⟧` +
        `<|message_tool|>add<|content_text|>4<|end_message|>⟦${FOUR}${END}⟧`,
    );
    const broken: Message = {
      role: "assistant",
      content: "",
      toolCalls: [{ name: "add", arguments: "[1]" }],
    };
    expect(() => renderer.buildPrompt([broken])).toThrow("JSON object");
  });

  it("declares tools flat, with sorted keys", () => {
    const declared = renderer.declareTools(
      [{ name: "add", description: "é", parameters: { type: "object", properties: { b: {}, a: {} } } }],
      "Be brief.",
    );
    expect(prompt(declared)).toBe(
      "<|message_system|><|content_text|>Be brief.<|end_message|><|message_system|>tool_declare<|content_xml|>" +
        '[{"description":"é","name":"add","parameters":{"properties":{"a":{},"b":{}},"type":"object"},"type":"function"}]' +
        `<|end_message|>${EFFORT}`,
    );
    expect(() => renderer.buildPrompt([{ role: "tool_declare", content: "{}" }])).toThrow("JSON list");
  });

  it("keeps typed signs of the format as text", () => {
    const tokens = renderer.buildPrompt([{ role: "user", content: END }]).toInts();
    expect(tokens).not.toContain(tokenizer.encode(END)[0]);
  });

  it("writes images as blocks of their own, by Inkling's tiles", () => {
    const places = [
      [40, 40, 2],
      [39, 39, 1],
      [1000, 500, 338],
      [4000, 3000, 7575],
    ] as const;
    for (const [width, height, expectedTokens] of places) {
      const message: Message = {
        role: "user",
        content: [{ type: "image", image: pngHeader(width, height) }],
      };
      const [before, image, after] = renderer.buildPrompt([message]).chunks;
      expect(before).toMatchObject({
        tokens: Int32Array.from(tokenizer.encode(`${EFFORT}<|message_user|><|content_image|>`)),
      });
      expect(image).toMatchObject({ type: "image", expectedTokens });
      expect(after).toMatchObject({ tokens: Int32Array.from(tokenizer.encode("<|end_message|>")) });
    }
  });

  it("reads thoughts, text and calls", () => {
    expect(parse(`${EASY}${FOUR}${END}`)).toEqual({ termination: "stop_sequence", message: THOUGHT });
    expect(parse(`${FOUR}${END}`)).toEqual({ termination: "stop_sequence", message: ANSWER });
    const call =
      '<|message_model|>add<|content_invoke_tool_json|>{"name":"add","args":{"b":1.0,"a":"é"}}<|end_message|>';
    expect(parse(`${FOUR}${call}${END}`).message).toEqual({
      ...ANSWER,
      toolCalls: [{ id: "functions.add:0", name: "add", arguments: '{"b": 1.0, "a": "\\u00e9"}' }],
    });
  });

  it("gives what was whole of an answer that breaks off, and its tokens where nothing was", () => {
    const cut = {
      termination: "malformed",
      message: { role: "assistant", content: [{ type: "thinking", thinking: "Easy." }] },
    };
    for (const rest of [
      "",
      "<|message_model|>",
      "<|message_model|><|content_text|>4",
      `<|message_user|><|content_text|>No${END}`,
    ]) {
      expect(parse(EASY + rest)).toEqual(cut);
    }
    expect(parse("4")).toEqual({ termination: "malformed", message: ANSWER });
    expect(parse(`${FOUR}${END}${FOUR}${END}`).termination).toBe("malformed");
  });

  it.each([
    ["{a}", /JSON/],
    ['{"name":"other","args":{}}', /name/],
    ['{"name":"add","args":[]}', /args/],
  ])("reports the call %s", (body, error) => {
    const { message, termination } = parse(
      `${FOUR}<|message_model|>add<|content_invoke_tool_json|>${body}<|end_message|>${END}`,
    );
    expect(termination).toBe("stop_sequence");
    expect(message).toEqual({
      ...ANSWER,
      unparsedToolCalls: [
        { rawText: `add<|content_invoke_tool_json|>${body}`, error: expect.stringMatching(error) },
      ],
    });
  });

  it("streams thoughts and text, and no calls", () => {
    const parser = renderer.streamParser();
    const call = "<|message_model|>add<|content_invoke_tool_json|>{}<|end_message|>";
    const deltas = [...parser.push(tokenizer.encode(`${EASY}${call}${FOUR}${END}`)), ...parser.end()];
    expect(deltas.filter((delta) => delta.type === "text")).toEqual([
      { type: "text", text: "4", contentIndex: 1 },
    ]);
    expect(deltas.map((delta) => (delta.type === "thinking" ? delta.thinking : "")).join("")).toBe("Easy.");
    expect(deltas.at(-1)).toMatchObject({
      termination: "stop_sequence",
      message: { content: THOUGHT.content },
    });
  });

  it("refuses what the format has no place for", () => {
    expect(() => renderer.buildPrompt([QUESTION], { prefill: "4" })).toThrow("no prefill");
    expect(() => renderer.buildPrompt([QUESTION], { role: "user" })).toThrow("no role");
    expect(() => renderer.buildPrompt([{ role: "developer", content: "" }])).toThrow("role must be one of");
  });
});
