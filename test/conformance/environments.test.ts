import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import type { ParseErrorPolicy, RolloutContext } from "../../src/cookbook/environments/index.js";
import {
  type Environment,
  interleaveGroups,
  type MessageStep,
  messageEnvironment,
  problemGroups,
  type StepResult,
  tool,
  toolEnvironment,
} from "../../src/cookbook/index.js";
import { getRenderer, type Message, textOf } from "../../src/renderers/index.js";
import { loadTokenizer } from "../../src/tokenizers/index.js";
import { explainSkip, hasPythonModule, Judge } from "./judge.js";
import { CASES as ALL_CASES, SEED } from "./judged.js";
import { type Make, Random } from "./random.js";
import { writeReport } from "./report.js";

explainSkip("environments.test.ts");

const CASES = Math.ceil(ALL_CASES / 4);
const RENDERER = "qwen3_instruct";
const folder = fileURLToPath(new URL("../../models/nano", import.meta.url));
const tokenizer = await loadTokenizer(folder);
const renderer = getRenderer(RENDERER, tokenizer);

interface Answer {
  readonly tokens: readonly number[];
  readonly stop_reason: "stop" | "length";
}

interface Step {
  readonly reward: number;
  readonly isDone: boolean;
  /** Empty where there is none. */
  readonly next: readonly number[];
  readonly metrics: Readonly<Record<string, number>>;
  readonly logs: Readonly<Record<string, string | number>>;
}

interface Played {
  readonly overflow?: { readonly reward: number; readonly metrics: object; readonly logs: readonly string[] };
  readonly first?: readonly number[];
  readonly stop?: readonly number[];
  readonly steps?: readonly Step[];
}

const call = (name: string, given: string) =>
  `<tool_call>\n{"name": "${name}", "arguments": ${given}}\n</tool_call>`;
const TEXTS = ["hello", "It is 3.", "", "50", "naïve ☃", "one\n\ntwo"];
const PIECES = [
  ...TEXTS,
  ...[call("add", '{"a": 1}'), call("add", '{"a": 1, "b": 2}'), call("add", '{"a": "x"}'), call("add", "{}")],
  ...[call("submit", "{}"), call("fail", "{}"), call("none", "{}")],
  ...[call("add", "[1]"), call("add", '{"a": 1'), "<tool_call>\nadd(1)\n</tool_call>", "<tool_call>\n{"],
];

/** What a model may answer: text and calls, right and wrong, with its end or without, or cut off. */
const answer = (random: Random, pieces: readonly string[] = PIECES): Answer => {
  const text = random.times(random.pick([1, 1, 1, 2, 3]), (each) => each.pick(pieces)).join("");
  const roll = random.next();
  const written = roll < 0.8 ? `${text}<|im_end|>` : text;
  return {
    tokens: tokenizer.encode(written, { addSpecialTokens: false }),
    stop_reason: roll > 0.9 ? "length" : "stop",
  };
};

const question: Make<Message[]> = (random) => [
  ...(random.chance(0.3) ? [{ role: "system", content: "Be brief." }] : []),
  { role: "user", content: random.pick(["Hi", "1 + 2?", "Guess a number."]) },
];

/** The same settings for both: with Python's names, and with ours. */
const policies = [
  undefined,
  undefined,
  [{}, {}],
  [
    { max_consecutive: 1, penalty_per_error: 0.25 },
    { maxConsecutive: 1, penalty: 0.25 },
  ],
  [
    { max_consecutive: 2, terminal_reward: -3, mask_error_turns: true },
    { maxConsecutive: 2, finalReward: -3, isMasked: true },
  ],
] as const;

function policyOf(random: Random): {
  readonly policy?: object;
  readonly parseErrors?: ParseErrorPolicy;
} {
  const found = random.pick(policies);
  if (found === undefined) return {};
  const template = "Again: {details}";
  return {
    policy: { ...found[0], retry_message_template: template },
    parseErrors: { ...found[1], retryMessage: template },
  };
}

