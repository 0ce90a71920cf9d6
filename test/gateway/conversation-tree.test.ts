import { describe, expect, it } from "vitest";
import type { FinishedAnswer } from "../../src/chat-api/index.js";
import { trajectoryData } from "../../src/cookbook/reinforcement/assemble.js";
import { ConversationTree, type OpenedTurn } from "../../src/gateway/conversation-tree.js";
import type { SessionThread } from "../../src/gateway/index.js";
import { addPiece } from "../../src/renderers/answer-events.js";
import type { AnswerPiece } from "../../src/renderers/answer-reader.js";
import {
  getRenderer,
  type Message,
  type Renderer,
  rendererNames,
  textOf,
} from "../../src/renderers/index.js";
import { Random } from "../conformance/random.js";
import { characterVocabulary } from "../conformance/vocabularies.js";
import { attempt } from "../support/attempt.js";
import { cases, someOf } from "../support/long.js";

const TOOLS = ["add", "look", "write"].map((name) => ({
  name,
  description: `Does ${name}.`,
  parameters: { type: "object", properties: { a: { type: "integer" }, b: { type: "string" } } },
}));
const WORDS = ["yes", "no", "so be it", "42", "let us see", "done", "x = 1;", "“quoted”"];

/** A session, and a log of what its model sampled: each token by a logprob that no other token has. */
class Play {
  readonly tree = new ConversationTree();
  readonly log = new Map<number, { readonly before: readonly number[]; readonly token: number }>();
  answers = 0;
  readonly #renderer: Renderer;
  readonly #random: Random;

  constructor(renderer: Renderer, random: Random) {
    this.#renderer = renderer;
    this.#random = random;
  }

