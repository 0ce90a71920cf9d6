import { describe, expect, it } from "vitest";
import { goTemplate, type WriteConversation } from "./go-template.js";

const chatml: WriteConversation = (messages) =>
  `${messages.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join("")}<|im_start|>assistant\n`;

/** The system message stands inside the first question. */
const inst: WriteConversation = (messages) => {
  const [first, ...rest] = messages;
  const hasSystem = first?.role === "system";
  const turns = hasSystem ? rest : messages;
  const system = hasSystem ? `<<SYS>>\n${first.content}\n<</SYS>>\n\n` : "";
  return turns
    .map(({ role, content }, index) =>
      role === "user" ? `[INST] ${index === 0 ? system : ""}${content} [/INST]` : ` ${content} </s>`,
    )
    .join("");
};

describe("Ollama's template of a chat format", () => {
  it("writes what stands around the messages of each role", () => {
    expect(goTemplate(chatml)).toBe(
      [
        '{{ range .Messages }}{{ if eq .Role "system" }}<|im_start|>system\n{{ .Content }}<|im_end|>\n',
        '{{ else if eq .Role "user" }}<|im_start|>user\n{{ .Content }}<|im_end|>\n<|im_start|>assistant\n',
        '{{ else if eq .Role "assistant" }}{{ .Content }}<|im_end|>\n{{ end }}{{ end }}',
      ].join(""),
    );
  });

  it("writes what stands in place of a system message", () => {
    const withDefault: WriteConversation = (messages) =>
      chatml(
        messages[0]?.role === "system" ? messages : [{ role: "system", content: "Be kind." }, ...messages],
      );
    expect(goTemplate(withDefault)).toMatch(/^\{\{ if not \.System \}\}<\|im_start\|>system\nBe kind\./);
  });

  it("writes a system message that stands inside the first question", () => {
    expect(goTemplate(inst)).toContain("<<SYS>>\n{{ .Content }}\n<</SYS>>");
  });

  it.each<[string, WriteConversation]>([
    ["numbers its messages", (messages) => messages.map(({ content }, i) => `${i}. ${content}`).join("\n")],
    ["leaves messages out", (messages) => `Q: ${messages.at(-1)!.content}\nA:`],
    [
      "refuses system messages",
      (messages) => {
        if (messages[0]?.role === "system") throw new Error("no system messages");
        return chatml(messages);
      },
    ],
    ["has Go's signs in it", (messages) => chatml(messages).replaceAll("<|im_end|>", "{{end}}")],
  ])("is none where the format %s", (_, write) => {
    expect(goTemplate(write)).toBeUndefined();
  });
});
