import { fileURLToPath } from "node:url";
import { describe, expect, expectTypeOf, it } from "vitest";
import type {
  Action,
  MessageEnvironmentOptions,
  Observation,
  ProblemGroupOptions,
  RolloutContext,
} from "../../src/cookbook/environments/index.js";
import {
  assembleData,
  type Environment,
  environmentGroups,
  type GroupSource,
  type MessageStep,
  messageEnvironment,
  type Problem,
  problemGroups,
  runRolloutGroup,
  samplerPolicy,
  totalRewards,
} from "../../src/cookbook/index.js";
import { ServiceClient } from "../../src/index.js";
import { getRenderer, type Message } from "../../src/renderers/index.js";
import { loadTokenizer } from "../../src/tokenizers/index.js";
import { talkingServer } from "../cli/talking-engine.js";

const tokenizer = await loadTokenizer(fileURLToPath(new URL("../../models/nano", import.meta.url)));
const renderer = getRenderer("qwen3_instruct", tokenizer);
const running: RolloutContext = {
  signal: new AbortController().signal,
  limits: {},
  toolExecution: "parallel",
};

/** An answer as a sampler gives it. */
function action(text: string, stopReason: Action["stopReason"] = "stop"): Action {
  const tokens = Int32Array.from(tokenizer.encode(text));
  return { tokens, logprobs: new Float32Array(tokens.length), stopReason };
}

const said = (text: string): Action => action(`${text}<|im_end|>`);
const textOfPrompt = ({ prompt }: Observation) => tokenizer.decode(prompt.toInts());

async function environmentsOf(source: GroupSource, index = 0): Promise<readonly Environment[]> {
  return (await (await source.group(index))!.makeEnvironments()) as readonly Environment[];
}

