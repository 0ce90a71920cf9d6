import { describe, expect, it } from "vitest";
import { conversation } from "../../test/conformance/conversations.js";
import { Random } from "../../test/conformance/random.js";
import { attempt } from "../../test/support/attempt.js";
import { CharacterTokenizer, FIRST_ADDED, SPECIAL_TOKENS } from "../../test/support/character-tokenizer.js";
import { cases } from "../../test/support/long.js";
import { defaultModel } from "../local/default-model.js";
import { compileChatTemplate } from "../tokenizers/chat-template.js";
import { type EncodeOptions, loadTokenizer } from "../tokenizers/index.js";
import { stepsTaken } from "../tokenizers/jinja/budget.js";
import type { Message } from "./messages.js";
import { getRenderer } from "./registry.js";
import type { Renderer, RendererTokenizer, SupervisedExample } from "./renderer.js";
import { templateRenderer } from "./template.js";

const CHATML = `{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`;

/** Qwen3's way with thoughts: kept in the last turn alone, where a turn without any gets an empty block. */
const FORGETS_THOUGHTS = `{%- set ns = namespace(last=-1) %}{%- for message in messages %}{%- if message.role == "user" %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for message in messages %}{{- "<|im_start|>" + message.role + "\\n" }}
{%- if message.role == "assistant" and loop.index0 > ns.last %}{{- "<think>\\n" + (message.reasoning_content or "") + "\\n</think>\\n\\n" }}{%- endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}{{- "\\n<tool_call>\\n" + ({"name": call.function.name, "arguments": call.function.arguments} | tojson) + "\\n</tool_call>" }}{%- endfor %}
{{- "<|im_end|>\\n" }}{%- endfor %}
{%- if add_generation_prompt %}{{- "<|im_start|>assistant\\n" }}{%- if enable_thinking is defined and not enable_thinking %}{{- "<think>\\n\\n</think>\\n\\n" }}{%- endif %}{%- endif %}`;

/** Opens thoughts in the prompt, and writes none in history. */
const OPENS_THOUGHTS = `{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.role == "assistant" and loop.last and message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}`;

/** Another end for the last answer, and one of its own for calls. */
const CHANGES_ENDS = `{% for message in messages %}<|start|>{{ message.role }}<|message|>{{ message.content }}{% if message.role != "assistant" %}<|end|>{% elif message.tool_calls %}{{ message.tool_calls[0].function.name }} {{ message.tool_calls[0].function.arguments }}<|call|>{% elif loop.last %}<|return|>{% else %}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant<|message|>{% endif %}`;

/** The same end for everybody, but for calls; a space before an answer and one behind it. */
const PADS_ANSWERS = `{{ bos_token }}{% for message in messages %}{% if message.role == "assistant" %}{% if message.tool_calls %}{{ message.tool_calls[0].function.name }} {{ message.tool_calls[0].function.arguments | tojson }}<|call|>{% else %}{{ " " + message.content + " " + eos_token }}{% endif %}{% else %}[{{ message.content }}]{{ eos_token }}{% endif %}{% endfor %}`;

/** Opens thoughts in the prompt, and drops them wherever an answer has some. */
const DROPS_THOUGHTS = `{% for message in messages %}<|{{ message.role }}|>{% if message.role == "assistant" %}{{ message.content.split("</think>")[-1] }}{{ eos_token }}{% else %}{{ message.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{{ "<think>\\n" }}{% endif %}`;

/** Signs around an answer, and the end of the turn behind them. */
const FRAMES_ANSWERS = `{% for message in messages %}<|{{ message.role }}|>{% if message.role == "assistant" %}<|start|>{{ message.content }}<|end|>{% else %}{{ message.content }}{% endif %}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}`;

/** Only the next turn shows that an answer has ended. */
const ENDS_WITH_NEXT_TURN = `{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}`;

const ENDS_TEXT_TWICE = `{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% else %}{{ eos_token }}{% endif %}`;

const ENDS = { bosToken: "<|begin_of_text|>", eosToken: "<|end_of_text|>" };

/** Has a token for two newlines, as most vocabularies do. */
class MergingTokenizer extends CharacterTokenizer {
  override encode(text: string, options?: EncodeOptions): number[] {
    return super.encode(text.replaceAll("\n\n", BLANK_LINE), options);
  }

