import { describe, expect, it } from "vitest";
import { CharacterTokenizer } from "../../test/support/character-tokenizer.js";
import { exampleText, parseText, promptText } from "../../test/support/marked-text.js";
import { QUESTION, THOUGHT } from "../../test/support/small-talk.js";
import { getRenderer, type Message, type TrainOn } from "./index.js";

const tokenizer = new CharacterTokenizer({ eosToken: "<|return|>" });
const plain = getRenderer("gpt_oss_no_sysprompt", tokenizer);

const example = (messages: readonly Message[], trainOn?: TrainOn) => exampleText(plain, messages, trainOn);
const parse = (text: string) => parseText(plain, text);

const ASKED = "<|start|>user<|message|>2+2?<|end|>";
const EASY = "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>4";
const CALL = ' to=functions.add<|channel|>commentary json<|message|>{"a": 2}<|call|>';
const SAMPLED_CALL = CALL.replace("json", "<|constrain|>json").replace(": ", ":");

describe("gpt_oss", () => {
  it("writes answers on channels, and drops the thoughts of earlier turns", () => {
    expect(promptText(plain, [QUESTION])).toBe(`${ASKED}<|start|>assistant`);
    expect(example([QUESTION, THOUGHT, QUESTION, THOUGHT])).toBe(
      `${ASKED}<|start|>assistant<|channel|>final<|message|>4<|end|>${ASKED}<|start|>assistant⟦${EASY}<|return|>⟧`,
    );
    expect(example([QUESTION, { role: "assistant", content: "4" }])).toBe(
      `${ASKED}<|start|>assistant⟦<|channel|>final<|message|>4<|return|>⟧`,
    );
  });

  it("takes a system message for the developer's", () => {
    expect(promptText(plain, [{ role: "system", content: "Be brief." }])).toBe(
      "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n<|end|><|start|>assistant",
    );
  });

  it.each(["low", "medium", "high"])(
    "tells the day and a %s effort, the same for its whole life",
    (effort) => {
      let now = new Date(2026, 0, 5, 23, 59);
      const renderer = getRenderer(`gpt_oss_${effort}_reasoning`, tokenizer, { now: () => now });
      const first = promptText(renderer, [QUESTION]);
      now = new Date(2026, 0, 6);
      expect(promptText(renderer, [QUESTION])).toBe(first);
      expect(first).toBe(
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n" +
          `Current date: 2026-01-05\n\nReasoning: ${effort}\n\n` +
          "# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>" +
          `${ASKED}<|start|>assistant`,
      );
    },
  );

  it("writes calls and their results as commentary, with text before them", () => {
    const calls = [{ name: "add", arguments: '{"a":2}' }];
    const messages: Message[] = [
      QUESTION,
      { role: "assistant", content: "Wait.", toolCalls: [...calls, ...calls] },
      { role: "tool", name: "add", content: "4" },
      { role: "tool", name: "functions.add", content: "4" },
      { role: "assistant", content: "4" },
    ];
    const result = '<|start|>functions.add to=assistant<|channel|>commentary<|message|>"4"<|end|>';
    expect(example(messages, "last_assistant_turn")).toBe(
      `${ASKED}<|start|>assistant⟦<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant${CALL}<|start|>assistant${CALL}⟧` +
        `${result}${result}<|start|>assistant⟦<|channel|>final<|message|>4<|return|>⟧`,
    );
  });

  it("knows the function that a result answers, by the id of its call or as the last one", () => {
    const called = (id?: string) => ({
      ...(id !== undefined && { id }),
      name: `f${id ?? ""}`,
      arguments: "{}",
    });
    const results = (toolCalls: Message["toolCalls"], toolCallId?: string) =>
      promptText(plain, [
        { role: "assistant", content: "", toolCalls },
        { role: "tool", content: "4", ...(toolCallId !== undefined && { toolCallId }) },
      ]);
    expect(results([called("1"), called("2")], "1")).toContain("<|start|>functions.f1 to=assistant");
    expect(results([called()])).toContain("<|start|>functions.f to=assistant");
    expect(results([])).toContain("<|start|>functions.unknown to=assistant");
  });

  it("declares tools as TypeScript", () => {
    const parameters = {
      type: "object",
      description: "All of it",
      properties: {
        city: { type: "string", title: "City", description: "Where", examples: ["Zürich"] },
        unit: { type: "string", enum: ["C", "F"], default: "C" },
        days: { type: ["integer", "null"] },
        at: { type: "object", properties: { x: { type: "number" }, y: {} }, required: ["x"], nullable: true },
        tags: { type: "array", items: { anyOf: [{ type: "string" }, { type: "boolean" }] } },
      },
      required: ["city"],
    };
    const tools = [
      { name: "weather", description: "Looks up.", parameters },
      { name: "now", description: "", parameters: {} },
    ];
    const [developer] = plain.declareTools(tools, "Be brief.");
    expect(promptText(plain, [developer!, QUESTION])).toMatch(
      /^<\|start\|>system<\|message\|>Calls to these tools must go to the commentary channel: 'functions'\.<\|end\|><\|start\|>developer/,
    );
    const reasoning = getRenderer("gpt_oss_low_reasoning", tokenizer);
    expect(promptText(reasoning, [developer!, QUESTION])).toContain(
      "for every message.\nCalls to these tools must go to the commentary channel: 'functions'.<|end|><|start|>developer",
    );
    expect(developer).toEqual({
      role: "developer",
      content: [
        "# Instructions\n\nBe brief.\n\n# Tools\n\n## functions\n\nnamespace functions {\n",
        "// Looks up.",
        "type weather = (_: {",
        "// Where",
        "city: string,",
        'unit?: "C" | "F", // default: C,',
        "days?: integer | null,",
        // As the template has it, with its own indentation.
        "at?: {",
        "x: ",
        "                number, y?: ",
        "                any},",
        "tags?: any[],",
        "}) => any;\n",
        "// ",
        "type now = () => any;\n",
        "} // namespace functions",
      ].join("\n"),
    });
    expect(plain.declareTools([])).toEqual([]);
  });

  it("reads thoughts, text and calls", () => {
    expect(parse(`${EASY}<|return|>`)).toEqual({ termination: "stop_sequence", message: THOUGHT });
    expect(parse(`<|channel|>analysis<|message|>Add.<|end|><|start|>assistant${CALL}`)).toEqual({
      termination: "stop_sequence",
      message: {
        role: "assistant",
        content: [{ type: "thinking", thinking: "Add." }],
        toolCalls: [{ name: "add", arguments: '{"a": 2}' }],
      },
    });
    expect(parse(SAMPLED_CALL).message.toolCalls).toEqual([{ name: "add", arguments: '{"a":2}' }]);
    const two = parse(`${CALL}<|start|>assistant${CALL}`);
    expect([two.message.toolCalls?.length, two.termination]).toEqual([2, "stop_sequence"]);
    expect(parse("<|channel|>final<|message|>4")).toEqual({
      termination: "malformed",
      message: { role: "assistant", content: "<|channel|>final<|message|>4" },
    });
    for (const doubled of ["4<|return|><|call|>", `${CALL}<|call|>`, `${CALL}<|start|>assistant`])
      expect(parse(doubled).termination).toBe("malformed");
  });

  it("gives an answer of calls alone no text, so that it is written as it was read", () => {
    const { message } = parse(CALL);
    expect(message).toEqual({
      role: "assistant",
      content: "",
      toolCalls: [{ name: "add", arguments: '{"a": 2}' }],
    });
    expect(example([QUESTION, message])).toBe(`${ASKED}<|start|>assistant⟦${CALL}⟧`);
    expect(parse("<|channel|>final<|message|><|return|>").message.content).toBe("");
    expect(parse("4<|return|>").message.content).toBe("4");
  });

  it("reports calls that cannot be read, and no text that only speaks of one", () => {
    const unparsed = (text: string) => parse(text).message.unparsedToolCalls;
    expect(unparsed(CALL.replace('{"a": 2}', "{a}"))).toMatchObject([
      { error: expect.stringMatching(/JSON/) },
    ]);
    expect(unparsed(CALL.replace('{"a": 2}', ""))).toMatchObject([
      { error: expect.stringMatching(/arguments/) },
    ]);
    expect(unparsed(`${EASY}<|end|><|start|>assistant to=functions.add<|return|>`)).toEqual([
      { rawText: "<|start|>assistant to=functions.add", error: expect.any(String) },
    ]);
    expect(unparsed("<|channel|>final<|message|>Write to=functions.add.<|return|>")).toBeUndefined();
  });

  it("streams thoughts and text without the signs around them, and no calls", () => {
    const streamed = (text: string) => {
      const parser = plain.streamParser();
      return [...tokenizer.encode(text).flatMap((token) => parser.push(token)), ...parser.end()];
    };
    const ofText = streamed(`${EASY}<|return|>`);
    expect(ofText.at(-1)).toEqual({ type: "message", termination: "stop_sequence", message: THOUGHT });
    expect(ofText.flatMap((delta) => (delta.type === "thinking" ? [delta.thinking] : [])).join("")).toBe(
      "Easy.",
    );
    expect(ofText.filter((delta) => delta.type === "text")).toEqual([
      { type: "text", text: "4", contentIndex: 1 },
    ]);
    expect(streamed(CALL)).toEqual([
      { type: "header", role: "assistant" },
      { type: "message", ...parse(CALL) },
    ]);
    expect(streamed("<|channel|>final<|message|>4<|en").at(-1)).toMatchObject({
      termination: "malformed",
      message: { content: [{ type: "text", text: "4<|en" }] },
    });
  });
});
