import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import {
  beginPrompt,
  type ConversationPrompt,
  continuePrompt,
  getRenderer,
  type Message,
  type Renderer,
  type RendererTokenizer,
  rendererNames,
  thinkingOf,
} from "../../src/renderers/index.js";
import { loadTokenizer } from "../../src/tokenizers/index.js";
import { ordinaryConversation } from "../conformance/conversations.js";
import { Random } from "../conformance/random.js";
import { characterVocabulary } from "../conformance/vocabularies.js";
import { attempt } from "../support/attempt.js";

const CONVERSATIONS = 40;
const FIRST_PAIR = 0x200000;
const SHIFT = 0x80;

/** Writes two letters as one token; a sampler may write them as two. */
class PairTokenizer implements RendererTokenizer {
  readonly #characters: RendererTokenizer;

  constructor(characters: RendererTokenizer) {
    this.#characters = characters;
  }

  get bosToken() {
    return this.#characters.bosToken;
  }

  get eosToken() {
    return this.#characters.eosToken;
  }

  encode(...given: Parameters<RendererTokenizer["encode"]>): number[] {
    const tokens: number[] = [];
    for (const token of this.#characters.encode(...given)) {
      const last = tokens.at(-1);
      if (last !== undefined && isLetter(last) && isLetter(token)) {
        tokens.splice(-1, 1, FIRST_PAIR + last * SHIFT + token);
      } else tokens.push(token);
    }
    return tokens;
  }

  decode(tokens: ArrayLike<number>): string {
    return this.#characters.decode(this.apart(tokens));
  }

  /** The same text in letters. */
  apart(tokens: ArrayLike<number>): number[] {
    return Array.from(tokens).flatMap((token) => {
      if (token < FIRST_PAIR) return [token];
      const pair = token - FIRST_PAIR;
      return [Math.floor(pair / SHIFT), pair % SHIFT];
    });
  }
}

const isLetter = (token: number) => (token >= 0x41 && token <= 0x5a) || (token >= 0x61 && token <= 0x7a);

/** A turn that a model was asked for, and the prompt after it. */
interface Sampled {
  readonly last: ConversationPrompt;
  readonly tokens: readonly number[];
  readonly next: ConversationPrompt;
  /** Whether all answers so far are written as the format itself would write them. */
  readonly isPlain: boolean;
  readonly answer: Message;
}

/** Plays a conversation: each answer is sampled in tokens of the sampler's own, read, and gone on from. */
function play(
  renderer: Renderer,
  script: readonly Message[],
  spell: (tokens: readonly number[]) => { readonly tokens: readonly number[]; readonly isPlain: boolean },
): Sampled[] {
  const found: Sampled[] = [];
  let isPlain = true;
  let conversation = script.slice(
    0,
    script.findIndex(({ role }) => role === "assistant"),
  );
  let last = attempt(() => beginPrompt(renderer, conversation));
  for (;;) {
    const place = conversation.length;
    const scripted = script[place];
    if (last === undefined || scripted?.role !== "assistant") return found;
    const written = attempt(() => renderer.buildSupervisedExample([...conversation, scripted]));
    if (written === undefined) return found;
    const before = last.rendered.length;
    const spelt = spell(written.input.toInts().slice(before));
    const parsed = attempt(() => renderer.parseResponse(spelt.tokens));
    if (parsed === undefined || parsed.termination === "malformed") return found;
    const answer = parsed.message;
    const end = script.findIndex(({ role }, index) => index > place && role === "assistant");
    const heard = script.slice(place + 1, end === -1 ? undefined : end);
    // Results for calls that were not read would follow no call.
    const areAnswered = heard.every(({ role }) => role !== "tool") || answer.toolCalls !== undefined;
    if (heard.length === 0 || !areAnswered) return found;
    conversation = [...conversation, answer, ...heard];
    const current = last;
    const next = attempt(() => continuePrompt(renderer, current, spelt.tokens, conversation));
    if (next === undefined) return found;
    isPlain &&= spelt.isPlain;
    found.push({ last: current, tokens: spelt.tokens, next, isPlain, answer });
    last = next;
  }
}

/** Conversations by chance, and one in which a tool is called again and again. */
function conversations(renderer: Renderer): (readonly Message[])[] {
  const declared = attempt(() => renderer.declareTools(TOOLS));
  if (declared !== undefined) return [...SCRIPTS, [...declared, ...WITH_CALLS]];
  return SCRIPTS.filter((messages) => messages.every(({ role, toolCalls }) => role !== "tool" && !toolCalls));
}

const SCRIPTS = new Random(5).times(CONVERSATIONS, ordinaryConversation).map(({ messages }) => messages);
const TOOLS = [
  {
    name: "add",
    description: "Adds.",
    parameters: { type: "object", properties: { a: { type: "integer" } } },
  },
];
const WITH_CALLS: readonly Message[] = [
  { role: "user", content: "What is 1 + 1, and then?" },
  ...["one", "two", "three"].flatMap((thinking, index): Message[] => {
    const id = `functions.add:${index}`;
    const content = [{ type: "thinking", thinking } as const, { type: "text", text: "So be it." } as const];
    return [
      { role: "assistant", content, toolCalls: [{ id, name: "add", arguments: '{"a": 1}' }] },
      { role: "tool", name: "add", toolCallId: id, content: String(index) },
    ];
  }),
];

