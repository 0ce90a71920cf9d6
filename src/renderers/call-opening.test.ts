import { describe, expect, it } from "vitest";
import { CharacterTokenizer } from "../../test/support/character-tokenizer.js";
import { parseText, promptText } from "../../test/support/marked-text.js";
import { compileChatTemplate } from "../tokenizers/chat-template.js";
import { callAnswer } from "./answer-shape.js";
import { getRenderer, type Message, type Renderer, templateRenderer } from "./index.js";

const tokenizer = new CharacterTokenizer({ eosToken: "<|im_end|>" });
const user: Message = { role: "user", content: "2+2?" };
const calling: Message = {
  role: "assistant",
  content: "",
  toolCalls: [{ id: "functions.add:0", name: "add", arguments: '{"a": 2}' }],
};

const TEMPLATE = `{%- for message in messages %}{{- "<|im_start|>" + message.role + "\\n" + (message.content or "") }}
{%- for call in message.tool_calls or [] %}{{- "\\n<tool_call>\\n" + ({"name": call.function.name, "arguments": call.function.arguments} | tojson) + "\\n</tool_call>" }}{%- endfor %}
{{- "<|im_end|>\\n" }}{%- endfor %}{%- if add_generation_prompt %}{{- "<|im_start|>assistant\\n" }}{%- endif %}`;

const openingOf = (renderer: Renderer, ...names: readonly string[]) =>
  callAnswer(
    renderer.callForm!,
    names.map((name) => ({ name, description: "", parameters: {} })),
  ).opening;

async function overTemplate() {
  const render = (await compileChatTemplate(new Map([["default", TEMPLATE]]), {}))!;
  return templateRenderer(Object.assign(tokenizer, { applyChatTemplate: render }));
}

describe("the beginning of a call", () => {
  it.each([
    "qwen3_disable_thinking",
    "qwen3_instruct",
    "qwen3_vl_instruct",
    "qwen3_5_disable_thinking",
    "qwen3_8_disable_thinking",
    "nemotron3_disable_thinking",
  ])("is written by %s as in an answer, up to the name or to the arguments", (name) => {
    const renderer = getRenderer(name, tokenizer);
    const written = promptText(renderer, [user, calling, user]);
    expect(written).toContain(renderer.callSign);
    const [open, named] = [openingOf(renderer, "add", "sub"), openingOf(renderer, "add")];
    expect(written).toContain(`${open}add`);
    const rest = written.slice(written.indexOf(named) + named.length).split("<|im_end|>")[0]!;
    expect(written).toContain(named + rest);
    expect(parseText(renderer, `${named}${rest}<|im_end|>`).message.toolCalls).toMatchObject([
      { name: "add", arguments: '{"a": 2}' },
    ]);
  });

  it("comes behind an empty block of thoughts where a turn begins with one", () => {
    expect(openingOf(getRenderer("qwen3", tokenizer), "add")).toBe(
      '<think>\n\n</think>\n\n<tool_call>\n{"name": "add", "arguments": ',
    );
  });

  it("is as the chat template writes calls", async () => {
    const renderer = await overTemplate();
    expect(renderer.callSign).toBe("<tool_call>");
    expect(openingOf(renderer, "add", "sub")).toBe('<tool_call>\n{"name": "');
    expect(openingOf(renderer, "add")).toBe('<tool_call>\n{"name": "add", "arguments": ');
  });

  it.each(["qwen3_5", "nemotron3", "glm5_3_low_reasoning", "tml_v0"])("is not for prompts of %s", (name) => {
    expect(openingOf(getRenderer(name, tokenizer), "add")).toBe("");
  });

  it.each(["role_colon", "llama3"])("is unknown to %s", (name) => {
    expect(getRenderer(name, tokenizer).callForm).toBeUndefined();
  });

  it.each(["deepseekv3", "deepseekv4_1_disable_thinking", "glm5_3_low_reasoning", "kimi_k2"])(
    "has a sign in an answer of %s",
    (name) => {
      const renderer = getRenderer(name, tokenizer);
      expect(promptText(renderer, [user, calling, user])).toContain(renderer.callSign);
    },
  );
});

it("a stream ends before the first of several stop texts, and holds back what may be one", () => {
  const parser = getRenderer("qwen3_instruct", tokenizer).streamParser([], ["STOP", "ST!"]);
  const pieces = [..."one S two ST!STOP three"].flatMap((letter) => parser.push(tokenizer.encode(letter)));
  const shown = [...pieces, ...parser.end()]
    .map((delta) => (delta.type === "text" ? delta.text : ""))
    .join("");
  expect(shown).toBe("one S two ");
});
