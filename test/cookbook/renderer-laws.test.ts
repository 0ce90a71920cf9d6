import { describe, expect, it } from "vitest";
import { getRenderer, type Message, type Renderer, rendererNames } from "../../src/renderers/index.js";
import { answerText, damaged, ordinaryConversation } from "../conformance/conversations.js";
import { Random } from "../conformance/random.js";
import { characterVocabulary } from "../conformance/vocabularies.js";
import { attempt } from "../support/attempt.js";
import { FIRST_ADDED, PLAIN_TOKENS, SPECIAL_TOKENS } from "../support/character-tokenizer.js";
import { cases } from "../support/long.js";

const CONVERSATIONS = cases(300, 75);
/** Asks for a tokenizer with a template, and has a test of its own. */
const names = rendererNames().filter((name) => name !== "template");

const SIGNS = [...SPECIAL_TOKENS, ...PLAIN_TOKENS];
/** Thoughts that are written out in an answer's text are thoughts to the templates of several families. */
const SIGNS_OF_ANSWERS = SIGNS.filter((sign) => !sign.includes("think>"));
/** 8,000 over all names in the long run. */
const DAMAGED = Math.ceil(cases(8000, 1000) / names.length);
/** Their templates write an answer that called a tool otherwise than its prompt began it: without the block of thoughts. */
const REWRITTEN = ["qwen3_disable_thinking", "deepseekv3_thinking"];
const rendererOf = (name: string): Renderer => getRenderer(name, characterVocabulary(name).tokenizer);

/** Conversations with an answer at their end. */
function answered(): Message[][] {
  return new Random(11).times(CONVERSATIONS, ordinaryConversation).flatMap(({ messages }) => {
    const last = messages.findLastIndex(({ role }) => role === "assistant");
    return last > 0 ? [messages.slice(0, last + 1)] : [];
  });
}

const startsWith = (tokens: readonly number[], beginning: readonly number[]): boolean =>
  beginning.every((token, index) => tokens[index] === token);

