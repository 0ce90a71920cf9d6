import { describe, expect, it } from "vitest";
import { CharacterTokenizer } from "../../test/support/character-tokenizer.js";
import { exampleText, markedText, parseText, promptText } from "../../test/support/marked-text.js";
import { pngHeader } from "../../test/support/png-header.js";
import { BE_BRIEF, QUESTION, THOUGHT } from "../../test/support/small-talk.js";
import { getRenderer, type Message } from "./index.js";

const tokenizer = new CharacterTokenizer({ eosToken: "<|im_end|>" });
const k2 = getRenderer("kimi_k2", tokenizer);
const k25 = getRenderer("kimi_k25", tokenizer);
const disabled = getRenderer("kimi_k25_disable_thinking", tokenizer);
const preserved = getRenderer("kimi_k26_preserve_thinking", tokenizer);

const calling: Message = {
  role: "assistant",
  content: [{ type: "thinking", thinking: "Add." }],
  toolCalls: [{ name: "add", arguments: '{"a":2}' }],
};
const result: Message = { role: "tool", content: "4", name: "add", toolCallId: "functions.add:0" };

const OPENED = "<|im_assistant|>assistant<|im_middle|>";
const ASKED = "<|im_user|>user<|im_middle|>2+2?<|im_end|>";
const BRIEF = "<|im_system|>system<|im_middle|>Be brief.<|im_end|>";
const DEFAULT =
  "<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>";
const CALL =
  "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>" +
  '{"a":2}<|tool_call_end|><|tool_calls_section_end|>';

describe("kimi_k2", () => {
  it("begins with a system message, its own where there is none", () => {
    expect(promptText(k2, [QUESTION])).toBe(DEFAULT + ASKED + OPENED);
    expect(promptText(k2, [BE_BRIEF, QUESTION])).toBe(BRIEF + ASKED + OPENED);
    expect(promptText(k2, [])).toBe(DEFAULT + OPENED);
  });

  it("writes a block of thoughts in every answer, and empties those of former turns", () => {
    expect(exampleText(k2, [BE_BRIEF, QUESTION, THOUGHT, QUESTION, THOUGHT])).toBe(
      `${BRIEF}${ASKED}${OPENED}<think></think>4<|im_end|>${ASKED}${OPENED}⟦<think>Easy.</think>4<|im_end|>⟧`,
    );
  });

  it("keeps the thoughts of a turn with tools, which is trained on as a whole", () => {
    const turn = [BE_BRIEF, QUESTION, calling, result, THOUGHT];
    expect(exampleText(k2, turn, "last_assistant_turn")).toBe(
      `${BRIEF}${ASKED}${OPENED}⟦<think>Add.</think>${CALL}<|im_end|>⟧` +
        `<|im_system|>add<|im_middle|>## Return of functions.add:0\n4<|im_end|>${OPENED}⟦<think>Easy.</think>4<|im_end|>⟧`,
    );
  });

  it("makes an example for each turn of the user's", () => {
    const turns = [BE_BRIEF, QUESTION, calling, result, THOUGHT, QUESTION, THOUGHT];
    const examples = k2.buildSupervisedExamples(turns, "all_assistant_messages");
    expect(examples.map((each) => markedText(tokenizer, each))).toEqual([
      exampleText(k2, turns.slice(0, 5), "last_assistant_turn"),
      exampleText(k2, turns, "last_assistant_turn"),
    ]);
  });

  it("takes flags without one on the system message that it adds", () => {
    const flagged = [
      { ...QUESTION, trainable: false },
      { ...THOUGHT, trainable: true },
    ];
    expect(exampleText(k2, flagged, "customized")).toBe(
      `${DEFAULT}${ASKED}${OPENED}⟦<think>Easy.</think>4<|im_end|>⟧`,
    );
  });

  it("declares tools as JSON with sorted keys, before the system message", () => {
    const declared = k2.declareTools([
      { name: "add", description: "Adds é.", parameters: { type: "object", properties: {} } },
    ]);
    expect(declared).toEqual([
      {
        role: "tool_declare",
        content:
          '[{"function":{"description":"Adds é.","name":"add","parameters":{"properties":{},"type":"object"}},"type":"function"}]',
      },
      { role: "system", content: "You are Kimi, an AI assistant created by Moonshot AI." },
    ]);
    expect(promptText(k2, [declared[0]!, QUESTION])).toBe(
      `<|im_system|>tool_declare<|im_middle|>${declared[0]!.content as string}<|im_end|>${DEFAULT}${ASKED}${OPENED}`,
    );
  });

  it("reads thoughts, text and calls", () => {
    expect(parseText(k2, `<think>Add.</think>Wait.${CALL}<|im_end|>`)).toEqual({
      termination: "stop_sequence",
      message: {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "Add." },
          { type: "text", text: "Wait." },
        ],
        toolCalls: [{ id: "functions.add:0", name: "add", arguments: '{"a":2}' }],
      },
    });
    expect(parseText(k2, "<think>Add.")).toEqual({
      termination: "malformed",
      message: { role: "assistant", content: "<think>Add." },
    });
  });

  it.each([
    ["arguments that are no JSON", "functions.add:0", "{a}", /JSON/],
    ["an id without a number", "call_1", "{}", /colon and a number/],
  ])("reports a call with %s", (_, id, given, error) => {
    const call = `<|tool_call_begin|>${id}<|tool_call_argument_begin|>${given}<|tool_call_end|>`;
    const { message } = parseText(
      k2,
      `<|tool_calls_section_begin|>${call}<|tool_calls_section_end|><|im_end|>`,
    );
    expect(message.toolCalls).toBeUndefined();
    expect(message.unparsedToolCalls).toEqual([{ rawText: call, error: expect.stringMatching(error) }]);
  });

  it("reports calls that are never closed", () => {
    const { message } = parseText(
      k2,
      "Hm<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|im_end|>",
    );
    expect(message.unparsedToolCalls).toHaveLength(1);
    expect(message.content).toContain("Hm");
  });

  it("takes text alone", () => {
    const image = { role: "user", content: [{ type: "image" as const, image: pngHeader(28, 28) }] };
    expect(() => k2.buildPrompt([image])).toThrow("text alone");
  });
});