describe.skipIf(!hasPythonModule("tinker_cookbook", "environments.test.ts"))(
  "environments, judged by the Python cookbook",
  () => {
    let judge: Judge;
    const counts: Record<string, number> = {};
    beforeAll(async () => {
      judge = new Judge("environments.py");
      await judge.ask("open", { folder, name: RENDERER });
    });
    afterAll(async () => {
      writeReport("environments", counts);
      await judge?.[Symbol.asyncDispose]();
    });
    const judged = <T>(operation: string, cases: readonly unknown[]): Promise<T[]> =>
      judge.ask("run", { operation, cases });

    it("rewards answers to problems alike", async () => {
      const cases = new Random(SEED).times(CASES, (random) => ({
        prompt: random.pick(["Hi", "1 + 2?", "naïve ☃"]),
        correct: random.pick([0, 1, 0.5]),
        format: random.pick([0, 1, 0.5]),
        actions: [answer(random)],
      }));
      const theirs = await judged<Played>("problem", cases);
      for (const [index, { prompt, correct, format, actions }] of cases.entries()) {
        const source = problemGroups({
          problems: [{ prompt }],
          reward: ({ text }) => (text === "" ? 0 : correct),
          format: () => format,
          groupSize: 1,
          renderer,
        });
        const [environment] = await (await source.group(0))!.makeEnvironments();
        expect(await play(environment as Environment, actions)).toEqual(theirs[index]);
      }
      counts["problems"] = cases.length;
    });

    it("leads conversations alike, but for answers that go on as they were sampled", async () => {
      const settings = [
        [{}, {}, {}],
        [{ failed_parse_reward: -3 }, { parseFailureReward: -3 }, {}],
        [{ terminate_on_length: false }, {}, { maxTurnTokens: 100 }],
        [
          { max_trajectory_tokens: 60, max_generation_tokens: 20 },
          { maxContextTokens: 60, maxAnswerTokens: 20 },
          {},
        ],
        [
          { max_trajectory_tokens: 90, context_overflow_reward: -2, terminate_on_length: false },
          { maxContextTokens: 90, overflowReward: -2, endsOnLength: false },
          {},
        ],
        [{ terminate_on_parse_error: false }, { endsOnParseFailure: false }, {}],
      ] as const;
      const cases = new Random(SEED + 1).times(CASES, (random) => {
        const replies = random.times(random.integer(1, 4), (each) => ({
          reward: each.pick([0, 1, -0.5]),
          messages: each.times(each.pick([0, 1, 1, 2]), (some) => ({
            role: "user",
            content: some.pick(["More.", "Less!"]),
          })),
          metrics: each.chance(0.5) ? { told: 1 } : {},
        }));
        const [options, ours, limits] = random.pick(settings);
        const { policy, parseErrors } = policyOf(random);
        const actions = random.times(6, (each) => answer(each, TEXTS));
        const given = { messages: question(random), replies, actions, options };
        return { theirs: { ...given, ...(policy && { policy }) }, ours, limits, parseErrors };
      });
      const all = await judged<Played>(
        "conversation",
        cases.map(({ theirs }) => theirs),
      );
      let emptyPrompts = 0;
      for (const [index, { theirs: given, ours, limits, parseErrors }] of cases.entries()) {
        const left = [...given.replies];
        const environment = messageEnvironment({
          environment: {
            start: () => given.messages,
            step: (): MessageStep => ({ ...left.shift()!, isDone: left.length === 0 }),
          },
          renderer,
          ...ours,
        });
        const theirs = all[index]!;
        // Their defect: an answer without its end is followed by an empty prompt, from which it goes on.
        const empty = theirs.steps?.findIndex(({ isDone, next }) => !isDone && next.length === 0) ?? -1;
        if (empty !== -1) emptyPrompts += 1;
        const actions = empty === -1 ? given.actions : given.actions.slice(0, empty);
        const steps = empty === -1 ? theirs.steps : theirs.steps!.slice(0, empty);
        const played = await play(environment, actions, { limits, parseErrors });
        expect(normal(played), JSON.stringify(given)).toEqual(normal({ ...theirs, ...(steps && { steps }) }));
      }
      counts["conversations"] = cases.length;
      counts["their empty prompts"] = emptyPrompts;
    });

    it("runs tools alike, broken calls and limits included", async () => {
      const options = [
        [{}, {}],
        [{ max_turns: 2 }, { maxTurns: 2 }],
        [{ max_tool_calls: 2 }, { maxToolCalls: 2 }],
        [{ terminate_on_parse_error: false }, { endsOnParseFailure: false }],
        [{ failed_parse_reward: -2 }, { parseFailureReward: -2 }],
      ] as const;
      const limits = [
        [{}, {}],
        [{ max_turns: 3 }, { maxTurns: 3 }],
        [{ max_tool_calls: 3 }, { maxToolCalls: 3 }],
        [{ max_turn_tokens: 200 }, { maxTurnTokens: 200 }],
      ] as const;
      const terminations = [
        undefined,
        [{}, {}],
        [{ pass_all_messages_to_grader: true }, { gradesWholeConversation: true }],
      ] as const;
      const cases = new Random(SEED + 2).times(CASES, (random) => {
        const [theirOptions, ourOptions] = random.pick(options);
        const [theirLimits, ourLimits] = random.pick(limits);
        const termination = random.pick(terminations);
        const toolExecution = random.pick(["parallel", "sequential"] as const);
        const { policy, parseErrors } = policyOf(random);
        const given = { messages: question(random), actions: random.times(7, (each) => answer(each)) };
        return {
          theirs: {
            ...given,
            options: theirOptions,
            limits: theirLimits,
            tool_execution: toolExecution,
            ...(policy && { policy }),
            ...(termination && { termination: termination[0] }),
          },
          given,
          ours: ourOptions,
          context: { limits: ourLimits, parseErrors, termination: termination?.[1], toolExecution },
        };
      });
      const all = await judged<Played & { graded: string[][]; history: string[][] }>(
        "agent",
        cases.map(({ theirs }) => theirs),
      );
      for (const [index, { theirs: asked, given, ours, context }] of cases.entries()) {
        const graded: string[][] = [];
        const environment = toolEnvironment({
          tools: TOOLS,
          messages: given.messages,
          reward: ({ messages }) => {
            graded.push(messages.map(({ role }) => role));
            return { reward: 0.5 * messages.length, metrics: { graded: 1 } };
          },
          renderer,
          declaresTools: false,
          ...ours,
        });
        const { graded: theirGrades, history, ...theirs } = all[index]!;
        const empty = theirs.steps!.findIndex(({ isDone, next }) => !isDone && next.length === 0);
        const steps = empty === -1 ? theirs.steps! : theirs.steps!.slice(0, empty);
        const played = await play(environment, given.actions.slice(0, steps.length), context);
        const why = JSON.stringify(asked);
        expect(normal(played), why).toEqual(normal({ ...theirs, steps }));
        if (empty !== -1) continue;
        expect(graded, why).toEqual(theirGrades);
        const said = environment.messages!().map((message) => [message.role, shown(textOf(message))]);
        // An answer that ends the episode unread is part of our conversation, and not of theirs.
        const isUnread = said.length > history.length;
        expect(isUnread ? said.slice(0, -1) : said, why).toEqual(
          history.map(([role, text]) => [role, shown(text!)]),
        );
      }
      counts["tool episodes"] = cases.length;
    });

    it("mixes as many groups before one source is used up", async () => {
      const cases = new Random(SEED + 3).times(CASES, (random) => {
        const size = random.integer(1, 4);
        const whole = (most: number) => random.times(size, (each) => each.integer(1, most));
        return { lengths: whole(200), weights: whole(4).map((weight) => 2 ** weight) };
      });
      const theirs = await judged<number>("interleaved", cases);
      for (const [index, { lengths, weights }] of cases.entries()) {
        const group = () => undefined;
        const sources = lengths.map((length, part) => ({ source: { length, group }, weight: weights[part] }));
        // Theirs counts with rounded shares.
        expect(Math.abs(interleaveGroups(sources).length! - theirs[index]!)).toBeLessThanOrEqual(1);
      }
      counts["mixtures"] = cases.length;
    });
  },
);

