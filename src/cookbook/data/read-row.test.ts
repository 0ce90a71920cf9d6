import { describe, expect, it } from "vitest";
import { printPythonJson } from "../../renderers/python-json.js";
import { readLine, readRow } from "./read-row.js";
import { conversationShape } from "./row-formats.js";

const line = (text: string) => readLine(new TextEncoder().encode(text), conversationShape());
const read = (row: unknown) => readRow(row, conversationShape());
const problems = (row: unknown) => read(row).problems?.map(({ field, message }) => [field, message]);
const messages = (text: string) => line(text).row?.messages;
const oneMessage = (message: object) => read({ messages: [message] }).row?.messages[0];

describe("a row", () => {
  it("is read as OpenAI writes it", () => {
    const row = {
      id: 7,
      messages: [
        { role: "system", content: "Be brief.", name: null },
        { role: "user", content: [{ type: "text", text: "Add." }] },
        {
          role: "assistant",
          content: null,
          refusal: null,
          tool_calls: [{ id: "c1", type: "function", function: { name: "add", arguments: '{"a":  1.0}' } }],
        },
        { role: "tool", tool_call_id: "c1", name: "add", content: "2" },
      ],
      tools: [
        { type: "function", function: { name: "add", description: "Adds.", parameters: { type: "object" } } },
        { name: "now" },
      ],
    };
    expect(read(row).row).toEqual({
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: [{ type: "text", text: "Add." }] },
        { role: "assistant", content: "", toolCalls: [{ id: "c1", name: "add", arguments: '{"a":  1.0}' }] },
        { role: "tool", content: "2", toolCallId: "c1", name: "add" },
      ],
      tools: [
        { name: "add", description: "Adds.", parameters: { type: "object" } },
        { name: "now", description: "", parameters: {} },
      ],
    });
  });

  it("may be a prompt with its completion or answer, and an answer may have OpenAI's weight", () => {
    const pair = [
      { role: "user", content: "Q" },
      { role: "assistant", content: "A" },
    ];
    for (const row of [
      { prompt: "Q", completion: "A" },
      { prompt: "Q", answer: "A", id: 3 },
      { messages: pair },
    ])
      expect(messages(JSON.stringify(row))).toEqual(pair);
    const weighted = pair.map((message, place) => (place === 0 ? message : { ...message, weight: 0 }));
    expect(messages(JSON.stringify({ messages: weighted }))).toEqual(weighted);
  });

  it("is read as code writes it", () => {
    const conversation = {
      messages: [
        { role: "user", content: [{ type: "image", image: new Uint8Array([0x89]), format: "png" }] },
        {
          role: "assistant",
          content: [{ type: "thinking", thinking: "Hm." }],
          trainable: true,
          toolCalls: [{ name: "add", arguments: "{}" }],
          unparsedToolCalls: [{ rawText: "<", error: "cut" }],
        },
        { role: "tool", content: "3", toolCallId: "x" },
      ],
    };
    expect(read(conversation).row).toEqual(conversation);
  });

  it.each(["reasoning_content", "reasoning", "thinking"])("has its thoughts in %s", (key) => {
    expect(oneMessage({ role: "assistant", content: "4", [key]: "2 and 2" })?.content).toEqual([
      { type: "thinking", thinking: "2 and 2" },
      { type: "text", text: "4" },
    ]);
    expect(oneMessage({ role: "assistant", [key]: "2 and 2" })?.content).toEqual([
      { type: "thinking", thinking: "2 and 2" },
    ]);
    expect(oneMessage({ role: "assistant", content: "4", [key]: "" })?.content).toBe("4");
  });

  it("keeps what Python would print: floats, long integers, the order of keys", () => {
    const call = { name: "f", arguments: "ARGUMENTS" };
    const text = JSON.stringify({ messages: [{ role: "assistant", tool_calls: [{ function: call }] }] });
    const given = '{"b": 1.0,"10": 12345678901234567890, "2": 1e3, "é": "\\u00e9", "n": NaN}';
    const read = messages(text.replace('"ARGUMENTS"', given));
    expect(read?.[0]?.toolCalls?.[0]?.arguments).toBe(
      '{"b": 1.0, "10": 12345678901234567890, "2": 1000.0, "\\u00e9": "\\u00e9", "n": NaN}',
    );
    const { row: conversation } = line(
      `{"messages": [{"role": "user", "content": ""}], "tools": [{"name": "f", "parameters": ${given}}]}`,
    );
    expect(printPythonJson(conversation?.tools?.[0]?.parameters)).toBe(
      '{"b": 1.0, "10": 12345678901234567890, "2": 1000.0, "\\u00e9": "\\u00e9", "n": NaN}',
    );
  });

  it("may be a prompt and a completion, as text or as messages", () => {
    expect(messages('{"prompt": "1+1=", "completion": "2"}')).toEqual([
      { role: "user", content: "1+1=" },
      { role: "assistant", content: "2" },
    ]);
    expect(
      read({
        prompt: [
          { role: "system", content: "S" },
          { role: "user", content: "Q" },
        ],
        completion: [{ role: "assistant", content: "A" }],
      }).row?.messages.map(({ role }) => role),
    ).toEqual(["system", "user", "assistant"]);
  });

  it("has images as data: URIs", () => {
    const image = "data:image/png;base64,iVBORw0KGgo=";
    const parts = [
      { type: "image_url", image_url: { url: image } },
      { type: "image_url", image_url: image },
      { type: "image", image },
    ];
    const read = messages(JSON.stringify({ messages: [{ role: "user", content: parts }] }));
    expect(read?.[0]?.content).toEqual(parts.map(() => ({ type: "image", image })));
  });

  it("may be tens of megabytes long", () => {
    const content = 'é\\"\n'.repeat(4_000_000);
    expect(messages(JSON.stringify({ messages: [{ role: "user", content }] }))?.[0]?.content).toBe(content);
  });
});