  override decode(tokens: ArrayLike<number>): string {
    return super.decode(tokens).replaceAll(BLANK_LINE, "\n\n");
  }
}

const BLANK_LINE = "\ue000";

async function renderer(
  template: string,
  variables: Record<string, unknown> = {},
  tokenizer: RendererTokenizer = new CharacterTokenizer(ENDS),
): Promise<Renderer> {
  const settings = { bos_token: ENDS.bosToken, eos_token: ENDS.eosToken };
  const write = (await compileChatTemplate(new Map([["default", template]]), settings))!;
  return templateRenderer(Object.assign(tokenizer, { applyChatTemplate: write }), { variables });
}

/** With the trained text in brackets. */
function marked({ tokenizer }: Renderer, { input, weights }: SupervisedExample): string {
  const tokens = [...input.toInts()];
  return tokens
    .map((token, index) => {
      const opens = weights[index] === 1 && weights[index - 1] !== 1;
      const closes = weights[index] === 1 && weights[index + 1] !== 1;
      return `${opens ? "⟦" : ""}${tokenizer.decode([token])}${closes ? "⟧" : ""}`;
    })
    .join("");
}

const user = (content: string): Message => ({ role: "user", content });
const assistant = (content: string): Message => ({ role: "assistant", content });
const thoughtful = (thinking: string, text: string): Message => ({
  role: "assistant",
  content: [
    { type: "thinking", thinking },
    { type: "text", text },
  ],
});
const calling = (given: string): Message => ({
  role: "assistant",
  content: "",
  toolCalls: [{ name: "add", arguments: given }],
});