const TOOLS = [
  tool({
    name: "add",
    description: "Adds.",
    parameters: z.object({ a: z.int(), b: z.int().default(1) }),
    execute: ({ a, b }) => String(a + b),
  }),
  tool({
    name: "submit",
    description: "Ends the episode.",
    parameters: z.object({}),
    execute: () => ({ content: "submitted", endsEpisode: true }),
  }),
  tool({
    name: "fail",
    description: "Fails.",
    parameters: z.object({}),
    execute: () => {
      throw new Error("no way");
    },
  }),
];

/** Plays an episode as Python's side does, and checks that each prompt goes on from what was sampled. */
async function play(
  environment: Environment,
  actions: readonly Answer[],
  context: Partial<RolloutContext> = {},
): Promise<Played> {
  const first = await environment.start({
    signal: new AbortController().signal,
    limits: {},
    toolExecution: "parallel",
    ...context,
  });
  if ("overflow" in first) {
    const metrics = { ...first.metrics, "stop/max_tokens": 1 };
    return { overflow: { reward: first.reward, metrics, logs: Object.keys(first.logs ?? {}) } };
  }
  const steps: Step[] = [];
  let prompt = first.prompt.toInts();
  for (const { tokens, stop_reason: stopReason } of actions) {
    const logprobs = new Float32Array(tokens.length);
    const step = await environment.step({ tokens: Int32Array.from(tokens), logprobs, stopReason });
    const next = step.next?.prompt.toInts() ?? [];
    // Theirs is rendered again; so is ours for the comparison, once it is seen to be the last prompt, the answer, and more.
    const beginning = [...prompt, ...tokens];
    const isExtension = next.length > 0 && beginning.every((token, index) => token === next[index]);
    const rendered = next.length > 0 ? renderer.buildPrompt(environment.messages!()).toInts() : [];
    if (!isExtension) expect(next).toEqual(rendered);
    steps.push({ ...written(step), next: rendered });
    prompt = next;
    if (step.isDone) break;
  }
  return { first: first.prompt.toInts(), stop: first.stop as readonly number[], steps };
}