describe("a wrong row", () => {
  it.each([
    ["", "the row is not JSON: expected a value at character 0, got the end"],
    ['{"messages": [', "the row is not JSON: expected a value at character 14, got the end"],
    ["3", "the row must be a JSON object, got 3"],
    ["[1]", "the row must be a JSON object, got a list: a file holds one row a line"],
  ])("is no object: %s", (text, message) => {
    expect(line(text).problems).toEqual([{ field: "", message }]);
  });

  it("is not UTF-8", () => {
    const bytes = Uint8Array.from(
      Buffer.from('{"messages": [{"role": "user", "content": "\xe9"}]}', "latin1"),
    );
    expect(readLine(bytes, conversationShape()).problems).toEqual([
      { field: "", message: "the row is not UTF-8: save the file as UTF-8" },
    ]);
  });

  const first = (message: unknown) => ({ messages: [message] });
  it.each([
    [{}, "messages", "messages is missing, and so are prompt and completion: the row is empty"],
    [
      { dialogue: [], id: 1 },
      "messages",
      "messages is missing, and so are prompt and completion: the row has dialogue, id",
    ],
    [{ messages: [] }, "messages", "messages is empty"],
    [{ messages: "hello" }, "messages", 'messages must be a list, got "hello"'],
    [{ prompt: "Q" }, "completion", "completion is missing"],
    [{ prompt: 1, completion: "A" }, "prompt", "prompt must be text or a list of messages, got 1"],
    [first("x"), "messages[0]", 'messages[0] must be an object, got "x"'],
    [first({ content: "x" }), "messages[0].role", "messages[0].role is missing"],
    [
      first({ role: "", content: "x" }),
      "messages[0].role",
      'messages[0].role must be a text such as user, got ""',
    ],
    [first({ role: "user" }), "messages[0].content", "messages[0].content is missing"],
    [
      first({ role: "user", content: 3 }),
      "messages[0].content",
      "messages[0].content must be text or a list of parts, got 3",
    ],
    [
      first({ role: "user", content: {} }),
      "messages[0].content",
      "messages[0].content must be text or a list of parts, got an object",
    ],
    [
      first({ role: "user", content: "", contents: "x" }),
      "messages[0].contents",
      "messages[0].contents is not known: did you mean content?",
    ],
    [
      first({ role: "user", content: "", weight: 0 }),
      "messages[0].weight",
      "messages[0].weight is for messages of the assistant alone",
    ],
    [
      first({ role: "assistant", content: "", weight: 0.5 }),
      "messages[0].weight",
      "messages[0].weight must be 0 (not trained on) or 1, got 0.5",
    ],
    [
      first({ role: "user", content: "", trainable: 1 }),
      "messages[0].trainable",
      "messages[0].trainable must be true or false, got 1",
    ],
    [
      first({ role: "user", content: [{ type: "video" }] }),
      "messages[0].content[0].type",
      'messages[0].content[0].type must be text, thinking, image or image_url, got "video"',
    ],
    [
      first({ role: "user", content: [{ type: "text" }] }),
      "messages[0].content[0].text",
      "messages[0].content[0].text is missing",
    ],
    [
      first({ role: "user", content: [{ type: "image_url", image_url: { url: "https://a.b/c.png" } }] }),
      "messages[0].content[0].image_url.url",
      'messages[0].content[0].image_url.url must be a data: URI of a PNG or JPEG file, since nothing is downloaded, got "https://a.b/c.png"',
    ],
    [
      first({ role: "assistant", tool_calls: {} }),
      "messages[0].tool_calls",
      "messages[0].tool_calls must be a list, got an object",
    ],
    [
      first({ role: "assistant", tool_calls: [{ function: { name: "f" } }] }),
      "messages[0].tool_calls[0].function.arguments",
      "messages[0].tool_calls[0].function.arguments is missing",
    ],
    [
      first({ role: "assistant", toolCalls: [{ arguments: "{}" }] }),
      "messages[0].toolCalls[0].name",
      "messages[0].toolCalls[0].name is missing",
    ],
    [
      first({ role: "tool", content: "x", tool_call_id: 4 }),
      "messages[0].tool_call_id",
      "messages[0].tool_call_id must be text, got 4",
    ],
    [
      { messages: [{ role: "user", content: "" }], tools: [{ function: { parameters: [] } }] },
      "tools[0].function.name",
      "tools[0].function.name is missing",
    ],
    [
      { messages: [{ role: "user", content: "" }], tools: "none" },
      "tools",
      'tools must be a list, got "none"',
    ],
  ])("%j", (row, field, message) => {
    expect(problems(row)).toContainEqual([field, message]);
    // A line of a file gets the same error.
    expect(line(JSON.stringify(row)).problems?.map((problem) => [problem.field, problem.message])).toEqual(
      problems(row),
    );
  });

  it("is reported with all its problems", () => {
    const row = {
      messages: [{ role: 1, content: 2 }, { role: "user" }],
      tools: [{ name: "f", parameters: 3 }],
    };
    expect(problems(row)?.map(([field]) => field)).toEqual([
      "tools[0].parameters",
      "messages[0].role",
      "messages[0].content",
      "messages[1].content",
    ]);
  });
});