  open(messages: readonly Message[], tools = TOOLS): OpenedTurn | undefined {
    return attempt(() => this.tree.open(this.#renderer, { messages, tools, ids: new Map() }));
  }

  /** Samples an answer and gives it back as the agent gets it. */
  answer(opened: OpenedTurn, isCut = false): Message {
    const { prepared } = opened;
    const whole = this.#sampled(opened);
    const tokens = isCut ? whole.slice(0, -2) : whole;
    const prompt = prepared.prompt.toInts();
    const logprobs = tokens.map((token, at) => {
      const logprob = -1 - this.log.size;
      this.log.set(logprob, { before: [...prompt, ...tokens.slice(0, at)], token });
      return logprob;
    });
    const reader = prepared.newReader();
    const pieces: AnswerPiece[] = [];
    for (const piece of [...tokens.flatMap((token) => reader.push(token)), ...reader.end()])
      addPiece(pieces, piece);
    const calls = pieces.flatMap((piece) => (piece.type === "calls" ? piece.calls : []));
    const finished: FinishedAnswer = {
      ...{ sample: 0, tokens, logprobs, pieces, stopReason: isCut ? "length" : "stop" },
      ids: calls.flatMap(({ id }) => id ?? []),
    };
    this.tree.add(opened, finished, { model: "m", step: undefined, at: 0 });
    this.answers += 1;
    const said = (type: "text" | "reasoning") =>
      pieces.map((piece) => (piece.type === type ? piece.text : "")).join("");
    const text = { type: "text" as const, text: said("text") };
    return {
      role: "assistant",
      content:
        said("reasoning") === "" ? text.text : [{ type: "thinking", thinking: said("reasoning") }, text],
      ...(calls.length > 0 && { toolCalls: calls }),
    };
  }

  /** What the format would write for some answer, sometimes with other spaces in its calls. */
  #sampled({ prepared }: OpenedTurn): number[] {
    const random = this.#random;
    const { tokenizer } = this.#renderer;
    const { messages, rendered } = prepared.conversation;
    const id = `functions.add:${random.integer(0, 8)}`;
    const call = {
      id,
      name: "add",
      arguments: `{"a": ${random.integer(0, 98)}, "b": "${random.pick(WORDS)}"}`
        .replaceAll('"“', '"')
        .replaceAll("”", ""),
    };
    const answer: Message = {
      role: "assistant",
      content: [
        ...(random.chance(0.5) ? [{ type: "thinking" as const, thinking: random.pick(WORDS) }] : []),
        { type: "text" as const, text: random.pick(WORDS) },
      ],
      ...(random.chance(0.6) && {
        toolCalls: random.chance(0.2) ? [call, { ...call, id: `${id}1` }] : [call],
      }),
    };
    const plain = { ...answer, content: random.pick(WORDS), toolCalls: undefined };
    for (const each of [answer, { ...answer, content: textOf(answer) }, plain]) {
      const written = attempt(() =>
        this.#renderer.buildSupervisedExample([...messages, each]).input.toInts(),
      );
      const tokens = written?.slice(rendered.length);
      if (
        tokens === undefined ||
        tokens.length === 0 ||
        !rendered.toInts().every((token, at) => token === written![at])
      )
        continue;
      const text = tokenizer.decode(tokens);
      const respelt = random.chance(0.5) ? text.replaceAll('": ', '":') : text;
      return tokenizer.encode(respelt, { addSpecialTokens: false }) as number[];
    }
    const [stop] = this.#renderer.stopSequences;
    const end = typeof stop === "number" ? [stop] : tokenizer.encode(stop ?? "", { addSpecialTokens: false });
    return [...tokenizer.encode(random.pick(WORDS), { addSpecialTokens: false }), ...end];
  }
}

/** What clients make of an answer before they send it back. */
function asSentBack(answer: Message, random: Random): Message {
  const text = textOf(answer);
  const withThoughts = typeof answer.content !== "string" && random.chance(0.5);
  return {
    ...answer,
    content: withThoughts ? answer.content : random.chance(0.5) ? text.trim() : text,
    ...(answer.toolCalls && {
      toolCalls: answer.toolCalls.map((call) => ({
        ...call,
        arguments: random.chance(0.5)
          ? JSON.stringify({ ...(attempt(() => JSON.parse(call.arguments) as object) ?? {}), added: false })
          : call.arguments,
      })),
    }),
  };
}

function heard(answer: Message, random: Random): Message[] {
  if (!answer.toolCalls) return [{ role: "user", content: random.pick(WORDS) }];
  const results = answer.toolCalls.map(({ id, name }) => ({
    role: "tool",
    name,
    toolCallId: id,
    content: String(random.integer(0, 8)),
  }));
  return random.chance(0.5) ? results : results.toReversed();
}

const begin = (random: Random): Message[] => [
  ...(random.chance(0.5) ? [{ role: "system", content: `It is ${random.integer(0, 2)} o'clock.` }] : []),
  { role: "user", content: random.pick(WORDS) },
];

/** An agent of bad habits: it retries, edits, compacts, forks, adds tools, and asks beside itself. */
function playBadly(play: Play, random: Random, steps: number): void {
  let history = begin(random);
  let tools = TOOLS.slice(0, 2);
  for (let step = 0; step < steps; step += 1) {
    const opened = play.open(history, tools);
    if (opened === undefined) {
      history = begin(random);
      continue;
    }
    const beside = random.chance(0.2)
      ? play.open(random.chance(0.5) ? history : begin(random), tools)
      : undefined;
    if (random.chance(0.1)) continue;
    const answer = play.answer(opened, random.chance(0.1));
    if (beside !== undefined) play.answer(beside);
    if (random.chance(0.15)) continue;
    history = [...history, asSentBack(answer, random), ...heard(answer, random)];
    if (random.chance(0.1)) history = [...begin(random), { role: "user", content: "A summary." }];
    if (random.chance(0.1)) {
      const at = random.integer(0, history.length - 1);
      history = history.map((each, place) =>
        place === at && each.role !== "tool" ? { ...each, content: `${textOf(each)} Mind the gap.` } : each,
      );
    }
    if (random.chance(0.05)) tools = TOOLS;
  }
}

/** Each sampled token stands in the data once, behind exactly what it was sampled behind. */
function checkData(play: Play, threads: readonly SessionThread[]): void {
  const turns = threads.flatMap((thread) =>
    thread.turns.map(({ prompt, tokens, logprobs, stopReason }) => ({
      ...{ observation: prompt, action: { tokens, logprobs, stopReason } },
      ...{ reward: 0, isDone: false, isMasked: false, metrics: {}, logs: {} },
    })),
  );
  const seen = new Set<number>();
  for (const { input, targetTokens, logprobs, mask } of trajectoryData(
    { turns, finalObservation: turns[0]!.observation },
    1,
  )) {
    const read = input.toInts();
    for (const [at, isTrained] of mask.entries()) {
      if (isTrained === 0) continue;
      const logged = play.log.get(logprobs[at]!)!;
      expect(seen.has(logprobs[at]!)).toBe(false);
      seen.add(logprobs[at]!);
      expect(targetTokens[at]).toBe(logged.token);
      const before = read.slice(0, at + 1);
      if (
        before.length !== logged.before.length ||
        before.some((token, place) => token !== logged.before[place])
      )
        expect(before).toEqual(logged.before);
    }
  }
  expect(seen.size).toBe(play.log.size);
}

const kinds: string[] = [];
const names = rendererNames().filter((name) => name !== "template");
const withTools = names.filter((name) => {
  const renderer = getRenderer(name, characterVocabulary(name).tokenizer);
  return attempt(() => renderer.declareTools(TOOLS)) !== undefined;
});

it("is tried with every renderer that has tools", () => {
  expect(withTools.length).toBeGreaterThan(25);
});

describe.each(someOf(withTools, 3))("with %s", (name) => {
  const renderer = getRenderer(name, characterVocabulary(name).tokenizer);

  it("each token is trained on once, in the context it was sampled in, whatever the agent does", () => {
    for (let seed = 0; seed < cases(40, 2); seed += 1) {
      const random = new Random(seed);
      const play = new Play(renderer, random);
      playBadly(play, random, 14);
      expect(play.answers).toBeGreaterThan(5);
      const threads = play.tree.threads();
      expect(threads.flatMap(({ turns }) => turns)).toHaveLength(play.answers);
      for (const [index, { fork, turns }] of threads.entries()) {
        if (index === 0) expect(fork).toBeUndefined();
        else expect(fork!.why).not.toBe("");
        for (const [place, turn] of turns.slice(1).entries()) {
          const known = [...turns[place]!.prompt.toInts(), ...turns[place]!.tokens];
          expect(turn.prompt.toInts().slice(0, known.length)).toEqual(known);
        }
      }
      checkData(play, threads);
      kinds.push(...threads.flatMap(({ fork }) => fork?.why.replaceAll(/\d+/g, "N") ?? []));
    }
  });

  it("an agent that only rewrites arguments, trims and drops thoughts stays in one thread", () => {
    for (let seed = 0; seed < cases(20, 2); seed += 1) {
      const random = new Random(100 + seed);
      const play = new Play(renderer, random);
      let history = begin(random);
      for (let turn = 0; turn < 6; turn += 1) {
        const opened = play.open(history);
        if (opened === undefined) break;
        const answer = play.answer(opened);
        history = [...history, asSentBack(answer, random), ...heard(answer, random)];
      }
      expect(play.answers).toBeGreaterThan(2);
      const threads = play.tree.threads();
      for (const { fork } of threads.slice(1))
        expect(fork!.why).toBe("the model's format writes earlier answers otherwise from here on");
      if (renderer.hasExtensionProperty && name !== "qwen3_instruct") expect(threads).toHaveLength(1);
      checkData(play, threads);
    }
  });
});

it("met every kind of fork", () => {
  expect(kinds).toEqual(
    expect.arrayContaining([
      "message N (system) differs",
      "message N (user) differs",
      "the answer at message N was cut off",
      "the model's format writes earlier answers otherwise from here on",
      "the same request again",
      "the tools changed: write was added",
    ]),
  );
});