/** A step as the loop records it. */
function written({ reward, isDone, end, isMasked, metrics, logs }: StepResult): Omit<Step, "next"> {
  return {
    reward,
    isDone,
    metrics: {
      ...metrics,
      ...(end !== undefined && { [`stop/${end}`]: 1 }),
      ...(isMasked === true && { parse_error_masked: 1 }),
    },
    logs: logs ?? {},
  };
}

/** Logs whose words are each side's own. */
const OWN_WORDS = ["truncated_turn", "parse_failure_detail", "parse_error_retry", "tool_calls_dropped"];

function normal({ steps, ...played }: Played): Played {
  return {
    ...played,
    ...(steps && {
      steps: steps.map((step) => ({
        ...step,
        // Theirs may be -0.
        reward: step.reward + 0,
        next: tokenizer.encode(shown(tokenizer.decode(step.next))),
        logs: Object.fromEntries(
          Object.entries(step.logs).map(([name, text]) => [
            name,
            OWN_WORDS.includes(name) ? "" : shown(String(text)),
          ]),
        ),
      })),
    }),
  };
}

/** Without what JSON readers and schemas say in words of their own; results in a row share a turn with us. */
function shown(text: string): string {
  return text
    .replaceAll(
      "</tool_response><|im_end|>\n<|im_start|>user\n<tool_response>",
      "</tool_response>\n<tool_response>",
    )
    .replaceAll(/Invalid JSON: (?:(?!<\|im_end\|>)[^\n])*/g, "Invalid JSON")
    .replaceAll(/\{"error": "Parameter validation failed: (?:[^"\\]|\\.)*"\}/g, "invalid parameters");
}