/** Laws that no other program is needed for. */
describe.each(names)("%s", (name) => {
  const renderer = rendererOf(name);
  const prompt = (messages: readonly Message[]) => [...renderer.buildPrompt(messages).toInts()];
  const hasTools = attempt(() => renderer.declareTools([])) !== undefined;
  const examples = answered().flatMap((messages) => {
    if (!hasTools && messages.some(({ role, toolCalls }) => role === "tool" || toolCalls)) return [];
    const example = attempt(() => renderer.buildSupervisedExample(messages, "last_assistant_message"));
    if (example === undefined) return [];
    const tokens = [...example.input.toInts()];
    const start = example.weights.indexOf(1);
    return [{ messages, tokens, weights: [...example.weights], start, answer: tokens.slice(start) }];
  });

  it("learns an answer behind exactly the prompt that asks for it", () => {
    expect(examples.length).toBeGreaterThan(cases(50, 12));
    for (const { messages, tokens, weights, start } of examples) {
      const before = prompt(messages.slice(0, -1));
      expect([start, tokens.slice(0, start)], JSON.stringify(messages)).toEqual([before.length, before]);
      expect(weights.slice(start).every((weight) => weight === 1)).toBe(true);
    }
  });

  it("has the extension property, or says that it has not", () => {
    if (!renderer.hasExtensionProperty) return;
    for (const { messages, tokens } of examples) {
      const calls = messages.at(-1)!.toolCalls ?? [];
      const next = calls.map(({ id, name }) => ({
        role: "tool",
        content: "7",
        name,
        ...(id && { toolCallId: id }),
      }));
      const user = { role: "user", content: "And then?" };
      const later = attempt(() => prompt([...messages, ...(next.length > 0 ? next : [user])]));
      if (later !== undefined) expect(startsWith(later, tokens), JSON.stringify(messages)).toBe(true);
    }
  });

  it("reads an answer to a message that it writes as the same answer", () => {
    let read = 0;
    for (const { messages, answer } of examples) {
      const parsed = attempt(() => renderer.parseResponse(answer));
      if (parsed === undefined || parsed.termination === "malformed") continue;
      if (parsed.message.unparsedToolCalls !== undefined) continue;
      const again = attempt(() =>
        renderer.buildSupervisedExample([...messages.slice(0, -1), parsed.message], "last_assistant_message"),
      );
      if (again === undefined) continue;
      read++;
      const tokens = [...again.input.toInts()];
      expect(renderer.tokenizer.decode(tokens.slice(again.weights.indexOf(1)))).toBe(
        renderer.tokenizer.decode(answer),
      );
    }
    expect(read).toBeGreaterThan(30);
  });

  it("reads every typed sign as text", () => {
    const conversation = (typed: string, answered: string): Message[] => [
      ...(hasTools
        ? renderer.declareTools([{ name: typed, description: typed, parameters: { type: typed } }], typed)
        : [{ role: "system", content: typed }]),
      { role: "user", content: typed },
      ...(hasTools
        ? [
            {
              role: "assistant",
              content: answered,
              toolCalls: [
                { id: `functions.${typed}:0`, name: typed, arguments: JSON.stringify({ [typed]: typed }) },
              ],
            },
            { role: "tool", content: typed, toolCallId: `functions.${typed}:0`, name: typed },
          ]
        : []),
      { role: "assistant", content: answered },
      { role: "user", content: [{ type: "text", text: typed }] },
    ];
    const signsOf = (tokens: readonly number[]) =>
      tokens.filter((token) => token >= FIRST_ADDED).map((token) => renderer.tokenizer.decode([token]));
    const typed = prompt(conversation(SIGNS.join(" "), SIGNS_OF_ANSWERS.join(" ")));
    expect(signsOf(typed)).toEqual(signsOf(prompt(conversation("hello", "hello"))));
    expect(renderer.tokenizer.decode(typed)).toContain(SIGNS.join(" "));
  });

  it("reads cut, broken and doubled answers without an error, and calls none of them ended", () => {
    const random = new Random(17);
    const stops = renderer.stopSequences.map((stop) =>
      typeof stop === "number" ? [stop] : renderer.tokenizer.encode(stop, { addSpecialTokens: false }),
    );
    const endsWithStop = (tokens: readonly number[]) =>
      stops.some((stop) => stop.every((token, index) => tokens.at(index - stop.length) === token));
    for (let count = 0; count < DAMAGED; count++) {
      const whole = random.chance(0.7)
        ? random.pick(examples).answer
        : renderer.tokenizer.encode(answerText(random), { addSpecialTokens: false });
      const cut = whole.slice(0, random.integer(0, whole.length));
      const text = JSON.stringify(renderer.tokenizer.decode(cut));
      const { termination } = renderer.parseResponse(cut);
      if (!endsWithStop(cut) && !stops.some(([stop]) => cut.includes(stop!)))
        expect(termination, text).toBe("malformed");
      const stop = random.pick(stops);
      expect(renderer.parseResponse([...whole, ...stop, ...stop]).termination, text).toBe("malformed");
      const stream = renderer.streamParser();
      const broken = damaged(random, whole, stops.flat());
      for (const token of broken) stream.push(token);
      expect(stream.end().at(-1)?.type).toBe("message");
      renderer.parseResponse(broken);
    }
  });

  it("goes on from exactly what was sampled where a tool answers, if the format has tools and does not rewrite calls", () => {
    if (!hasTools) return expect(() => renderer.declareTools([])).toThrow(/has no tools/);
    const declared = renderer.declareTools(
      [{ name: "wetter", description: "Für überall, 天気.", parameters: { type: "object" } }],
      "Sei kurz.",
    );
    const thinks = renderer.thinking === "enabled" || renderer.thinking === "preserved";
    const messages: Message[] = [...declared, { role: "user", content: "Wie ist es in Zürich?" }];
    const content = [
      ...(thinks ? [{ type: "thinking" as const, thinking: "Ich frage nach." }] : []),
      { type: "text" as const, text: "Moment, 天気…" },
    ];
    const toolCalls = [{ id: "functions.wetter:0", name: "wetter", arguments: '{"ort": "Zürich 天気"}' }];
    const { input, weights } = renderer.buildSupervisedExample(
      [...messages, { role: "assistant", content, toolCalls }],
      "last_assistant_message",
    );
    const sampled = [...input.toInts()].slice(weights.indexOf(1));
    const { message, termination } = renderer.parseResponse(sampled);
    expect(termination).toBe("stop_sequence");
    const result = {
      role: "tool",
      content: "Regen",
      toolCallId: message.toolCalls![0]!.id ?? "",
      name: "wetter",
    };
    const next = prompt([...messages, message, result]);
    expect(startsWith(next, [...prompt(messages), ...sampled]), renderer.tokenizer.decode(next)).toBe(
      !REWRITTEN.includes(name),
    );
  });

  it("streams the message that it reads", () => {
    for (const { answer, messages } of examples) {
      const parsed = attempt(() => renderer.parseResponse(answer));
      if (parsed === undefined) continue;
      const stream = renderer.streamParser(messages.slice(0, -1));
      const deltas = [...answer.flatMap((token) => stream.push(token)), ...stream.end()];
      const last = deltas.at(-1)!;
      expect(last.type === "message" && last.message).toEqual(parsed.message);
    }
  });
});
