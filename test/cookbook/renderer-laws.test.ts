import { describe, expect, it } from "vitest";
import { TinkerError } from "../../src/errors.js";
import {
  getRenderer,
  type Message,
  type Renderer,
  rendererNames,
  thinkingOf,
} from "../../src/renderers/index.js";
import { ordinaryConversation } from "../conformance/conversations.js";
import { Random } from "../conformance/random.js";
import { characterVocabulary } from "../conformance/vocabularies.js";

const CONVERSATIONS = 300;
/** Asks for a tokenizer with a template, and has a test of its own. */
const names = rendererNames().filter((name) => name !== "template");

/** Says that its prompts grow, since its models do not think; thoughts that they are given all the same are dropped. */
const FORGETS_THOUGHTS = new Set(["qwen3_instruct"]);
const rendererOf = (name: string): Renderer => getRenderer(name, characterVocabulary(name).tokenizer);

/** What is undefined was refused; anything else than a refusal is a defect. */
function attempt<T>(action: () => T): T | undefined {
  try {
    return action();
  } catch (error) {
    if (!(error instanceof TinkerError)) throw error;
    return undefined;
  }
}

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
    expect(examples.length).toBeGreaterThan(50);
    for (const { messages, tokens, weights, start } of examples) {
      const before = prompt(messages.slice(0, -1));
      expect([start, tokens.slice(0, start)], JSON.stringify(messages)).toEqual([before.length, before]);
      expect(weights.slice(start).every((weight) => weight === 1)).toBe(true);
    }
  });

  it("has the extension property, or says that it has not", () => {
    if (!renderer.hasExtensionProperty) return;
    for (const { messages, tokens } of examples) {
      if (FORGETS_THOUGHTS.has(name) && thinkingOf(messages.at(-1)!) !== "") continue;
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