describe("kimi_k25 and kimi_k26", () => {
  it("open the block of thoughts in the prompt, or close it, so that it is not trained on", () => {
    expect(promptText(k25, [BE_BRIEF, QUESTION])).toBe(`${BRIEF}${ASKED}${OPENED}<think>`);
    expect(promptText(disabled, [BE_BRIEF, QUESTION])).toBe(`${BRIEF}${ASKED}${OPENED}<think></think>`);
    expect(exampleText(k25, [BE_BRIEF, QUESTION, THOUGHT])).toBe(
      `${BRIEF}${ASKED}${OPENED}<think>⟦Easy.</think>4<|im_end|>⟧`,
    );
    expect(exampleText(disabled, [BE_BRIEF, QUESTION, { role: "assistant", content: "4" }])).toBe(
      `${BRIEF}${ASKED}${OPENED}<think></think>⟦4<|im_end|>⟧`,
    );
    expect(() => disabled.buildSupervisedExample([QUESTION, THOUGHT])).toThrow("not to think");
  });

  it("keep all thoughts where they are preserved", () => {
    expect(exampleText(preserved, [BE_BRIEF, QUESTION, THOUGHT, QUESTION, THOUGHT])).toBe(
      `${BRIEF}${ASKED}${OPENED}<think>Easy.</think>4<|im_end|>${ASKED}${OPENED}<think>⟦Easy.</think>4<|im_end|>⟧`,
    );
  });

  it("read an answer that goes on from the prompt", () => {
    const content = [
      { type: "thinking", thinking: "Easy." },
      { type: "text", text: "4" },
    ];
    expect(parseText(k25, "Easy.</think>4<|im_end|>").message.content).toEqual(content);
    expect(parseText(k25, "<think>Easy.</think>4<|im_end|>").message.content).toEqual(content);
    expect(parseText(k25, "4<|im_end|>").message.content).toBe("4");
    expect(parseText(disabled, "4</think>!<|im_end|>").message.content).toBe("4</think>!");
  });

  it("stream thoughts as thoughts from the first token", () => {
    const parser = k25.streamParser();
    expect(parser.push(tokenizer.encode("Easy."))).toContainEqual({
      type: "thinking",
      thinking: "E",
      contentIndex: 1,
    });
    parser.push(tokenizer.encode("</think>4<|im_end|>"));
    expect(parser.end().at(-1)).toMatchObject({ type: "message", termination: "stop_sequence" });
  });

  it("write images between signs, as many tokens as Kimi's processor makes of their size", () => {
    const sized = (width: number, height: number): Message => ({
      role: "user",
      content: [
        { type: "image", image: pngHeader(width, height) },
        { type: "text", text: "What?" },
      ],
    });
    const [before, image, after] = k25.buildPrompt([BE_BRIEF, sized(1024, 768)]).chunks;
    expect(before).toMatchObject({
      tokens: Int32Array.from(
        tokenizer.encode(`${BRIEF}<|im_user|>user<|im_middle|><|media_begin|>image<|media_content|>`),
      ),
    });
    expect(image).toMatchObject({ type: "image", format: "png", expectedTokens: 1036 });
    expect(after).toMatchObject({
      tokens: Int32Array.from(tokenizer.encode(`<|media_end|>\nWhat?<|im_end|>${OPENED}<think>`)),
    });
    const sizes = [
      [1, 1, 1],
      [100, 100, 16],
      [4000, 3000, 4200],
      [20_000, 50, 256],
    ] as const;
    for (const [width, height, expectedTokens] of sizes) {
      expect(k25.buildPrompt([sized(width, height)]).chunks[1]).toMatchObject({ expectedTokens });
    }
  });
});

