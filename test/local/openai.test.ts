import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { ServiceClient } from "../../src/index.js";
import { defaultModel, type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { ModelInput } from "../../src/wire/index.js";
import { FakeClock } from "../support/fake-clock.js";
import { FakeEngine, fakeModel } from "./fake-engine.js";
import { chunksOf, doorOf, eventsOf, nano, scripted } from "./openai-server.js";
import { type Json, RawClient, silent } from "./raw-client.js";
import { ScriptedEngine } from "./scripted-engine.js";

const model = defaultModel.name;
const hi = [{ role: "user", content: "Hi" }];
const WEATHER = {
  type: "function",
  function: {
    name: "weather",
    description: "The weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};

async function scriptedFor(test: string[], name?: string) {
  const server = await scripted(name);
  onTestFinished(() => server.backend.close());
  server.engine.answers.push(...test);
  return server;
}

const errorOf = ({ status, body }: { status: number; body: Json }) => ({
  status,
  ...(body["error"] as { message: string; type: string; param: string | null; code: string | null }),
});

describe("models of the OpenAI-compatible door", () => {
  class EngineWithTokenizer extends FakeEngine {
    override async models() {
      return [{ ...fakeModel, vocabSize: 512, tokenizerPath: defaultModel.path }];
    }
  }
  const clock = new FakeClock({ startWallMs: Date.now() });
  let backend: LocalBackend;
  beforeAll(async () => {
    const engine = new EngineWithTokenizer();
    backend = await startLocalBackend({
      engine,
      clock,
      listen: false,
      logger: silent,
      apiKeys: ["tml-one-key-of-the-test", "tml-two-key-of-the-test"],
    });
  });
  afterAll(() => backend.close());
  const key = (name: string) => ({ headers: { authorization: `Bearer ${name}` } });

  it("are base models and the caller's sampler checkpoints, newest first, and each by its id", async () => {
    const door = doorOf(backend, "/oai/api/v1");
    const client = new RawClient(backend, { "x-api-key": "tml-one-key-of-the-test" });
    const { modelId } = await client.openModel();
    const save = (seqId: number, path: string) =>
      client.result(client.ok("/save_weights_for_sampler", { model_id: modelId, seq_id: seqId, path }));
    const older = await save(1, "older");
    clock.jumpWall(1100);
    const newer = await save(2, "newer");
    await client.result(client.ok("/save_weights", { model_id: modelId, seq_id: 3, path: "state" }));
    const mine = (await door.send("/models", undefined, key("tml-one-key-of-the-test"))).body;
    const data = mine["data"] as Json[];
    expect(mine["object"]).toBe("list");
    expect(data.map(({ id }) => id)).toEqual([newer["path"], older["path"], fakeModel.name]);
    for (const entry of data)
      expect(entry).toMatchObject({
        object: "model",
        created: expect.any(Number),
        owned_by: "tinkerts",
        max_model_len: fakeModel.maxContextLength,
      });
    expect(data[0]!["created"]).toBe(Math.floor(clock.wallNow() / 1000));
    const others = await door.send("/models", undefined, key("tml-two-key-of-the-test"));
    expect((others.body["data"] as Json[]).map(({ id }) => id)).toEqual([fakeModel.name]);

    const found = await door.send(
      `/models/${encodeURIComponent(String(newer["path"]))}`,
      undefined,
      key("tml-one-key-of-the-test"),
    );
    expect(found.body).toEqual(data[0]);
    expect(
      (await door.send(`/models/${fakeModel.name}`, undefined, key("tml-one-key-of-the-test"))).body,
    ).toEqual(data[2]);
    const hidden = await door.send(
      `/models/${encodeURIComponent(String(newer["path"]))}`,
      undefined,
      key("tml-two-key-of-the-test"),
    );
    expect(errorOf(hidden)).toMatchObject({ status: 404, code: "model_not_found", param: "model" });
  });

  it("need a key where the server has some, also under /v1 and for tokenizers", async () => {
    const wrong = await doorOf(backend, "").send("/v1/models", undefined, key("tml-wrong"));
    expect(errorOf(wrong)).toMatchObject({
      status: 401,
      type: "invalid_request_error",
      code: "invalid_api_key",
    });
    for (const path of ["/tokenizer_info", "/oai/api/tokenizer_info", "/v1/nothing"])
      expect((await doorOf(backend, "").send(path)).status).toBe(401);
    expect((await doorOf(backend, "").send("/tokenize", { prompt: "x" })).status).toBe(401);
  });

  it("complete chats and texts from a checkpoint", async () => {
    const door = doorOf(backend);
    const client = new RawClient(backend, { "x-api-key": "tml-one-key-of-the-test" });
    const { modelId } = await client.openModel();
    const saved = await client.result(
      client.ok("/save_weights_for_sampler", { model_id: modelId, seq_id: 1, path: "s" }),
    );
    const body = { model: saved["path"], max_tokens: 3, n: 2 };
    const chat = await door.send(
      "/chat/completions",
      { ...body, messages: hi },
      key("tml-one-key-of-the-test"),
    );
    expect(chat.body).toMatchObject({
      id: expect.stringMatching(/^chatcmpl-/),
      object: "chat.completion",
      model: saved["path"],
      choices: [
        {
          index: 0,
          message: { role: "assistant", content: expect.any(String), refusal: null },
          finish_reason: "length",
          logprobs: null,
        },
        { index: 1 },
      ],
      usage: { completion_tokens: 6 },
    });
    const text = await door.send("/completions", { ...body, prompt: "one" }, key("tml-one-key-of-the-test"));
    expect(text.body).toMatchObject({
      id: expect.stringMatching(/^cmpl-/),
      object: "text_completion",
      choices: [{ index: 0, text: expect.any(String), logprobs: null }, { index: 1 }],
    });
  });
});

describe("chats", () => {
  it("stream their text as it comes: the first token while the rest is not yet drawn", async () => {
    const { engine, door } = await scriptedFor(["Hello there"]);
    let go = () => {};
    const held = new Promise<void>((resolve) => {
      go = resolve;
    });
    engine.beforeToken = (position) => (position < 2 ? Promise.resolve() : held);
    const response = await door.fetchPath("/chat/completions", { model, messages: hi, stream: true });
    expect(response.headers.get("content-type")).toBe("text/event-stream");
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let early = "";
    while (!early.includes('"content":"H')) early += (await reader.read()).value;
    expect(early).toContain('"delta":{"role":"assistant","content":""}');
    go();
    let rest = "";
    for (let read = await reader.read(); !read.done; read = await reader.read()) rest += read.value;
    const chunks = chunksOf(eventsOf(early + rest));
    expect(chunks.map(({ choices }) => choices[0]!.delta["content"] ?? "").join("")).toBe("Hello there");
    expect(chunks.at(-1)!.choices[0]).toMatchObject({ delta: {}, finish_reason: "stop" });
    expect(chunks.every((chunk) => !("usage" in chunk))).toBe(true);
    expect(rest.trimEnd().endsWith("data: [DONE]")).toBe(true);
  });

  it("stream their usage last where it is asked for, and null before", async () => {
    const { door } = await scriptedFor(["Hello"]);
    const events = await door.stream("/chat/completions", {
      model,
      messages: hi,
      stream_options: { include_usage: true },
    });
    const chunks = chunksOf(events);
    expect(chunks.slice(0, -1).every(({ usage }) => usage === null)).toBe(true);
    const last = chunks.at(-1)!;
    expect(last.choices).toEqual([]);
    const { prompt_tokens, completion_tokens, total_tokens } = last.usage as Record<string, number>;
    expect(total_tokens).toBe(prompt_tokens! + completion_tokens!);
    expect(last.usage).toMatchObject({
      prompt_tokens_details: { cached_tokens: 1 },
      completion_tokens_details: { reasoning_tokens: 0 },
    });
    expect(events.at(-1)).toBe("[DONE]");
  });

  it("take tool calls, results, no content, thoughts and the developer's word in the history", async () => {
    const { engine, door } = await scriptedFor(["ok"], "Qwen/Qwen3-8B");
    const messages = [
      { role: "developer", content: "Be brief." },
      {
        role: "user",
        content: [
          { type: "text", text: "Weather in " },
          { type: "text", text: "Rome?" },
        ],
      },
      {
        role: "assistant",
        content: null,
        reasoning_content: "look it up",
        tool_calls: [
          { id: "call_1", type: "function", function: { name: "weather", arguments: '{"city":"Rome"}' } },
        ],
      },
      { role: "tool", tool_call_id: "call_1", content: "sunny" },
    ];
    const { status, body } = await door.send("/chat/completions", {
      model: "Qwen/Qwen3-8B",
      messages,
      tools: [WEATHER],
    });
    expect([status, body["error"]]).toEqual([200, undefined]);
    const [heard] = engine.heard;
    expect(heard).toMatch(/^<\|im_start\|>system\nBe brief\.\n\n# Tools/);
    expect(heard).toContain("Weather in Rome?");
    expect(heard).toContain('<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>');
    expect(heard).toContain("<tool_response>\nsunny\n</tool_response>");
    // Thoughts of the running turn are kept until the user speaks again.
    expect(heard).toContain("<think>\nlook it up\n</think>");
    expect(heard!.endsWith("<|im_start|>assistant\n")).toBe(true);
  });

  it("are parsed back to calls with ids of their own", async () => {
    const call = (city: string) =>
      `<tool_call>\n{"name": "weather", "arguments": {"city": "${city}"}}\n</tool_call>`;
    const said = `Let me see.\n${call("Rome")}\n${call("Oslo")}`;
    const { door } = await scriptedFor([said, said, said, said]);
    const body = { model, messages: hi, tools: [WEATHER] };
    const { choices } = (await door.send("/chat/completions", body)).body as { choices: Json[] };
    const { message, finish_reason } = choices[0] as {
      message: { content: string; tool_calls: { id: string; type: string; function: Json }[] };
      finish_reason: string;
    };
    expect(finish_reason).toBe("tool_calls");
    expect(message.content).toBe("Let me see.");
    expect(message.tool_calls.map(({ function: called }) => called)).toEqual([
      { name: "weather", arguments: '{"city": "Rome"}' },
      { name: "weather", arguments: '{"city": "Oslo"}' },
    ]);
    expect(new Set(message.tool_calls.map(({ id }) => id)).size).toBe(2);

    const chunks = chunksOf(await door.stream("/chat/completions", body)).map(
      ({ choices: [choice] }) => choice!,
    );
    expect(chunks.map(({ delta }) => delta["content"] ?? "").join("")).toBe("Let me see.");
    const calls = chunks.flatMap(({ delta }) => (delta["tool_calls"] as Json[] | undefined) ?? []);
    expect(calls).toMatchObject([
      { index: 0, id: expect.any(String), type: "function", function: { name: "weather" } },
      { index: 1, function: { arguments: '{"city": "Oslo"}' } },
    ]);
    expect(chunks.at(-1)!.finish_reason).toBe("tool_calls");

    const one = await door.send("/chat/completions", { ...body, parallel_tool_calls: false });
    expect(
      (one.body as { choices: { message: { tool_calls: Json[] } }[] }).choices[0]!.message.tool_calls,
    ).toHaveLength(1);
    const none = await door.send("/chat/completions", { ...body, tool_choice: "none" });
    expect(none.body).toMatchObject({ choices: [{ message: { content: said }, finish_reason: "stop" }] });
  });

  it("keep what looks like a call and is none as text", async () => {
    const said = "<tool_call>\nnot json\n</tool_call>";
    const { door } = await scriptedFor([said, said]);
    const body = { model, messages: hi, tools: [WEATHER] };
    expect((await door.send("/chat/completions", body)).body).toMatchObject({
      choices: [{ message: { content: said }, finish_reason: "stop" }],
    });
    const chunks = chunksOf(await door.stream("/chat/completions", body));
    expect(chunks.map(({ choices }) => choices[0]!.delta["content"] ?? "").join("")).toBe(said);
  });

  it("call a function where they must: the prompt opens the call", async () => {
    const { engine, door } = await scriptedFor([
      '{"city": "Rome"}}\n</tool_call>',
      'weather", "arguments": {}}\n</tool_call>',
    ]);
    const other = { type: "function", function: { name: "time" } };
    const tools = [WEATHER, other];
    const named = { type: "function", function: { name: "weather" } };
    const first = await door.send("/chat/completions", { model, messages: hi, tools, tool_choice: named });
    expect(engine.heard[0]!.endsWith('<tool_call>\n{"name": "weather", "arguments": ')).toBe(true);
    expect(first.body).toMatchObject({
      choices: [
        {
          message: {
            content: null,
            tool_calls: [{ function: { name: "weather", arguments: '{"city": "Rome"}' } }],
          },
          finish_reason: "tool_calls",
        },
      ],
    });
    const second = chunksOf(
      await door.stream("/chat/completions", { model, messages: hi, tools, tool_choice: "required" }),
    );
    expect(engine.heard[1]!.endsWith('<tool_call>\n{"name": "')).toBe(true);
    expect(second.flatMap(({ choices }) => choices[0]!.delta["tool_calls"] ?? [])).toMatchObject([
      { function: { name: "weather", arguments: "{}" } },
    ]);
    const unknown = { type: "function", function: { name: "nothing" } };
    const refused = await door.send("/chat/completions", {
      model,
      messages: hi,
      tools,
      tool_choice: unknown,
    });
    expect(errorOf(refused)).toMatchObject({ status: 400, param: "tool_choice" });
  });

  it("split thoughts from text, count them, and choose whether there are any", async () => {
    const thinking = "<think>\nHm, a greeting.\n</think>\n\nHello!";
    const { engine, door } = await scriptedFor([thinking, thinking, "plain", "plain"], "Qwen/Qwen3-8B");
    const body = { model: "Qwen/Qwen3-8B", messages: hi };
    const whole = (await door.send("/chat/completions", body)).body;
    expect(whole).toMatchObject({
      choices: [{ message: { content: "Hello!", reasoning_content: "Hm, a greeting." } }],
    });
    const { reasoning_tokens } = (
      whole["usage"] as { completion_tokens_details: { reasoning_tokens: number } }
    ).completion_tokens_details;
    expect(reasoning_tokens).toBeGreaterThan(4);
    expect(reasoning_tokens).toBeLessThan(
      (whole["usage"] as { completion_tokens: number }).completion_tokens,
    );
    const deltas = chunksOf(await door.stream("/chat/completions", body)).map(
      ({ choices }) => choices[0]!.delta,
    );
    expect(deltas.map((delta) => delta["reasoning_content"] ?? "").join("")).toBe("Hm, a greeting.");
    expect(deltas.map((delta) => delta["content"] ?? "").join("")).toBe("Hello!");
    expect(deltas.filter((delta) => "reasoning_content" in delta).length).toBeGreaterThan(2);

    for (const [at, wish] of [
      [2, { chat_template_kwargs: { enable_thinking: false } }],
      [3, { reasoning_effort: "none" }],
    ] as const) {
      expect((await door.send("/chat/completions", { ...body, ...wish })).status).toBe(200);
      expect(engine.heard[at]!.endsWith("<think>\n\n</think>\n\n")).toBe(true);
    }
    expect((await door.send("/chat/completions", { ...body, reasoning_effort: "high" })).status).toBe(200);
    expect(engine.heard[4]!.endsWith("<|im_start|>assistant\n")).toBe(true);
  });

  it("refuse to choose where a family has nothing to choose from", async () => {
    for (const name of [model, "some/template"]) {
      const { door } = await scriptedFor([], name);
      const body = { model: name, messages: hi };
      for (const [wish, param] of [
        [{ reasoning_effort: "low" }, "reasoning_effort"],
        [{ chat_template_kwargs: { enable_thinking: false } }, "chat_template_kwargs.enable_thinking"],
      ] as const) {
        const refused = await door.send("/chat/completions", { ...body, ...wish });
        expect(errorOf(refused)).toMatchObject({ status: 400, code: "unsupported_parameter", param });
      }
    }
  });

  it("stop at the end of the turn together with the user's texts, which are never shown", async () => {
    const { engine, door } = await scriptedFor(["one two STOP three", "one two STOP three"]);
    const body = { model, messages: hi, stop: ["STOP", "never"] };
    expect((await door.send("/chat/completions", body)).body).toMatchObject({
      choices: [{ message: { content: "one two " }, finish_reason: "stop" }],
    });
    expect(engine.requests[0]).toMatchObject({ stopTokens: [511], stopStrings: ["STOP", "never"] });
    const chunks = chunksOf(await door.stream("/chat/completions", body));
    expect(chunks.map(({ choices }) => choices[0]!.delta["content"] ?? "").join("")).toBe("one two ");
  });

  it("end an answer without showing another token that ends a text", async () => {
    const engine = new ScriptedEngine();
    engine.answers = ["Hi<|endoftext|>"];
    const [info] = await engine.models();
    engine.models = async () => [{ ...info!, eosTokenIds: [509, 511] }];
    const backend = await startLocalBackend({ engine, listen: false, logger: silent });
    onTestFinished(() => backend.close());
    const { body } = await doorOf(backend).send("/chat/completions", { model, messages: hi });
    expect(body).toMatchObject({ choices: [{ message: { content: "Hi" } }] });
    expect(engine.requests[0]!.stopTokens).toEqual([511, 509]);
  });

  it("clamp what is asked for to the room, and refuse a conversation that has none", async () => {
    const { engine, door } = await scriptedFor(["ok", "ok"]);
    const ask = (fields: Json) => door.send("/chat/completions", { model, messages: hi, ...fields });
    expect((await ask({ max_tokens: 1_000_000 })).status).toBe(200);
    expect((await ask({ max_completion_tokens: 7, max_tokens: 9 })).status).toBe(200);
    const [clamped, exact] = engine.requests;
    expect(clamped!.maxTokens).toBe(8193 - clamped!.prompt.length);
    expect(exact!.maxTokens).toBe(7);
    const long = await ask({ messages: [{ role: "user", content: "x ".repeat(20_000) }] });
    expect(errorOf(long)).toMatchObject({
      status: 400,
      type: "invalid_request_error",
      code: "context_length_exceeded",
      param: "messages",
      // Agents that do not read the code look for OpenAI's words.
      message: expect.stringMatching(
        /^This model's maximum context length is 8192 tokens\. However, your messages resulted in \d+ tokens\./,
      ) as unknown,
    });
  });

  it("say what went wrong within a stream as an event", async () => {
    const { engine, door } = await scriptedFor(["Hello there"]);
    engine.failsAt = 3;
    const events = await door.stream("/chat/completions", { model, messages: hi });
    expect(events.at(-1)).toMatchObject({ error: { type: "server_error", message: expect.any(String) } });
    engine.failsAt = 0;
    const early = await door.send("/chat/completions", { model, messages: hi, stream: true });
    expect(errorOf(early)).toMatchObject({ status: 500, type: "server_error" });
  });

  it("are cancelled when the client is gone", async () => {
    const { engine, door } = await scriptedFor(["Hello there"]);
    engine.beforeToken = (position) => (position < 2 ? Promise.resolve() : new Promise(() => {}));
    const response = await door.fetchPath("/chat/completions", { model, messages: hi, stream: true });
    const reader = response.body!.getReader();
    await reader.read();
    await reader.cancel();
    await expect.poll(() => engine.calls.some((call) => call.startsWith("cancel"))).toBe(true);
  });
});

describe("completions", () => {
  let server: Awaited<ReturnType<typeof nano>>;
  beforeAll(async () => {
    server = await nano();
  });
  afterAll(() => server.backend.close());
  const complete = async (fields: Json) => {
    const { status, body } = await server.door.send("/completions", { model, ...fields });
    expect([status, body["error"]]).toEqual([200, undefined]);
    return body as unknown as {
      choices: {
        index: number;
        text: string;
        finish_reason: string;
        logprobs: {
          tokens: string[];
          token_logprobs: (number | null)[];
          top_logprobs: (Record<string, number> | null)[];
          text_offset: number[];
        };
      }[];
      usage: Record<string, number>;
    };
  };

  it("score a prompt as harnesses ask for it: the same numbers as computeLogprobs, to the last bit", async () => {
    await using service = new ServiceClient({ ...server.backend });
    const sampler = await service.createSamplingClient({ baseModel: model });
    const tokenizer = await sampler.getTokenizer();
    const prompts = ["The capital of France is Paris.", "One, two, three, four,"].map((text) =>
      tokenizer.encode(text),
    );
    const body = await complete({
      prompt: prompts,
      temperature: 0,
      max_tokens: 1,
      logprobs: 1,
      seed: 1234,
      echo: true,
    });
    expect(body.choices.map(({ index }) => index)).toEqual([0, 1]);
    let greedy = 0;
    for (const [index, prompt] of prompts.entries()) {
      const { logprobs, text } = body.choices[index]!;
      expect(logprobs.tokens).toHaveLength(prompt.length + 1);
      const expected = await sampler.computeLogprobs(ModelInput.fromInts(prompt));
      expect(logprobs.token_logprobs.slice(0, -1)).toEqual([...expected]);
      expect(logprobs.token_logprobs[0]).toBeNull();
      expect(logprobs.top_logprobs[0]).toBeNull();
      for (const [place, top] of logprobs.top_logprobs.entries()) {
        if (top === null) continue;
        expect(top[logprobs.tokens[place]!]).toBe(logprobs.token_logprobs[place]);
        expect(Object.keys(top).length).toBeLessThanOrEqual(2);
        if (Math.max(...Object.values(top)) === logprobs.token_logprobs[place]) greedy += 1;
      }
      // The last is the one that was sampled, and greedily.
      expect(Math.max(...Object.values(logprobs.top_logprobs.at(-1)!))).toBe(logprobs.token_logprobs.at(-1));
      for (const [place, offset] of logprobs.text_offset.entries())
        expect(text.slice(offset).startsWith(logprobs.tokens[place]!)).toBe(true);
    }
    expect(greedy).toBeGreaterThan(2);
  });

  it("take a text, texts, tokens and lists of tokens, with n samples of each in order", async () => {
    for (const prompt of ["Once", ["Once", "Twice"], [1, 2, 3], [[1, 2], [3]]]) {
      const count = Array.isArray(prompt) && typeof prompt[0] !== "number" ? prompt.length : 1;
      const { choices, usage } = await complete({ prompt, n: 2, max_tokens: 3, seed: 1 });
      expect(choices.map(({ index }) => index)).toEqual(
        Array.from({ length: 2 * count }, (_, index) => index),
      );
      expect(usage["total_tokens"]).toBe(usage["prompt_tokens"]! + usage["completion_tokens"]!);
    }
    const both = await complete({ prompt: ["Once upon", "The"], n: 2, max_tokens: 8, seed: 5 });
    const one = await complete({ prompt: "The", n: 2, max_tokens: 8, seed: 5 });
    expect(both.choices.slice(2).map(({ text }) => text)).toEqual(one.choices.map(({ text }) => text));
  });

  it("refuse more logprobs than one answer may have", async () => {
    const many = { model, prompt: new Array(64).fill("a"), n: 64, max_tokens: 100, logprobs: 20 };
    const message = expect.stringContaining("the request asks for 8192000, and may have 262144");
    expect(errorOf(await server.door.send("/completions", many))).toMatchObject({
      ...{ status: 400, param: "logprobs", message },
    });
  });

  it.each([
    [
      "logprobs",
      { prompt: new Array(100).fill(20), logprobs: 20 },
      /makes 268800 logprobs, and one answer may/,
    ],
    [
      "characters",
      { prompt: new Array(64).fill("Hello, you! ".repeat(50)) },
      /makes 4915200 characters, and/,
    ],
  ])("refuse an echo whose copies have more %s than one answer may have", async (_, fields, message) => {
    const many = { model, n: 128, max_tokens: 1, echo: true, ...fields };
    expect(errorOf(await server.door.send("/completions", many))).toMatchObject({
      ...{ status: 400, param: "echo", message: expect.stringMatching(message) },
    });
  });

  it("echo a prompt and sample nothing with max_tokens 0", async () => {
    const { choices, usage } = await complete({
      prompt: "Good morning",
      max_tokens: 0,
      echo: true,
      logprobs: 2,
    });
    expect(choices[0]!.text).toBe("Good morning");
    expect(choices[0]!.finish_reason).toBe("length");
    expect(choices[0]!.logprobs.tokens.join("")).toBe("Good morning");
    expect(usage["completion_tokens"]).toBe(0);
    const silent = await complete({ prompt: "Good morning", max_tokens: 0 });
    expect(silent.choices[0]!.text).toBe("");
  });

  it("are greedy with top_p 0, repeatable with a seed, and clamped to the room", async () => {
    const ask = { prompt: "The sun", max_tokens: 12 };
    const greedy = await complete({ ...ask, temperature: 0 });
    expect((await complete({ ...ask, top_p: 0 })).choices[0]!.text).toBe(greedy.choices[0]!.text);
    const seeded = await complete({ ...ask, seed: 2 ** 60 });
    expect((await complete({ ...ask, seed: 2 ** 60 })).choices[0]!.text).toBe(seeded.choices[0]!.text);
    const { usage } = await complete({ prompt: "The sun", max_tokens: 100_000, stop: "\u0000never" });
    expect(usage["total_tokens"]).toBeLessThanOrEqual(513);
    const long = await server.door.send("/completions", { model, prompt: new Array(600).fill(5) });
    expect(errorOf(long)).toMatchObject({ status: 400, code: "context_length_exceeded", param: "prompt" });
    const foreign = await server.door.send("/completions", { model, prompt: [5, 512] });
    expect(errorOf(foreign)).toMatchObject({ status: 400, type: "invalid_request_error", param: "prompt" });
  });

  it("say how much of a prompt was cached", async () => {
    const prompt = Array.from({ length: 200 }, (_, index) => (index * 7) % 500);
    const cached = async () =>
      ((await complete({ prompt, max_tokens: 2 })).usage as unknown as { prompt_tokens_details: Json })
        .prompt_tokens_details["cached_tokens"] as number;
    await cached();
    expect(await cached()).toBeGreaterThan(100);
  });

  it("of chats are JSON where they must be, and fit their schema", async () => {
    const schema = {
      type: "object",
      properties: {
        city: { enum: ["Rome", "Zürich"] },
        days: { type: "array", items: { type: "integer" }, maxItems: 3 },
      },
      required: ["city", "days"],
      additionalProperties: false,
    };
    const formats = [{ type: "json_object" }, { type: "json_schema", json_schema: { name: "trip", schema } }];
    for (let seed = 0; seed < 20; seed += 1) {
      const format = formats[seed % 2]!;
      const body = { model, messages: hi, seed, max_tokens: 60, response_format: format, temperature: 2 };
      const whole = (await server.door.send("/chat/completions", body)).body as {
        choices: { message: { content: string }; finish_reason: string }[];
      };
      const { message, finish_reason } = whole.choices[0]!;
      const value = JSON.parse(message.content) as { city: string; days: number[] };
      expect([typeof value, finish_reason]).toEqual(["object", "stop"]);
      if (format.type === "json_schema") {
        expect(Object.keys(value).sort()).toEqual(["city", "days"]);
        expect(["Rome", "Zürich"]).toContain(value.city);
        expect(value.days.every(Number.isInteger)).toBe(true);
      }
      const chunks = chunksOf(await server.door.stream("/chat/completions", body));
      expect(chunks.map(({ choices }) => choices[0]!.delta["content"] ?? "").join("")).toBe(message.content);
    }
    const refused = async (fields: Json) =>
      errorOf(
        await server.door.send("/chat/completions", {
          model,
          messages: hi,
          response_format: formats[0],
          ...fields,
        }),
      );
    const impossible = {
      type: "json_schema",
      json_schema: { name: "x", schema: { not: { type: "object" } } },
    };
    expect(await refused({ response_format: impossible })).toMatchObject({
      status: 400,
      param: "response_format",
    });
    expect(await refused({ stop: "x" })).toMatchObject({ status: 400, type: "invalid_request_error" });
    expect(await refused({ max_tokens: 1 })).toMatchObject({ status: 400, type: "invalid_request_error" });
  });

  it("show logprobs of chats with bytes, the chosen token's from the same numbers", async () => {
    const { body } = await server.door.send("/chat/completions", {
      model,
      messages: hi,
      temperature: 0,
      max_tokens: 6,
      logprobs: true,
      top_logprobs: 3,
    });
    const [choice] = body["choices"] as {
      message: { content: string };
      logprobs: { content: { token: string; logprob: number; bytes: number[]; top_logprobs: Json[] }[] };
    }[];
    const { content } = choice!.logprobs;
    expect(new TextDecoder().decode(Uint8Array.from(content.flatMap(({ bytes }) => bytes)))).toBe(
      choice!.message.content,
    );
    for (const { token, logprob, bytes, top_logprobs } of content) {
      expect(top_logprobs).toHaveLength(3);
      expect(top_logprobs[0]).toEqual({ token, logprob, bytes });
    }
    const without = await server.door.send("/chat/completions", { model, messages: hi, max_tokens: 2 });
    expect((without.body["choices"] as Json[])[0]!["logprobs"]).toBeNull();
  });
});

describe("what is not done", () => {
  let server: Awaited<ReturnType<typeof scripted>>;
  beforeAll(async () => {
    server = await scripted();
  });
  afterAll(() => server.backend.close());

  it.each([
    ["frequency_penalty", 0.5, 0],
    ["presence_penalty", -1, 0],
    ["logit_bias", { 5: 10 }, {}],
    ["min_p", 0.1, 0],
    ["repetition_penalty", 1.1, 1],
    ["functions", [{ name: "f" }], []],
    ["modalities", ["audio"], ["text"]],
  ])("is refused by its name: %s %j, but not %j", async (param, value, neutral) => {
    const ask = (given: unknown) =>
      server.door.send("/chat/completions", { model, messages: hi, [param]: given });
    expect(errorOf(await ask(value))).toMatchObject({
      status: 400,
      type: "invalid_request_error",
      code: "unsupported_parameter",
      param,
    });
    expect((await ask(neutral)).status).toBe(200);
  });

  it("is refused where a list has more items than are worth a sentence each", async () => {
    for (const [param, value] of [
      ["messages", Array(20_000).fill("x")],
      ["messages", [{ role: "user", content: Array(20_000).fill({}) }]],
    ] as const) {
      const refused = await server.door.send("/chat/completions", { model, [param]: value });
      expect(errorOf(refused)).toMatchObject({ status: 400, code: "invalid_value", param });
    }
  });

  it("is refused for completions too: a suffix, the best of several", async () => {
    for (const [param, value] of [
      ["suffix", "x"],
      ["best_of", 3],
    ]) {
      const refused = await server.door.send("/completions", { model, prompt: "a", [String(param)]: value });
      expect(errorOf(refused)).toMatchObject({ status: 400, code: "unsupported_parameter", param });
    }
  });

  it.each([
    ["temperature", 2.1],
    ["top_p", 1.1],
    ["n", 0],
    ["n", 129],
    ["stop", ["a", "b", "c", "d", "e"]],
    ["stop", ""],
    ["top_logprobs", 21],
    ["max_tokens", 0],
    ["messages", []],
    ["messages.0.content.0", [{ role: "user", content: [{ type: "image_url", image_url: { url: "x" } }] }]],
    ["messages.0.role", [{ role: "wizard", content: "x" }]],
    ["seed", 1.5],
    ["tools.0.function.name", [{ type: "function", function: { name: "no spaces please" } }]],
  ])("is a 400 that names the field: %s", async (param, value) => {
    const field = param.split(".")[0]!;
    const refused = await server.door.send("/chat/completions", { model, messages: hi, [field]: value });
    expect(errorOf(refused)).toMatchObject({ status: 400, type: "invalid_request_error", param });
    expect(errorOf(refused).message).toContain(field);
  });

  it("has OpenAI's shape also for unknown models, routes and bodies", async () => {
    const send = doorOf(server.backend, "").send;
    for (const base of ["/v1", "/oai/api/v1"]) {
      const unknown = await send(`${base}/chat/completions`, { model: "gpt-4", messages: hi });
      expect(errorOf(unknown)).toMatchObject({
        status: 404,
        type: "invalid_request_error",
        code: "model_not_found",
        param: "model",
        message: expect.stringContaining("gpt-4"),
      });
      const broken = await send(`${base}/completions`, "{");
      expect(errorOf(broken)).toMatchObject({ status: 400, message: expect.stringContaining("JSON") });
      const missing = await send(`${base}/completions`, { prompt: "x" });
      expect(errorOf(missing)).toMatchObject({ code: "missing_required_parameter", param: "model" });
      expect(errorOf(await send(`${base}/nothing`))).toMatchObject({ status: 404, code: "unknown_url" });
      for (const left of ["embeddings"]) {
        const refused = errorOf(await send(`${base}/${left}`, { model, input: "x" }));
        expect(refused).toMatchObject({ status: 404, code: "unknown_url" });
        expect(refused.message).toContain(`does not have OpenAI's ${left}`);
      }
    }
    expect((await send("/api/v1/nothing")).body).toEqual({
      detail: "There is no GET /api/v1/nothing on this server.",
    });
  });

  it("is a 429 with a time to wait where too much is asked at once", async () => {
    const { backend, engine, door } = await scripted(undefined, { limits: { queuedSequences: 1 } });
    onTestFinished(() => backend.close());
    engine.beforeToken = () => new Promise(() => {});
    const first = door.fetchPath("/chat/completions", { model, messages: hi, n: 1 });
    await expect.poll(() => engine.requests.length).toBe(1);
    const refused = await door.send("/chat/completions", { model, messages: hi });
    expect(errorOf(refused)).toMatchObject({ status: 429, code: "rate_limit_exceeded" });
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    void first.catch(() => {});
  });

  /** A server whose model has the files of nano in a folder of its own. */
  async function startWithFolder() {
    const folder = await mkdtemp(join(tmpdir(), "tinkerts-openai-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    await cp(defaultModel.path, folder, { recursive: true });
    const engine = new ScriptedEngine();
    const [info] = await engine.models();
    engine.models = async () => [{ ...info!, tokenizerPath: folder }];
    const backend = await startLocalBackend({ engine, listen: false, logger: silent });
    onTestFinished(() => backend.close());
    const ask = (fields: Json) =>
      doorOf(backend).send("/chat/completions", { model, messages: hi, ...fields });
    return { folder, ask };
  }

  it("says why a model's tokenizer is not used, without the server's folder", async () => {
    const { folder, ask } = await startWithFolder();
    const file = join(folder, "tokenizer.json");
    const tokenizer = JSON.parse(await readFile(file, "utf8")) as { pre_tokenizer: Json };
    const split = { type: "Split", pattern: { Regex: "(a+)+$" }, behavior: "Isolated", invert: false };
    const pre_tokenizer = { type: "Sequence", pretokenizers: [split, tokenizer.pre_tokenizer] };
    await writeFile(file, JSON.stringify({ ...tokenizer, pre_tokenizer }));
    const refused = errorOf(await ask({}));
    expect(refused).toMatchObject({ status: 400, type: "invalid_request_error" });
    expect(refused.message).toContain("which repeats a group that can match one text in several ways");
    await writeFile(file, "{");
    expect(errorOf(await ask({})).message).toContain(`The tokenizer of model ${model} cannot be used`);
    expect(errorOf(await ask({})).message).not.toContain(folder);
    await rm(file);
    expect(errorOf(await ask({})).message).toContain(`Model ${model} has no tokenizer.`);
  });

  it("is a 500 in the same shape if it is unexpected", async () => {
    const { folder, ask } = await startWithFolder();
    expect((await ask({})).status).toBe(200);
    await rm(join(folder, "tokenizer.json"));
    const failed = errorOf(await ask({ logprobs: true }));
    expect(failed).toMatchObject({ status: 500, type: "server_error", code: null });
    expect(failed.message).not.toContain(folder);
  });
});

describe("tokenizers over HTTP", () => {
  it("encode, decode and say their special tokens, beside both paths", async () => {
    const { backend } = await scriptedFor([]);
    for (const base of ["", "/oai/api"]) {
      const { send } = doorOf(backend, base);
      const tokenized = await send("/tokenize", {
        prompt: "Hello é",
        add_special_tokens: false,
        return_token_strs: true,
      });
      expect(tokenized.body).toMatchObject({ count: expect.any(Number), max_model_len: 8192 });
      const { tokens, token_strs, count } = tokenized.body as {
        tokens: number[];
        token_strs: string[];
        count: number;
      };
      expect(tokens).toHaveLength(count);
      expect(token_strs).toHaveLength(count);
      expect((await send("/detokenize", { tokens })).body).toEqual({ prompt: "Hello é" });
      const info = (await send("/tokenizer_info")).body;
      expect(info).toMatchObject({
        eos_token: "<|im_end|>",
        bos_token: null,
        chat_template: expect.any(String),
      });
      const long = await send("/tokenize", { prompt: "a".repeat(2 ** 19 + 1) });
      expect(errorOf(long)).toMatchObject({
        status: 400,
        param: "prompt",
        message: expect.stringContaining("at most 524288 characters"),
      });
      const unknown = await send("/tokenize", { model: "none", prompt: "x" });
      expect(errorOf(unknown)).toMatchObject({ status: 404, code: "model_not_found" });
    }
  });
});