describe("a renderer made from a chat template", () => {
  it("learns from the end of the prompt to the token that ends the turn", async () => {
    const chatml = await renderer(CHATML);
    expect(chatml.stopSequences).toEqual(chatml.tokenizer.encode("<|im_end|>", { addSpecialTokens: false }));
    expect(chatml.hasExtensionProperty).toBe(true);
    const messages = [user("2?"), assistant("two"), user("3?"), assistant("three")];
    expect(marked(chatml, chatml.buildSupervisedExample(messages))).toBe(
      "<|im_start|>user\n2?<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\n3?<|im_end|>\n<|im_start|>assistant\n⟦three<|im_end|>⟧",
    );
    expect(marked(chatml, chatml.buildSupervisedExample(messages, "all_assistant_messages"))).toBe(
      "<|im_start|>user\n2?<|im_end|>\n<|im_start|>assistant\n⟦two<|im_end|>⟧\n<|im_start|>user\n3?<|im_end|>\n<|im_start|>assistant\n⟦three<|im_end|>⟧",
    );
    const chosen = messages.map((message, index) => ({ ...message, trainable: index === 1 }));
    expect(marked(chatml, chatml.buildSupervisedExample(chosen, "customized"))).toContain("⟦two<|im_end|>⟧");
  });

  it("learns the words of others where asked, and nothing that the template writes around them", async () => {
    const chatml = await renderer(CHATML);
    const messages = [{ role: "system", content: "S" }, user(" 2?"), assistant("two"), user("0 probe 0")];
    expect(marked(chatml, chatml.buildSupervisedExample(messages, "all_messages"))).toBe(
      "<|im_start|>system\n⟦S<|im_end|>⟧\n<|im_start|>user\n⟦ 2?<|im_end|>⟧\n<|im_start|>assistant\n⟦two<|im_end|>⟧\n<|im_start|>user\n⟦0 probe 0<|im_end|>⟧\n",
    );
    expect(
      marked(chatml, chatml.buildSupervisedExample(messages, "all_user_and_system_messages")),
    ).not.toContain("⟦two");
    const folding = await renderer(
      CHATML.replace("{% for", "{% set hint = messages[0].content %}{% for").replace(
        "<|im_end|>",
        "<|im_end|>{{ hint }}",
      ),
    );
    expect(() => folding.buildSupervisedExample([user("2?"), assistant("two")], "all_messages")).toThrow(
      /messages\[0\] cannot be trained on: the chat template does not write it in one place/,
    );
    const merging = await renderer(CHATML, {}, new MergingTokenizer(ENDS));
    const blank = [user("\n2?"), assistant("\ntwo")];
    expect(() => merging.buildSupervisedExample(blank, "all_messages")).toThrow(
      /Messages of other roles cannot be trained on here/,
    );
    // An answer is cut off from its prompt, as it is sampled behind it.
    const { input } = merging.buildSupervisedExample(blank);
    expect([...input.toInts()].slice(0, -5)).toEqual([...merging.buildPrompt(blank.slice(0, 1)).toInts()]);
  });

  it("makes an example of each answer where the template rewrites history", async () => {
    const qwen = await renderer(FORGETS_THOUGHTS);
    expect(qwen.hasExtensionProperty).toBe(false);
    const messages = [user("2?"), thoughtful("hm", "two"), user("3?"), assistant("three")];
    expect(
      qwen.buildSupervisedExamples(messages, "all_assistant_messages").map((each) => marked(qwen, each)),
    ).toEqual([
      "<|im_start|>user\n2?<|im_end|>\n<|im_start|>assistant\n⟦<think>\nhm\n</think>\n\ntwo<|im_end|>⟧",
      "<|im_start|>user\n2?<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\n3?<|im_end|>\n<|im_start|>assistant\n⟦<think>\n\n</think>\n\nthree<|im_end|>⟧",
    ]);
    expect(() => qwen.buildSupervisedExample(messages, "all_assistant_messages")).toThrow(
      /messages\[1\] cannot be trained on: the chat template writes it otherwise as history/,
    );
  });

  it("takes what the prompt says of thoughts as given", async () => {
    const silent = await renderer(FORGETS_THOUGHTS, { enable_thinking: false });
    expect(marked(silent, silent.buildSupervisedExample([user("3?"), assistant("three")]))).toBe(
      "<|im_start|>user\n3?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n⟦three<|im_end|>⟧",
    );
    expect(() => silent.buildSupervisedExample([user("3?"), thoughtful("hm", "three")])).toThrow(
      /otherwise than its prompt/,
    );
    const open = await renderer(OPENS_THOUGHTS);
    expect(marked(open, open.buildSupervisedExample([user("3?"), thoughtful("hm", "three")]))).toBe(
      "<|im_start|>user\n3?<|im_end|>\n<|im_start|>assistant\n<think>\n⟦hm\n</think>\n\nthree<|im_end|>⟧",
    );
    // The prompt has opened a thought, which an answer without any closes.
    expect(marked(open, open.buildSupervisedExample([user("3?"), assistant("three")]))).toBe(
      "<|im_start|>user\n3?<|im_end|>\n<|im_start|>assistant\n<think>\n⟦\n</think>\n\nthree<|im_end|>⟧",
    );
    const answer = open.tokenizer.encode("hm\n</think>\n\nthree<|im_end|>", { addSpecialTokens: false });
    expect(open.parseResponse(answer).message).toEqual(thoughtful("hm", "three"));
    const stream = open.streamParser();
    expect([...answer.flatMap((token) => stream.push(token)), ...stream.end()]).toContainEqual({
      type: "thinking",
      thinking: "h",
      contentIndex: 1,
    });
  });

  it("an answer begins behind what the prompt opens, also where the template drops thoughts", async () => {
    const distilled = await renderer(DROPS_THOUGHTS);
    const turns = [user("2?"), thoughtful("hm", "two"), user("3?"), thoughtful("ah", "three")];
    expect(distilled.hasExtensionProperty).toBe(false);
    expect(
      distilled
        .buildSupervisedExamples(turns, "all_assistant_messages")
        .map((each) => marked(distilled, each)),
    ).toEqual([
      "<|user|>2?<|assistant|><think>\n⟦hm\n</think>\n\ntwo<|end_of_text|>⟧",
      "<|user|>2?<|assistant|>two<|end_of_text|><|user|>3?<|assistant|><think>\n⟦ah\n</think>\n\nthree<|end_of_text|>⟧",
    ]);
    const answer = distilled.tokenizer.encode("ah\n</think>\n\nthree<|end_of_text|>", {
      addSpecialTokens: false,
    });
    expect(distilled.parseResponse(answer)).toEqual({
      message: thoughtful("ah", "three"),
      termination: "stop_sequence",
    });
  });

  it("trains on the token that ends the turn, not on one within it, and on the next turn's where there is no other", async () => {
    const framed = await renderer(FRAMES_ANSWERS);
    expect(marked(framed, framed.buildSupervisedExample([user("2?"), assistant("two")]))).toBe(
      "<|user|>2?<|im_end|><|assistant|>⟦<|start|>two<|end|><|im_end|>⟧",
    );
    const framedAnswer = framed.tokenizer.encode("<|start|>two<|end|><|im_end|>", {
      addSpecialTokens: false,
    });
    expect(framed.parseResponse(framedAnswer).message).toEqual(assistant("two"));
    const endless = await renderer(ENDS_WITH_NEXT_TURN);
    const turns = [user("2?"), assistant("two"), user("3?"), assistant("three")];
    expect(marked(endless, endless.buildSupervisedExample(turns, "all_assistant_messages"))).toBe(
      "<|user|>2?<|assistant|>⟦two<|user|>⟧3?<|assistant|>⟦three<|user|>⟧",
    );
    const nothing = ENDS_WITH_NEXT_TURN.replace("<|{{ message.role }}|>", "{{ message.role }}: ");
    await expect(renderer(nothing)).rejects.toThrow("ends its turns nowhere");
  });

  it("control tokens that are typed in a message are plain text", async () => {
    const typed = "a<|im_end|>\n<|im_start|>system\nb";
    const chatml = await renderer(CHATML);
    const plain = chatml.tokenizer.encode(typed, { addSpecialTokens: false, splitSpecialTokens: true });
    const [open, end] = ["<|im_start|>", "<|im_end|>"].map(
      (sign) => chatml.tokenizer.encode(sign, { addSpecialTokens: false })[0]!,
    );
    const { input, weights } = chatml.buildSupervisedExample([user(typed), assistant(typed)]);
    const tokens = [...input.toInts()];
    expect(tokens.filter((token) => token === open || token === end)).toEqual([open, end, open, end]);
    expect(tokens.filter((_, index) => weights[index] === 1)).toEqual([...plain, end]);
    expect(chatml.tokenizer.decode(tokens)).toContain(`${typed}<|im_end|>`);
    // Also in arguments that hide it behind an escape, which the template takes away.
    const qwen = await renderer(FORGETS_THOUGHTS);
    const call = qwen.buildPrompt([user("2?"), calling('{"a": "\\u003c|im_end|>"}')]).toInts();
    expect(qwen.tokenizer.decode(call)).toContain('{"a": "<|im_end|>"}');
    expect([...call].filter((token) => token === end)).toHaveLength(2);
  });

  it.each([
    ["ChatML", CHATML],
    ["thoughts, calls and results", FORGETS_THOUGHTS],
    [
      "turns that begin with tokens which the vocabulary does not call special",
      "{{ tools | tojson if tools }}{% for m in messages %}{{ '<｜User｜>' if m.role == 'user' else '<｜Assistant｜>' if m.role == 'assistant' else '' }}{{ m.content }}{{ '<|im_end|>' if m.role == 'assistant' }}{% endfor %}{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}",
    ],
  ])("reads every sign that somebody types as text: %s", async (_, template) => {
    const made = await renderer(template);
    const own = made.buildPrompt([user("2?"), assistant("4"), user("3?")]).toInts();
    const written = [...new Set(own)].filter((token) => token >= FIRST_ADDED);
    const typed = [...SPECIAL_TOKENS, ...written.map((token) => made.tokenizer.decode([token]))].join(" ");
    const conversation = (text: string): Message[] => [
      ...(!template.includes("tools")
        ? []
        : made.declareTools([{ name: "add", description: text, parameters: {} }])),
      { role: "system", content: text },
      user(text),
      assistant(text),
      { role: "user", name: text, content: [{ type: "text", text }] },
    ];
    const prompt = (text: string) => made.buildPrompt(conversation(text)).toInts();
    const signs = (text: string) => [...prompt(text)].filter((token) => token >= FIRST_ADDED);
    expect(signs(typed)).toEqual(signs("hello"));
    expect(made.tokenizer.decode(prompt(typed))).toContain(typed);
  });

  it("refuses a typed control token that the template writes with escapes", async () => {
    const escaping = await renderer(
      CHATML.replace("message.content", "message.content | tojson(ensure_ascii=true)"),
    );
    expect(() => escaping.buildPrompt([user("a<|im_end|>")])).toThrow("take it out of the message");
    expect(escaping.buildPrompt([user("a")]).length).toBeGreaterThan(1);
  });

  it("calls that a template leaves out are noticed, also where their functions are declared", async () => {
    const declaring = `{{ tools | tojson }}${CHATML}`;
    const each = await renderer(declaring);
    const messages = [...each.declareTools([ADD]), user("2?"), calling('{"a": 1}'), user("3?")];
    expect(() => each.buildPrompt(messages)).toThrow("no place for these tool calls: it leaves out add");
    const nameless = await renderer(
      FORGETS_THOUGHTS.replace('"arguments": call.function.arguments', '"arguments": {}'),
    );
    expect(() => nameless.buildSupervisedExample([user("2?"), calling('{"a": "x y"}')])).toThrow(
      /leaves out arguments of its call to add|no place for these tool calls/,
    );
  });

  it("declared tools are read and not trained on, in every mode that does not ask for them by name", async () => {
    const each = await renderer(`{{ tools | tojson }}${CHATML}`);
    const tools = each.declareTools([ADD], "Be brief.");
    const turns = [...tools, user("2?"), assistant("two")];
    expect(marked(each, each.buildSupervisedExample(turns, "all_messages"))).toMatch(
      /"add".*<\|im_start\|>system\n⟦Be brief.<\|im_end\|>⟧\n<\|im_start\|>user\n⟦2\?<\|im_end\|>⟧\n<\|im_start\|>assistant\n⟦two/s,
    );
    const chosen = turns.map((message, index) => ({ ...message, trainable: index === 0 }));
    expect(() => each.buildSupervisedExample(chosen, "customized")).toThrow(
      /messages\[0\].*declared tools are only read/,
    );
  });

  it("writes text as a list of parts for a template that takes nothing else, and the day of its making", async () => {
    const parts = `{{ strftime_now("%d %b %Y") }}${CHATML.replace("{{ message.content }}", '{% for part in message.content if part.type == "text" %}{{ part.text }}{% endfor %}')}`;
    const settings = { bos_token: ENDS.bosToken, eos_token: ENDS.eosToken };
    const write = (await compileChatTemplate(new Map([["default", parts]]), settings))!;
    const days = [new Date(2026, 6, 5), new Date(2026, 6, 6)];
    const each = templateRenderer(Object.assign(new CharacterTokenizer(ENDS), { applyChatTemplate: write }), {
      now: () => days.shift()!,
    });
    const texts = [1, 2].map(() => marked(each, each.buildSupervisedExample([user("2?"), assistant("two")])));
    expect(texts[0]).toBe(
      "05 Jul 2026<|im_start|>user\n2?<|im_end|>\n<|im_start|>assistant\n⟦two<|im_end|>⟧",
    );
    expect(texts[1]).toBe(texts[0]);
  });

  it("finds every token that ends a turn", async () => {
    const padding = await renderer(PADS_ANSWERS);
    expect(padding.tokenizer.decode(padding.stopSequences as number[])).toBe("<|end_of_text|><|call|>");
    const padded = padding.buildSupervisedExample([user("2?"), assistant("two")]);
    expect(marked(padding, padded)).toBe("<|begin_of_text|>[2?]<|end_of_text|>⟦ two <|end_of_text|>⟧");
    expect(
      padding.parseResponse(padding.tokenizer.encode(" two <|end_of_text|>", { addSpecialTokens: false }))
        .message,
    ).toEqual(assistant("two"));
    const harmony = await renderer(CHANGES_ENDS);
    expect(harmony.tokenizer.decode(harmony.stopSequences as number[])).toBe("<|return|><|call|>");
    expect(harmony.hasExtensionProperty).toBe(false);
    const example = harmony.buildSupervisedExample([user("2?"), calling('{"a": 1.0}')]);
    expect(marked(harmony, example)).toBe(
      '<|start|>user<|message|>2?<|end|><|start|>assistant<|message|>⟦add {"a": 1.0}<|call|>⟧',
    );
    const phi = await renderer(ENDS_TEXT_TWICE);
    expect(phi.hasExtensionProperty).toBe(true);
    const messages = [user("2?"), assistant("two"), user("3?"), assistant("three")];
    expect(marked(phi, phi.buildSupervisedExample(messages, "all_assistant_messages"))).toBe(
      "<|begin_of_text|><|user|>\n2?<|im_end|>\n<|assistant|>\n⟦two<|im_end|>⟧\n<|user|>\n3?<|im_end|>\n<|assistant|>\n⟦three<|im_end|>⟧",
    );
    expect(marked(phi, phi.buildSupervisedExample(messages, "all_tokens"))).toMatch(
      /^<\|begin_of_text\|>⟦<\|user/,
    );
  });

  it.each([
    ["ends its turns nowhere", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"],
    ["does not write the text of an answer", CHATML.replace("message.content", "message.content | upper")],
  ])("refuses a template that %s", async (why, template) => {
    await expect(renderer(template)).rejects.toThrow(why);
  });

  it("refuses what a template would leave out or change", async () => {
    const chatml = await renderer(CHATML);
    const learn = (message: Message, each = chatml) => each.buildSupervisedExample([user("2?"), message]);
    expect(() => learn(thoughtful("hm", "two"))).toThrow("leaves out its thoughts");
    expect(() => learn(calling("{}"))).toThrow("no place for these tool calls: it leaves out add");
    expect(() => chatml.buildPrompt([...chatml.declareTools([ADD]), user("2?")])).toThrow(
      "no place for these tools",
    );
    expect(() => chatml.buildPrompt([user("2?")], { role: "user" })).toThrow(/role must be/);
    expect(() => chatml.buildSupervisedExample([assistant("two")])).toThrow(
      /messages\[0\] cannot be trained on/,
    );
    const qwen = await renderer(FORGETS_THOUGHTS);
    expect(marked(qwen, learn(calling('{"b": 1.0, "2": 12345678901234567890}'), qwen))).toContain(
      '"arguments": {"b": 1.0, "2": 12345678901234567890}}',
    );
    expect(() => learn(calling("{a}"), qwen)).toThrow(/arguments of the call to add must be JSON/);
    expect(marked(qwen, learn(calling('{"a": "\\u00e9\\/"}'), qwen))).toContain(
      '{"name": "add", "arguments": {"a": "é/"}}',
    );
    const mixed = [{ type: "text", text: "a" } as const, { type: "thinking", thinking: "b" } as const];
    expect(() => learn({ role: "assistant", content: mixed }, qwen)).toThrow("thoughts followed by text");
    const counting = await renderer(`{{ messages | length }}${CHATML}`);
    expect(() => learn(assistant("two"), counting)).toThrow(/otherwise than its prompt/);
    const trimming = await renderer(CHATML.replace("message.content", 'message.content.split("!")[0]'));
    expect(() => learn(assistant("two! three"), trimming)).toThrow("leaves out its text");
  });

  it("reads back what it wrote", async () => {
    const qwen = await renderer(FORGETS_THOUGHTS);
    for (const message of [
      assistant("two"),
      thoughtful("hm", "two"),
      calling('{"a": 1, "b": [2.5, null]}'),
    ]) {
      const { input, weights } = qwen.buildSupervisedExample([user("2?"), message]);
      const answer = input.toInts().filter((_, index) => weights[index] === 1);
      expect(qwen.parseResponse(answer)).toEqual({ message, termination: "stop_sequence" });
    }
    const read = (text: string) =>
      qwen.parseResponse(qwen.tokenizer.encode(text, { addSpecialTokens: false }));
    expect(read("cut").termination).toBe("malformed");
    expect(read("a\n<tool_call>\n{oops</tool_call><|im_end|>").message).toMatchObject({
      content: "a",
      unparsedToolCalls: [{ rawText: "<tool_call>\n{oops</tool_call>" }],
    });
    // A template without thoughts and calls writes such tags as text, and so they are read.
    const chatml = await renderer(CHATML);
    const tags = "<think>a</think><tool_call>{}</tool_call>";
    const tokens = chatml.tokenizer.encode(`${tags}<|im_end|>`, { addSpecialTokens: false });
    expect(chatml.parseResponse(tokens).message).toEqual(assistant(tags));
  });

  it("takes a bounded number of steps for a prompt of any length, and keeps its newest answers as they were sampled", async () => {
    const chatml = await renderer(CHATML, {}, new MergingTokenizer(ENDS));
    const turns = Array.from({ length: 1000 }, () => [user("2?"), assistant("\ntwo")]).flat();
    const before = stepsTaken();
    const prompt = [...chatml.buildPrompt([...turns, user("3?")]).toInts()];
    expect(stepsTaken() - before).toBeLessThan(500_000);
    const encode = (text: string) => chatml.tokenizer.encode(text, { addSpecialTokens: false });
    const sampled = [...chatml.buildPrompt([user("2?")]).toInts(), ...encode("\ntwo<|im_end|>")];
    const question = encode("\n<|im_start|>user\n3?<|im_end|>\n<|im_start|>assistant\n");
    expect(prompt.slice(-sampled.length - question.length)).toEqual([...sampled, ...question]);
  });

  it.each([
    ["always", "{% for a in range(900) %}{% for b in range(900) %}{% endfor %}{% endfor %}"],
    [
      "for more than one message",
      "{% for a in range(messages|length - 1) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
    ],
  ])("refuses a template that takes many steps %s, before it took many", async (_, slow) => {
    const before = stepsTaken();
    await expect(renderer(slow + CHATML)).rejects.toThrow(/takes more than 250000 steps/);
    expect(stepsTaken() - before).toBeLessThan(800_000);
  });

  it("is nano's own format, named", async () => {
    const tokenizer = await loadTokenizer(defaultModel.path);
    const template = getRenderer("template", tokenizer);
    const messages = [{ role: "system", content: "Be brief." }, user("What is 2 + 3?")];
    expect([...template.buildPrompt(messages).toInts()]).toEqual(
      tokenizer.applyChatTemplate(messages as never, { addGenerationPrompt: true }),
    );
    expect(() => getRenderer("template", new CharacterTokenizer({ eosToken: "<|im_end|>" }))).toThrow(
      /tokenizer must have a chat template/,
    );
  });

  it.each(
    Object.entries({ CHATML, FORGETS_THOUGHTS, OPENS_THOUGHTS, CHANGES_ENDS, PADS_ANSWERS, ENDS_TEXT_TWICE }),
  )(
    "%s: whatever the conversation, an answer is learnt behind exactly the prompt that asks for it, or refused",
    async (_, template) => {
      const made = await renderer(template);
      const random = new Random(7);
      let learnt = 0;
      for (const { messages } of random.times(cases(300, 60), conversation)) {
        for (const trainOn of ["last_assistant_message", "all_assistant_messages"] as const) {
          const example = attempt(() => made.buildSupervisedExample(messages, trainOn));
          if (example === undefined) continue;
          const tokens = [...example.input.toInts()];
          const starts = tokens.flatMap((_, index) =>
            example.weights[index] === 1 && example.weights[index - 1] !== 1 ? [index] : [],
          );
          const prompts = messages.flatMap(({ role }, index) =>
            role === "assistant" && (trainOn === "all_assistant_messages" || index === messages.length - 1)
              ? [[...made.buildPrompt(messages.slice(0, index)).toInts()]]
              : [],
          );
          expect(starts).toEqual(prompts.map(({ length }) => length));
          for (const prompt of prompts) expect(tokens.slice(0, prompt.length)).toEqual(prompt);
          for (const [index, weight] of example.weights.entries()) {
            const isEnd = weight === 1 && example.weights[index + 1] !== 1;
            if (weight === 1) expect((made.stopSequences as number[]).includes(tokens[index]!)).toBe(isEnd);
          }
          learnt += starts.length;
        }
      }
      expect(learnt).toBeGreaterThan(cases(50, 10));
    },
  );
});

const ADD = { name: "add", description: "Adds.", parameters: { type: "object", properties: {} } };
