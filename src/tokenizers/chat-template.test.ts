import { expect, it } from "vitest";
import { TinkerError } from "../errors.js";
import { compileChatTemplate } from "./chat-template.js";

const compile = async (template: string) =>
  (await compileChatTemplate(new Map([["default", template]]), {}))!;

it("writes the same whatever newlines the template's file has", async () => {
  const template = "{% for message in messages %}\n  {{- message.role }}\nsays\n{%- endfor %}\n";
  const messages = [{ role: "user" }, { role: "assistant" }];
  for (const newline of ["\n", "\r\n", "\r"])
    expect((await compile(template.replaceAll("\n", newline)))(messages)).toBe("user\nsaysassistant\nsays");
});

it("refuses a template that cannot be read, as one that refuses a conversation", async () => {
  const write = await compile("{% nonsense %}");
  expect(() => write([{ role: "user" }])).toThrow(TinkerError);
});