describe("problems with a reward", () => {
  function* additions() {
    for (let a = 0; ; a += 1) yield { prompt: `${a} + 2?`, answer: String(a + 2) };
  }
  const exact = ({ problem, text }: { problem: { answer: string }; text: string }) =>
    text.trim() === problem.answer ? 1 : 0;

  it("are asked as they are written, and graded by a function that knows their type", async () => {
    const source = problemGroups({
      problems: additions(),
      reward: ({ problem, text, message, messages, stopReason, termination }) => {
        expectTypeOf(problem).toEqualTypeOf<{ prompt: string; answer: string }>();
        expect(message).toEqual({ role: "assistant", content: text });
        expect(messages).toEqual([{ role: "user", content: problem.prompt }, message]);
        expect([stopReason, termination]).toEqual(["stop", "stop_sequence"]);
        return text === problem.answer ? 1 : -0.5;
      },
      groupSize: 3,
      renderer,
    });
    const group = await environmentsOf(source, 5);
    expect(group).toHaveLength(3);
    const [right, wrong] = group;
    const observation = (await right!.start(running)) as Observation;
    expect(textOfPrompt(observation)).toBe("<|im_start|>user\n5 + 2?<|im_end|>\n<|im_start|>assistant\n");
    expect(observation.stop).toEqual(renderer.stopSequences);
    expect(await right!.step(said("7"))).toMatchObject({ reward: 1, isDone: true });
    await wrong!.start(running);
    expect(await wrong!.step(said("8"))).toMatchObject({ reward: -0.5, isDone: true });
    expect(right!.messages!()).toEqual([
      { role: "user", content: "5 + 2?" },
      { role: "assistant", content: "7" },
    ]);
  });

  it("give new environments each time, and the same problem under the same number", async () => {
    const problems = Array.from({ length: 20 }, (_, a) => ({ prompt: `${a}?`, answer: "1" }));
    const source = problemGroups({ problems, reward: exact, groupSize: 1, renderer, seed: 7 });
    expect(source.length).toBe(20);
    const prompt = async (index: number) => {
      const [environment] = await environmentsOf(source, index);
      return textOfPrompt((await environment!.start(running)) as Observation);
    };
    const first = await Promise.all([...problems.keys()].map(prompt));
    expect(new Set(first).size).toBe(20);
    expect(await prompt(3)).toBe(first[3]);
    expect(await Promise.all([...problems.keys()].map((index) => prompt(index + 20)))).not.toEqual(first);
  });

  it("may be conversations, and have tags of their own", async () => {
    const messages: Message[] = [
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hi" },
    ];
    const source = problemGroups({
      problems: [{ messages, kind: "greeting" }],
      reward: async ({ problem }) => {
        expectTypeOf(problem.kind).toEqualTypeOf<string>();
        return { reward: 0.25, metrics: { length: 3 }, logs: { kind: problem.kind } };
      },
      groupSize: 1,
      tags: ({ kind }) => [kind],
      renderer,
    });
    const group = await source.group(0);
    expect(group!.tags).toEqual(["greeting"]);
    const [environment] = (await group!.makeEnvironments()) as readonly Environment[];
    expect(textOfPrompt((await environment!.start(running)) as Observation)).toBe(
      tokenizer.decode(renderer.buildPrompt(messages).toInts()),
    );
    expect(await environment!.step(said("Hello"))).toEqual({
      isDone: true,
      reward: 0.25,
      metrics: { length: 3 },
      logs: { kind: "greeting" },
    });
  });

  it.each([
    ["7", "stop", 1, { format: 1, correct: 1 }],
    ["7 apples", "stop", -0.1, { format: 0, correct: 0 }],
    ["8", "stop", 0, { format: 1, correct: 0 }],
    ["7", "length", 0.9, { format: 0, correct: 1 }],
  ] as const)("with a format take off a tenth: %s, %s", async (text, stopReason, reward, metrics) => {
    const source = problemGroups({
      problems: [{ prompt: "5 + 2?", answer: "7" }],
      reward: exact,
      format: (answer) => /^\d+$/.test(answer.text),
      groupSize: 1,
      renderer,
    });
    const [environment] = await environmentsOf(source);
    await environment!.start(running);
    const answer = stopReason === "stop" ? said(text) : action(text, "length");
    const step = await environment!.step(answer);
    expect(step.reward).toBeCloseTo(reward, 12);
    expect(step.metrics).toEqual(metrics);
  });

  it("end where their generator ends", async () => {
    const problems = [{ prompt: "a", answer: "b" }].values();
    const source = problemGroups({ problems, reward: exact, groupSize: 1, renderer });
    expect(await source.group(0)).toBeDefined();
    expect(await source.group(1)).toBeUndefined();
  });

  it("do not wait for a reward that never comes", async () => {
    const over = new AbortController();
    const source = problemGroups({
      problems: [{ prompt: "a" }],
      reward: () => new Promise<number>(() => {}),
      groupSize: 1,
      renderer,
    });
    const [environment] = await environmentsOf(source);
    await environment!.start({ ...running, signal: over.signal });
    const step = environment!.step(said("b"));
    over.abort();
    await expect(step).rejects.toThrow(/abort/i);
  });

  it.each([
    [{ answer: "1" }, "problems[0] must have a prompt or messages, and has neither"],
    [{ prompt: "a", messages: [] }, "problems[0] must have a prompt or messages, and has both"],
    [{ prompt: 5 }, "problems[0].prompt must be a text, got 5"],
    [{ messages: [] }, "problems[0].messages must be a list of at least one message"],
    ["text", "problems[0] must be an object"],
  ])("refuse %o", async (problem, message) => {
    const problems = [problem] as unknown as Problem[];
    const source = problemGroups({ problems, reward: () => 0, groupSize: 1, renderer });
    await expect(source.group(0)).rejects.toThrow(message);
  });

  it.each([
    [Number.NaN, "reward must return a finite number or { reward: number }, got NaN"],
    [true, "reward must return a finite number or { reward: number }, got true"],
    [undefined, "reward must return a finite number or { reward: number }, got undefined"],
    [{ reward: 1, metrics: { a: "b" } }, 'metrics.a of reward must be a number, got "b"'],
  ])("refuse the reward %o", async (reward, message) => {
    const source = problemGroups({
      problems: [{ prompt: "a" }],
      reward: () => reward as never,
      groupSize: 1,
      renderer,
    });
    const [environment] = await environmentsOf(source);
    await environment!.start(running);
    await expect(environment!.step(said("b"))).rejects.toThrow(message);
  });

  it.each([
    [{ groupSize: 0 }, "groupSize must be a positive integer, got 0"],
    [{ reward: undefined }, "reward must be a function of an answer"],
    [{ format: "json" }, "format must be a function"],
    [{ seed: -1 }, "seed must be a non-negative integer, got -1"],
  ])("refuse the option %o", (options, message) => {
    const given = { problems: [{ prompt: "a" }], reward: () => 0, groupSize: 1, renderer, ...options };
    expect(() => problemGroups(given as unknown as ProblemGroupOptions<Problem>)).toThrow(message);
  });
});

