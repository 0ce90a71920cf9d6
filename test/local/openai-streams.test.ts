import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { defaultModel } from "../../src/local/index.js";
import { Random } from "../conformance/random.js";
import { cases } from "../support/long.js";
import { type Chunk, chunksOf, nano, scripted } from "./openai-server.js";
import type { Json } from "./raw-client.js";

const SENTENCES = [
  "English: stick",
  "47+38=",
  "Grüße, wie geht's?",
  "日本語 ☀️",
  "Once upon a time",
  "<think>",
];

interface Choice {
  readonly index: number;
  readonly text?: string;
  readonly message?: Json & { readonly tool_calls?: { readonly function: Json }[] };
  readonly finish_reason: string;
  readonly logprobs: Json | null;
}

/** The choices that a stream adds up to, as far as they can be compared: ids of calls are new each time. */
function added(chunks: readonly Chunk[], count: number): Json[] {
  return Array.from({ length: count }, (_, index) => {
    const own = chunks.flatMap(({ choices }) => choices.filter((choice) => choice.index === index));
    const joined = (field: string) => own.map(({ delta }) => delta?.[field] ?? "").join("");
    const calls = own.flatMap(
      ({ delta }) => (delta?.["tool_calls"] as { function: Json }[] | undefined) ?? [],
    );
    expect(own.filter(({ finish_reason }) => finish_reason !== null)).toEqual([own.at(-1)]);
    return {
      text: own.map(({ text, delta }) => text ?? delta["content"] ?? "").join(""),
      reasoning: joined("reasoning_content"),
      calls: calls.map((call) => call.function),
      finishReason: own.at(-1)!.finish_reason,
      logprobs: own.flatMap(({ logprobs }) => entriesOf(logprobs)),
    };
  });
}

function whole(choices: readonly Choice[]): Json[] {
  return choices.map(({ text, message, finish_reason, logprobs }) => ({
    text: text ?? message?.["content"] ?? "",
    reasoning: message?.["reasoning_content"] ?? "",
    calls: (message?.tool_calls ?? []).map((call) => call.function),
    finishReason: finish_reason,
    logprobs: entriesOf(logprobs),
  }));
}

function entriesOf(logprobs: Json | null): unknown[] {
  if (logprobs === null) return [];
  if (Array.isArray(logprobs["content"])) return logprobs["content"];
  const { tokens, token_logprobs, top_logprobs, text_offset } = logprobs as Record<string, unknown[]>;
  return tokens!.map((token, place) => [
    token,
    token_logprobs![place],
    top_logprobs![place],
    text_offset![place],
  ]);
}

describe("what a stream adds up to is the answer that comes whole", () => {
  let real: Awaited<ReturnType<typeof nano>>;
  let told: Awaited<ReturnType<typeof scripted>>;
  beforeAll(async () => {
    [real, told] = await Promise.all([nano(), scripted("Qwen/Qwen3-8B")]);
  });
  afterAll(() => Promise.all([real.backend.close(), told.backend.close()]));

  async function compare(door: typeof real.door, path: string, body: Json, count: number): Promise<Choice[]> {
    const answer = await door.send(path, body);
    expect([answer.status, answer.body["error"]]).toEqual([200, undefined]);
    const { choices, usage } = answer.body as unknown as { choices: Choice[]; usage: Json };
    const chunks = chunksOf(await door.stream(path, { ...body, stream_options: { include_usage: true } }));
    expect(added(chunks, count)).toEqual(whole(choices));
    const { prompt_tokens_details: _, ...streamed } = chunks.at(-1)!.usage!;
    expect(usage).toMatchObject(streamed);
    return choices;
  }

  it("for random requests to a model that samples", async () => {
    const random = new Random(13);
    let stopped = 0;
    for (let round = 0; round < cases(200, 40); round += 1) {
      const prompt = random.pick(SENTENCES);
      const isChat = random.chance(0.5);
      const n = random.pick([1, 1, 2, 3]);
      const stops = Array.from({ length: random.integer(0, 3) }, () =>
        random.pick(["e", "th", "\n", "é", "ing ", "ay", "1", "<|"]),
      );
      const body: Json = {
        model: defaultModel.name,
        n,
        seed: random.integer(0, 999),
        temperature: random.pick([0, 0.7, 1, 2]),
        top_p: random.pick([1, 0.9, 0]),
        max_tokens: random.integer(1, 24),
        ...(stops.length > 0 && { stop: stops }),
      };
      const isScored = random.chance(0.5);
      const choices = isChat
        ? await compare(
            real.door,
            "/chat/completions",
            {
              ...body,
              messages: [{ role: "user", content: prompt }],
              logprobs: isScored,
              ...(isScored && { top_logprobs: 2 }),
            },
            n,
          )
        : await compare(
            real.door,
            "/completions",
            {
              ...body,
              prompt: [prompt, "1+1="],
              echo: random.chance(0.3),
              ...(isScored && { logprobs: 2 }),
            },
            2 * n,
          );
      for (const { text, message, finish_reason } of choices) {
        if (finish_reason === "stop") stopped += 1;
        const shown = String(message?.["content"] ?? text);
        if (isChat) for (const stop of stops) expect(shown).not.toContain(stop);
      }
    }
    expect(stopped).toBeGreaterThan(cases(50, 5));
  });

  it("for random answers with thoughts, calls, characters of many bytes and stops within them", async () => {
    const random = new Random(14);
    const call = (city: string) =>
      `<tool_call>\n{"name": "weather", "arguments": {"city": "${city}"}}\n</tool_call>`;
    const pieces = [
      () => "Hello there. ",
      () => "☀️ 日本語 ",
      () => "\n\n",
      () => "<tool_call",
      () => "<think>\nHm, é…\n</think>\n\n",
      () => "</think>",
      () => call(random.pick(["Rome", "Zürich", "東京"])),
      () => `Let me see.\n${call("Oslo")}`,
      () => "<tool_call>\nnonsense\n</tool_call>",
      () => "<",
    ];
    const tools = [
      { type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } },
    ];
    let called = 0;
    for (let round = 0; round < cases(300, 60); round += 1) {
      const said = Array.from({ length: random.integer(0, 5) }, () => random.pick(pieces)()).join("");
      told.engine.answers = [said, said];
      const choices = await compare(
        told.door,
        "/chat/completions",
        {
          model: "Qwen/Qwen3-8B",
          messages: [{ role: "user", content: "?" }],
          logprobs: random.chance(0.5),
          ...(random.chance(0.7) && { tools }),
          ...(random.chance(0.4) && {
            stop: random.pick(["there", "語", "<to", "\n", "é…\n</think>", "Rome"]),
          }),
          ...(random.chance(0.2) && { max_tokens: random.integer(1, 30) }),
        },
        1,
      );
      called += choices[0]!.message?.tool_calls?.length ?? 0;
    }
    expect(called).toBeGreaterThan(cases(50, 5));
  });
});
