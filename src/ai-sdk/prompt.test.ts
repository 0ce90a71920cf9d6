import { describe, expect, it } from "vitest";
import { callMetadata } from "./answer-metadata.js";
import { messagesOf } from "./prompt.js";
import type { Prompt, ToolResultOutput } from "./specification.js";

const PNG = Uint8Array.of(0x89, 0x50, 0x4e, 0x47);
const call = (providerOptions?: object, input: unknown = { a: 1 }): Prompt => [
  {
    role: "assistant",
    content: [{ type: "tool-call", toolCallId: "call_1", toolName: "f", input, ...providerOptions }],
  },
];
const result = (output: ToolResultOutput): Prompt => [
  { role: "tool", content: [{ type: "tool-result", toolCallId: "call_1", toolName: "f", output }] },
];
const contentOf = (output: ToolResultOutput) => messagesOf(result(output))[0]!.content;

describe("a prompt of the AI SDK", () => {
  it("is messages: texts joined, thoughts and images between them", () => {
    expect(
      messagesOf([
        { role: "system", content: "Be kind." },
        {
          role: "user",
          content: [
            { type: "text", text: "a" },
            { type: "text", text: "b" },
          ],
        },
        {
          role: "assistant",
          content: [
            { type: "reasoning", text: "Hm." },
            { type: "text", text: "Yes." },
          ],
        },
        {
          role: "user",
          content: [
            { type: "text", text: "See:" },
            { type: "file", mediaType: "image/png", data: PNG },
            { type: "file", mediaType: "image/png", data: "iVBORw==" },
          ],
        },
      ]),
    ).toEqual([
      { role: "system", content: "Be kind." },
      { role: "user", content: "ab" },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "Hm." },
          { type: "text", text: "Yes." },
        ],
      },
      {
        role: "user",
        content: [
          { type: "text", text: "See:" },
          { type: "image", image: PNG },
          { type: "image", image: PNG },
        ],
      },
    ]);
  });

  it("repeats a call as the model wrote it, unless its arguments have been changed", () => {
    const written = { id: "functions.f:0", arguments: '{"a": 1}' };
    const providerOptions = callMetadata(written);
    expect(messagesOf([...call({ providerOptions }), ...result({ type: "text", value: "2" })])).toEqual([
      { role: "assistant", content: "", toolCalls: [{ ...written, name: "f" }] },
      { role: "tool", content: "2", toolCallId: "functions.f:0", name: "f" },
    ]);
    const changed = messagesOf(call({ providerOptions }, { a: 2 }));
    expect(changed[0]!.toolCalls).toEqual([{ id: "functions.f:0", name: "f", arguments: '{"a":2}' }]);
    const foreign = messagesOf(call({ providerOptions: { other: { arguments: 5 } } }));
    expect(foreign[0]!.toolCalls).toEqual([{ id: "call_1", name: "f", arguments: '{"a":1}' }]);
  });

  it("has results of every kind as text", () => {
    expect(contentOf({ type: "text", value: "x" })).toBe("x");
    expect(contentOf({ type: "error-text", value: "no" })).toBe("no");
    expect(contentOf({ type: "json", value: { a: [1] } })).toBe('{"a":[1]}');
    expect(contentOf({ type: "error-json", value: null })).toBe("null");
    expect(contentOf({ type: "execution-denied", reason: "not today" })).toBe("not today");
    expect(contentOf({ type: "execution-denied" })).toBe("The call was not allowed.");
    const parts = (...value: { type: string }[]) => contentOf({ type: "content", value });
    const text = { type: "text", text: "x" };
    expect(parts(text, text)).toBe("xx");
    expect(parts(text, { type: "image-data", mediaType: "image/png", data: "iVBORw==" } as never)).toEqual([
      text,
      { type: "image", image: PNG },
    ]);
    expect(() => parts({ type: "file-url", url: "https://a.example" } as never)).toThrow(
      "A tool's result has a part of the type file-url",
    );
  });

  it("refuses files that are not images, and unknown parts", () => {
    const file = (mediaType: string, data: unknown) =>
      messagesOf([{ role: "user", content: [{ type: "file", mediaType, data }] }]);
    expect(() => file("text/plain", PNG)).toThrow("The prompt has a file (text/plain).");
    expect(() => file("image/png", new URL("https://a.example/x.png"))).toThrow("an image at an address");
    expect(() => file("image/png", "not base64")).toThrow("base64");
    expect(() => messagesOf([{ role: "user", content: [{ type: "hologram" } as never] }])).toThrow(
      'a part of the type "hologram"',
    );
    expect(() => contentOf({ type: "smell" } as never)).toThrow('the type "smell"');
  });
});