describe("a conversation with an environment", () => {
  const prompt = (text: string) => `<|im_start|>user\n${text}<|im_end|>\n<|im_start|>assistant\n`;

  /** Says these things one after the other, and then is done. */
  function talking(replies: readonly string[], options: Partial<MessageEnvironmentOptions> = {}) {
    const left = [...replies];
    const heard: string[] = [];
    let closed = 0;
    const environment = messageEnvironment({
      environment: {
        start: () => [{ role: "user", content: "Guess." }],
        step: ({ message, messages }): MessageStep => {
          expect(messages.at(-1)).toEqual(message);
          heard.push(message.content as string);
          const reply = left.shift();
          if (reply === undefined) return { reward: 1, isDone: true, end: "completed" };
          return {
            reward: 0,
            isDone: false,
            messages: [{ role: "user", content: reply }],
            metrics: { turn: 1 },
          };
        },
        close: () => void closed++,
      },
      renderer,
      ...options,
    });
    return { environment, heard, closed: () => closed };
  }

  async function begin(environment: Environment, context: Partial<RolloutContext> = {}) {
    return (await environment.start({ ...running, ...context })) as Observation;
  }

  it("goes on behind exactly the tokens that were sampled", async () => {
    const { environment, heard, closed } = talking(["Higher.", "Lower."]);
    const first = await begin(environment);
    expect(textOfPrompt(first)).toBe(prompt("Guess."));
    // "the" is one token or three: the sampler may choose what the tokenizer would not.
    const tokens = Int32Array.from([..."the"].flatMap((letter) => tokenizer.encode(letter)).concat(511));
    expect([...tokens]).not.toEqual([...said("the").tokens]);
    const second = await environment.step({ tokens, logprobs: new Float32Array(4), stopReason: "stop" });
    expect(second).toMatchObject({ reward: 0, isDone: false, metrics: { turn: 1 } });
    const expected = [...first.prompt.toInts(), ...tokens];
    expect(second.next!.prompt.toInts().slice(0, expected.length)).toEqual(expected);
    expect(textOfPrompt(second.next!)).toBe(`${prompt("Guess.")}the<|im_end|>\n${prompt("Higher.")}`);
    const third = await environment.step(said("75"));
    const whole = [...second.next!.prompt.toInts(), ...said("75").tokens];
    expect(third.next!.prompt.toInts().slice(0, whole.length)).toEqual(whole);
    expect(await environment.step(said("60"))).toMatchObject({ reward: 1, isDone: true, end: "completed" });
    expect(heard).toEqual(["the", "75", "60"]);
    expect(environment.messages!().map(({ content }) => content)).toEqual([
      ...["Guess.", "the", "Higher.", "75", "Lower.", "60"],
    ]);
    await environment.close!();
    expect(closed()).toBe(1);
  });

  it("starts again if the environment rewrites earlier messages", async () => {
    const environment = messageEnvironment({
      environment: {
        start: () => [{ role: "user", content: "One." }],
        step: () => ({
          reward: 0,
          isDone: false,
          conversation: [{ role: "user", content: "Two." }],
          stop: [7],
        }),
      },
      renderer,
    });
    await begin(environment);
    const { next } = await environment.step(said("hm"));
    expect(textOfPrompt(next!)).toBe(prompt("Two."));
    expect(next!.stop).toEqual([7]);
    expect(environment.messages!()).toEqual([{ role: "user", content: "Two." }]);
  });

  it("takes messages that are put in before a turn", async () => {
    const { environment } = talking(["Higher."]);
    await begin(environment);
    const hint = { role: "user", content: "Hint." };
    const atFirst = await environment.addMessages!([hint]);
    expect(textOfPrompt(atFirst!)).toBe(`<|im_start|>user\nGuess.<|im_end|>\n${prompt("Hint.")}`);
    const { next } = await environment.step(said("5"));
    const later = await environment.addMessages!([hint]);
    expect(textOfPrompt(later!)).toBe(
      textOfPrompt(next!).replace(/<\|im_start\|>assistant\n$/, prompt("Hint.")),
    );
    const sampled = [...atFirst!.prompt.toInts(), ...said("5").tokens];
    expect(later!.prompt.toInts().slice(0, sampled.length)).toEqual(sampled);
  });

  it.each([
    [{}, { reward: -1, end: "parse_error", metrics: { parse_error: 1 } }],
    [{ parseFailureReward: -3 }, { reward: -3, end: "parse_error" }],
  ])("ends at an answer without its stop sign: %o", async (options, expected) => {
    const { environment, heard } = talking(["Higher."], options);
    await begin(environment);
    const step = await environment.step(action("no end"));
    expect(step).toMatchObject({ ...expected, isDone: true });
    expect(step.next).toBeUndefined();
    expect(heard).toEqual([]);
  });

  it("ends there by the rollout's policy, where there is one", async () => {
    const { environment } = talking(["Higher."]);
    await begin(environment, { parseErrors: { finalReward: -0.5, isMasked: true, maxConsecutive: 3 } });
    expect(await environment.step(action("no end"))).toEqual({
      reward: -0.5,
      isDone: true,
      end: "parse_error",
      isMasked: true,
      metrics: { parse_error: 1 },
      logs: {
        parse_failure_kind: "structural",
        parse_failure_detail: "The answer did not end with the stop sign of its format.",
      },
    });
  });

  it("goes on behind it where that is wished, and never from an empty prompt", async () => {
    const { environment } = talking(["Higher."], { endsOnParseFailure: false });
    const first = await begin(environment);
    const { next, ...step } = await environment.step(action("no end"));
    expect(step).toMatchObject({ reward: -1, isDone: false, metrics: { parse_error: 1 } });
    expect(textOfPrompt(next!)).toBe(`${textOfPrompt(first)}no end<|im_end|>\n<|im_start|>assistant\n`);
    expect((await environment.step(said("5"))).next).toBeDefined();
  });

  it("ends at an answer that was cut off, unless tokens are limited", async () => {
    const ending = talking(["Higher."]);
    await begin(ending.environment);
    expect(await ending.environment.step(action("cut", "length"))).toMatchObject({
      reward: -0.1,
      isDone: true,
      end: "max_tokens",
      metrics: { max_tokens_reached: 1 },
    });
    const going = talking(["Higher."]);
    const first = await begin(going.environment, { limits: { maxTurnTokens: 3 } });
    const { next, ...step } = await going.environment.step(action("cut", "length"));
    expect(step).toMatchObject({ reward: 0, isDone: false });
    expect(textOfPrompt(next!)).toBe(`${textOfPrompt(first)}cut<|im_end|>\n<|im_start|>assistant\n`);
    const sampled = [...first.prompt.toInts(), ...action("cut").tokens];
    expect(next!.prompt.toInts().slice(0, sampled.length)).toEqual(sampled);
    expect(going.heard).toEqual([]);
  });

  it("ends where it has no more room", async () => {
    const { length } = renderer.buildPrompt([{ role: "user", content: "Guess." }]);
    const small = talking([], { maxContextTokens: length + 4, maxAnswerTokens: 5, overflowReward: -2 });
    expect(await small.environment.start(running)).toEqual({
      overflow: true,
      reward: -2,
      metrics: { max_tokens_reached: 1 },
      logs: {
        initial_observation_overflow: expect.stringContaining(`${length} tokens, which with 5 for an answer`),
      },
    });
    const larger = talking(["x".repeat(40)], { maxContextTokens: length + 20, maxAnswerTokens: 5 });
    await begin(larger.environment);
    const step = await larger.environment.step(said("5"));
    expect(step).toMatchObject({ reward: -0.1, isDone: true, end: "context_overflow" });
    expect(step.metrics).toEqual({ turn: 1, context_overflow: 1 });
    const done = talking([], { maxContextTokens: length + 1 });
    await begin(done.environment);
    expect(await done.environment.step(said("5 6 7 8"))).toMatchObject({ reward: 1, end: "completed" });
  });

  it("does not wait for an environment that never answers, and refuses rewards that are no numbers", async () => {
    const over = new AbortController();
    const hanging = messageEnvironment({
      environment: {
        start: () => [{ role: "user", content: "?" }],
        step: () => new Promise<MessageStep>(() => {}),
      },
      renderer,
    });
    await begin(hanging, { signal: over.signal });
    const step = hanging.step(said("5"));
    over.abort();
    await expect(step).rejects.toThrow(/abort/i);
    const wrong = messageEnvironment({
      environment: {
        start: () => [{ role: "user", content: "?" }],
        step: () => ({ reward: Number.NaN, isDone: true }),
      },
      renderer,
    });
    await begin(wrong);
    await expect(wrong.step(said("5"))).rejects.toThrow(
      "step must return a finite number or { reward: number }",
    );
  });
});

