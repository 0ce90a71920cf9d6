import { describe, expect, it } from "vitest";
import { CharacterTokenizer } from "../../test/support/character-tokenizer.js";
import { markedText } from "../../test/support/marked-text.js";
import { pngHeader } from "../../test/support/png-header.js";
import { getRenderer, type Message, type Renderer, type TrainOn } from "./index.js";

const tokenizer = new CharacterTokenizer({ eosToken: "<|im_end|>" });
const k2 = getRenderer("kimi_k2", tokenizer);
const k25 = getRenderer("kimi_k25", tokenizer);
const disabled = getRenderer("kimi_k25_disable_thinking", tokenizer);
const preserved = getRenderer("kimi_k26_preserve_thinking", tokenizer);

const prompt = (renderer: Renderer, messages: readonly Message[]) =>
  tokenizer.decode(renderer.buildPrompt(messages).toInts());
const example = (renderer: Renderer, messages: readonly Message[], trainOn?: TrainOn) =>
  markedText(tokenizer, renderer.buildSupervisedExample(messages, trainOn));
const parse = (renderer: Renderer, text: string) => renderer.parseResponse(tokenizer.encode(text));

const system: Message = { role: "system", content: "Be brief." };
const user: Message = { role: "user", content: "2+2?" };
const thought: Message = {
  role: "assistant",
  content: [
    { type: "thinking", thinking: "Easy." },
    { type: "text", text: "4" },
  ],
};
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
    expect(prompt(k2, [user])).toBe(DEFAULT + ASKED + OPENED);
    expect(prompt(k2, [system, user])).toBe(BRIEF + ASKED + OPENED);
    expect(prompt(k2, [])).toBe(DEFAULT + OPENED);
  });

  it("writes a block of thoughts in every answer, and empties those of former turns", () => {
    expect(example(k2, [system, user, thought, user, thought])).toBe(
      `${BRIEF}${ASKED}${OPENED}<think></think>4<|im_end|>${ASKED}${OPENED}⟦<think>Easy.</think>4<|im_end|>⟧`,
    );
  });

  it("keeps the thoughts of a turn with tools, which is learnt as a whole", () => {
    const turn = [system, user, calling, result, thought];
    expect(example(k2, turn, "last_assistant_turn")).toBe(
      `${BRIEF}${ASKED}${OPENED}⟦<think>Add.</think>${CALL}<|im_end|>⟧` +
        `<|im_system|>add<|im_middle|>## Return of functions.add:0\n4<|im_end|>${OPENED}⟦<think>Easy.</think>4<|im_end|>⟧`,
    );
  });

  it("makes an example for each turn of the user's", () => {
    const turns = [system, user, calling, result, thought, user, thought];
    const examples = k2.buildSupervisedExamples(turns, "all_assistant_messages");
    expect(examples.map((each) => markedText(tokenizer, each))).toEqual([
      example(k2, turns.slice(0, 5), "last_assistant_turn"),
      example(k2, turns, "last_assistant_turn"),
    ]);
  });

  it("takes flags without one on the system message that it adds", () => {
    const flagged = [
      { ...user, trainable: false },
      { ...thought, trainable: true },
    ];
    expect(example(k2, flagged, "customized")).toBe(
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
          '[{"function":{"description":"Adds \\u00e9.","name":"add","parameters":{"properties":{},"type":"object"}},"type":"function"}]',
      },
      { role: "system", content: "You are Kimi, an AI assistant created by Moonshot AI." },
    ]);
    expect(prompt(k2, [declared[0]!, user])).toBe(
      `<|im_system|>tool_declare<|im_middle|>${declared[0]!.content as string}<|im_end|>${DEFAULT}${ASKED}${OPENED}`,
    );
  });

  it("reads thoughts, text and calls", () => {
    expect(parse(k2, `<think>Add.</think>Wait.${CALL}<|im_end|>`)).toEqual({
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
    expect(parse(k2, "<think>Add.")).toEqual({
      termination: "malformed",
      message: { role: "assistant", content: "<think>Add." },
    });
  });

  it.each([
    ["arguments that are no JSON", "functions.add:0", "{a}", /JSON/],
    ["an id without a number", "call_1", "{}", /colon and a number/],
  ])("reports a call with %s", (_, id, given, error) => {
    const call = `<|tool_call_begin|>${id}<|tool_call_argument_begin|>${given}<|tool_call_end|>`;
    const { message } = parse(k2, `<|tool_calls_section_begin|>${call}<|tool_calls_section_end|><|im_end|>`);
    expect(message.toolCalls).toBeUndefined();
    expect(message.unparsedToolCalls).toEqual([{ rawText: call, error: expect.stringMatching(error) }]);
  });

  it("reports calls that are never closed", () => {
    const { message } = parse(
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
  it("open the block of thoughts in the prompt, or close it, so that it is not learnt", () => {
    expect(prompt(k25, [system, user])).toBe(`${BRIEF}${ASKED}${OPENED}<think>`);
    expect(prompt(disabled, [system, user])).toBe(`${BRIEF}${ASKED}${OPENED}<think></think>`);
    expect(example(k25, [system, user, thought])).toBe(
      `${BRIEF}${ASKED}${OPENED}<think>⟦Easy.</think>4<|im_end|>⟧`,
    );
    expect(example(disabled, [system, user, { role: "assistant", content: "4" }])).toBe(
      `${BRIEF}${ASKED}${OPENED}<think></think>⟦4<|im_end|>⟧`,
    );
    expect(() => disabled.buildSupervisedExample([user, thought])).toThrow("not to think");
  });

  it("keep all thoughts where they are preserved", () => {
    expect(example(preserved, [system, user, thought, user, thought])).toBe(
      `${BRIEF}${ASKED}${OPENED}<think>Easy.</think>4<|im_end|>${ASKED}${OPENED}<think>⟦Easy.</think>4<|im_end|>⟧`,
    );
  });

  it("read an answer that goes on from the prompt", () => {
    const content = [
      { type: "thinking", thinking: "Easy." },
      { type: "text", text: "4" },
    ];
    expect(parse(k25, "Easy.</think>4<|im_end|>").message.content).toEqual(content);
    expect(parse(k25, "<think>Easy.</think>4<|im_end|>").message.content).toEqual(content);
    expect(parse(k25, "4<|im_end|>").message.content).toBe("4");
    expect(parse(disabled, "4</think>!<|im_end|>").message.content).toBe("4</think>!");
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
    const [before, image, after] = k25.buildPrompt([system, sized(1024, 768)]).chunks;
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

  it.each([
    [{ $ref: "#/$defs/Missing" }, "none|neither"],
    [{ description: "of no type" }, "no JSON schema"],
    [{ type: "integer", enum: [1.5] }, "of type integer, got 1.5"],
    [{ type: ["string", "number"], enum: [] }, "one and null"],
  ])("refuses %j", (property, message) => {
    expect(() => declared({ type: "object", properties: { a: property } })).toThrow(new RegExp(message));
  });
});