const startsWith = (tokens: readonly number[], beginning: readonly number[]): boolean =>
  beginning.every((token, index) => tokens[index] === token);

/** What holds whatever the renderer claims. */
function check(renderer: Renderer, { last, tokens, next, isPlain }: Sampled): void {
  const [prompt, rendered] = [next.prompt.toInts(), next.rendered.toInts()];
  const conversation = JSON.stringify(next.messages);
  if (next.isExtension)
    expect(startsWith(prompt, [...last.prompt.toInts(), ...tokens]), conversation).toBe(true);
  else expect(next.prompt).toBe(next.rendered);
  if (!isPlain) return;
  // The same conversation, and sampled tokens wherever its text goes on from theirs.
  const text = renderer.tokenizer.decode(rendered);
  expect(renderer.tokenizer.decode(prompt)).toBe(text);
  const before = renderer.tokenizer.decode([...last.rendered.toInts(), ...tokens]);
  if (text.startsWith(before)) expect(next.isExtension, conversation).toBe(true);
}

/** Drops thoughts of the past, which its models do not have. */
const forgets = (name: string, { answer }: Sampled) => name === "qwen3_instruct" && thinkingOf(answer) !== "";

/** Write an answer of the past without the block of thoughts that each answer begins with. */
const FORGETS_AT_ONCE = new Set(["qwen3_disable_thinking"]);

describe.each(rendererNames().filter((name) => name !== "template"))("%s", (name) => {
  const tokenizer = new PairTokenizer(characterVocabulary(name).tokenizer);
  const renderer = getRenderer(name, tokenizer);

  it("goes on from sampled tokens where the text is the same", () => {
    const sampled = conversations(renderer).flatMap((script) =>
      play(renderer, script, (tokens) => ({ tokens: tokenizer.apart(tokens), isPlain: true })),
    );
    expect(sampled.length).toBeGreaterThan(12);
    for (const each of sampled) {
      check(renderer, each);
      if (renderer.hasExtensionProperty && !forgets(name, each)) {
        expect(each.next.isExtension, JSON.stringify(each.next.messages)).toBe(true);
      }
    }
    expect(sampled.some(({ next }) => next.isExtension)).toBe(!FORGETS_AT_ONCE.has(name));
  });

  it("goes on from answers that the format would have spelt otherwise", () => {
    const random = new Random(9);
    const sampled = conversations(renderer).flatMap((script) =>
      play(renderer, script, (tokens) => respelt(renderer, random, tokens)),
    );
    expect(sampled.filter(({ isPlain }) => !isPlain).length).toBeGreaterThan(2);
    for (const each of sampled) {
      check(renderer, each);
      if (renderer.hasExtensionProperty && !forgets(name, each)) {
        expect(each.next.isExtension, JSON.stringify(each.next.messages)).toBe(true);
      }
    }
  });
});

/** With other spaces in calls, and before the end. */
function respelt(renderer: Renderer, random: Random, written: readonly number[]) {
  const { tokenizer, stopSequences } = renderer;
  const whole = tokenizer.decode(written);
  const stops = stopSequences.map((stop: number | string) =>
    typeof stop === "number" ? tokenizer.decode([stop]) : stop,
  );
  const stop = stops.find((each) => whole.endsWith(each))!;
  const text = whole.slice(0, -stop.length);
  const changed = random.chance(0.5) ? text.replaceAll('": ', '":') : text;
  const spaced = random.chance(0.3) && !changed.endsWith(">") ? `${changed} ` : changed;
  const tokens = tokenizer.encode(spaced + stop, { addSpecialTokens: false });
  return { tokens, isPlain: spaced === text };
}

describe("with nano", async () => {
  const tokenizer = await loadTokenizer(fileURLToPath(new URL("../../models/nano", import.meta.url)));

  it.each(["qwen3_instruct", "role_colon", "template"])(
    "%s goes on from tokens of single letters",
    (name) => {
      const renderer = getRenderer(name, tokenizer);
      const sampled = conversations(renderer).flatMap((script) =>
        play(renderer, script, (tokens) => ({
          tokens: tokens.flatMap((token) => {
            const text = tokenizer.decode([token]);
            return /^[ -~]+$/.test(text) && !text.startsWith("<|")
              ? [...text].flatMap((letter) => tokenizer.encode(letter, { addSpecialTokens: false }))
              : [token];
          }),
          isPlain: true,
        })),
      );
      expect(sampled.length).toBeGreaterThan(12);
      expect(sampled.filter(({ next }) => next.isExtension).length).toBeGreaterThan(sampled.length / 3);
      for (const each of sampled) check(renderer, each);
    },
  );
});