it("is one stretch to learn from, however many turns: what was sampled is what is trained on", async () => {
  const { backend, engine } = await talkingServer();
  await using service = new ServiceClient(backend);
  const sampler = await service.createSamplingClient({ baseModel: "tinkerts/nano" });
  const source = environmentGroups({
    tasks: [{ secret: 7 }],
    environment: ({ secret }) =>
      messageEnvironment({
        environment: {
          start: () => [{ role: "user", content: "Guess." }],
          step: ({ message }) => {
            const guess = Number(message.content);
            const content = guess < secret ? "Higher." : "Lower.";
            return guess === secret
              ? { reward: 1, isDone: true, end: "completed" }
              : { reward: 0, isDone: false, messages: [{ role: "user", content }] };
          },
        },
        renderer,
      }),
    groupSize: 1,
  });
  engine.answers = ["3", "9", "7"];
  const group = await runRolloutGroup((await source.group(0))!, samplerPolicy(sampler));
  const turns = ["user\nGuess.", "assistant\n3", "user\nHigher.", "assistant\n9", "user\nLower."];
  const said = turns.map((turn) => `<|im_start|>${turn}<|im_end|>\n`).join("");
  expect(engine.heard[2]).toBe(`${said}<|im_start|>assistant\n`);
  expect(totalRewards(group)).toEqual([1]);
  expect(group.trajectories[0]).toMatchObject({ end: "completed", turns: [{}, {}, { reward: 1 }] });
  const data = assembleData([group], [[1]]);
  expect(data).toHaveLength(1);
  const { targetTokens, mask } = data[0]!;
  const learnt = [...targetTokens].filter((_, index) => mask[index] === 1);
  expect(tokenizer.decode(learnt)).toBe("3<|im_end|>9<|im_end|>7<|im_end|>");
  await backend.close();
});