describe("kimi_k25's declaration of tools", () => {
  const declared = (parameters: Readonly<Record<string, unknown>>, description = "") =>
    k25.declareTools([{ name: "f", description, parameters }])[0]!.content;
  const inNamespace = (text: string) => `# Tools\n\n## functions\nnamespace functions {\n${text}\n}\n`;

  it("is TypeScript, what is required first, with comments", () => {
    const parameters = {
      type: "object",
      properties: {
        unit: { type: "string", enum: ["C", "F"], default: "C" },
        days: { type: "integer", description: "How many\nto show", minimum: 1, default: true },
        city: { type: "string", maxLength: 40 },
        tags: { type: "array", items: { type: "string", description: "A tag" } },
      },
      required: ["city"],
      additionalProperties: false,
    };
    expect(declared(parameters, "Weather.")).toBe(
      inNamespace(
        [
          "// Weather.",
          "type f = (_: {",
          "  // maxLength: 40",
          "  city: string,",
          "  // How many",
          "  // to show",
          "  // minimum: 1",
          "  // Default: True",
          "  days?: number,",
          "  tags?: Array<",
          "    // A tag",
          "    string",
          "  >,",
          '  // Default: "C"',
          '  unit?: "C" | "F",',
          "  [k: string]: never",
          "}) => any;",
        ].join("\n"),
      ),
    );
  });

  it("names what a schema refers to", () => {
    const parameters = {
      type: "object",
      $defs: { Node: { type: "object", properties: { next: { $ref: "#/$defs/Node" } } } },
      properties: { node: { $ref: "#/$defs/Node" }, again: { $ref: "#" }, or: { type: ["integer", "null"] } },
    };
    expect(declared(parameters)).toBe(
      inNamespace(
        "interface parameters {\n  node?: Node,\n  again?: parameters,\n  or?: number | null\n}\n" +
          "interface Node {\n  next?: Node\n}\ntype f = (_: parameters) => any;",
      ),
    );
    expect(declared({})).toBe(inNamespace("type f = (_: {}) => any;"));
  });

  it("writes an enum of an unknown type as it is, also one that names what all objects have", () => {
    for (const type of ["colour", "constructor", "__proto__"])
      expect(declared({ type: "object", properties: { a: { type, enum: ["red"] } } })).toContain('a?: "red"');
  });

  it.each([
    [{ $ref: "#/$defs/Missing" }, "none|neither"],
    [{ description: "of no type" }, "not a JSON schema"],
    [{ type: "integer", enum: [1.5] }, "of type integer, got 1.5"],
    [{ type: ["string", "number"], enum: [] }, "or one type and null"],
  ])("refuses %j", (property, message) => {
    expect(() => declared({ type: "object", properties: { a: property } })).toThrow(new RegExp(message));
  });
});
