import Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { LocalBackend } from "../../src/local/index.js";
import { nano, scripted } from "./openai-server.js";
import type { ScriptedEngine } from "./scripted-engine.js";

const model = "Qwen/Qwen3-8B";
const ask = [{ role: "user" as const, content: "Weather in Rome?" }];
const weather: Anthropic.Tool = {
  name: "weather",
  description: "The weather of a city.",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const CALL =
  '<think>\nI must look.\n</think>\n\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>';
const ANSWER = "<think>\nEasy.\n</think>\n\nSunny in Rome: 21°, ☀️.";
const PLAIN = "<think>\n\n</think>\n\nSunny.";

let backend: LocalBackend;
let engine: ScriptedEngine;
let client: Anthropic;
beforeAll(async () => {
  ({ backend, engine } = await scripted(model, { listen: true, apiKeys: ["tml-key-of-the-tests"] }));
  client = new Anthropic({
    baseURL: `${backend.baseURL}/anthropic`,
    apiKey: "tml-key-of-the-tests",
    maxRetries: 0,
  });
});
afterAll(() => backend.close());
beforeEach(() => engine.reset());

describe("messages", () => {
  it("are answered with thoughts, text, reasons and usage", async () => {
    engine.answers = [ANSWER];
    const message = await client.messages.create({
      model,
      max_tokens: 500,
      system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }],
      messages: ask,
    });
    expect(message).toMatchObject({
      id: expect.stringMatching(/^msg_\w{32}$/),
      type: "message",
      role: "assistant",
      model,
      content: [
        { type: "thinking", thinking: "Easy.", signature: expect.stringMatching(/^sig_\w+$/) },
        { type: "text", text: "Sunny in Rome: 21°, ☀️." },
      ],
      stop_reason: "end_turn",
      stop_sequence: null,
    });
    expect(engine.heard[0]).toMatch(
      /^<\|im_start\|>system\nBe brief\.<\|im_end\|>\n<\|im_start\|>user\nWeather/,
    );
    const counted = await client.messages.countTokens({ model, system: "Be brief.", messages: ask });
    expect(message.usage.input_tokens).toBe(counted.input_tokens);
    expect(message.usage.output_tokens).toBeGreaterThan(10);
  });

  it("end at a stop sequence, which is named, or at the limit", async () => {
    engine.answers = ["<think>\n\n</think>\n\none two END three", PLAIN];
    const options = { model, max_tokens: 400, messages: ask };
    expect(await client.messages.create({ ...options, stop_sequences: ["STOP", "END"] })).toMatchObject({
      content: [{ type: "text", text: "one two " }],
      stop_reason: "stop_sequence",
      stop_sequence: "END",
    });
    expect(await client.messages.create({ ...options, max_tokens: 3 })).toMatchObject({
      stop_reason: "max_tokens",
      stop_sequence: null,
      usage: { output_tokens: 3 },
    });
  });

  it("call tools and go on with their results", async () => {
    engine.answers = [CALL, PLAIN];
    const options = { model, max_tokens: 500, tools: [weather] };
    const first = await client.messages.create({ ...options, messages: ask });
    expect(first.stop_reason).toBe("tool_use");
    const call = first.content.find((block) => block.type === "tool_use")!;
    expect(call).toMatchObject({ name: "weather", input: { city: "Rome" } });
    const result = {
      type: "tool_result" as const,
      tool_use_id: call.id,
      content: [{ type: "text" as const, text: "21 degrees" }],
    };
    const second = await client.messages.create({
      ...options,
      messages: [
        ...ask,
        { role: "assistant", content: first.content },
        { role: "user", content: [result, { type: "text", text: "In a word?" }] },
      ],
    });
    expect(second.content).toEqual([{ type: "text", text: "Sunny." }]);
    expect(engine.heard[1]).toContain('{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>');
    expect(engine.heard[1]).toMatch(
      /<tool_response>\n21 degrees\n<\/tool_response><\|im_end\|>\n<\|im_start\|>user\nIn a word\?<\|im_end\|>/,
    );
  });

  it("must call where tool_choice says so, and cannot where it says none", async () => {
    engine.answers = ['"Rome"}}\n</tool_call>', PLAIN];
    const options = { model, max_tokens: 500, tools: [weather], messages: ask };
    await client.messages.create({ ...options, tool_choice: { type: "tool", name: "weather" } });
    expect(engine.heard[0]).toMatch(/<tool_call>\n\{"name": "weather", "arguments": [^\n]*$/);
    await client.messages.create({ ...options, tool_choice: { type: "none" } });
    expect(engine.heard[1]).not.toContain("The weather of a city.");
  });

  it("think as much as they are asked to", async () => {
    engine.answers = [PLAIN, PLAIN, PLAIN];
    const options = { model, max_tokens: 2000, messages: ask };
    await client.messages.create({ ...options, thinking: { type: "disabled" } });
    expect(engine.heard[0]).toMatch(/<think>\n\n<\/think>\n\n$/);
    await client.messages.create({ ...options, thinking: { type: "enabled", budget_tokens: 1024 } });
    await client.messages.create({ ...options, output_config: { effort: "high" } });
    for (const prompt of engine.heard.slice(1)) expect(prompt).toMatch(/<\|im_start\|>assistant\n$/);
  });
});

describe("streams", () => {
  it("say the same as whole messages, block by block", async () => {
    for (const answer of [ANSWER, CALL, PLAIN]) {
      engine.answers = [answer, answer];
      const options = { model, max_tokens: 500, messages: ask, tools: [weather] };
      const whole = await client.messages.create(options);
      const stream = client.messages.stream(options);
      const kinds: string[] = [];
      stream.on("streamEvent", (event) => kinds.push(event.type));
      const final = await stream.finalMessage();
      const withoutIds = (message: Anthropic.Message) =>
        message.content.map((block) => ({ ...block, id: "", signature: "" }));
      expect(withoutIds(final)).toEqual(withoutIds(whole));
      expect(final).toMatchObject({ stop_reason: whole.stop_reason, usage: whole.usage });
      const order = kinds.filter((kind, place) => kind !== kinds[place - 1]);
      expect(order[0]).toBe("message_start");
      expect(order.slice(-2)).toEqual(["message_delta", "message_stop"]);
      expect(kinds.filter((kind) => kind === "content_block_start")).toHaveLength(whole.content.length);
      expect(kinds.filter((kind) => kind === "content_block_stop")).toHaveLength(whole.content.length);
    }
  });

  it("begin before the answer is done", async () => {
    engine.answers = [ANSWER];
    let isHeld = true;
    let release = () => {};
    engine.beforeToken = async (position) => {
      if (position < 12 || !isHeld) return;
      await new Promise<void>((resolve) => {
        release = resolve;
      });
    };
    const stream = client.messages.stream({ model, max_tokens: 500, messages: ask });
    const thought = await new Promise<string>((resolve) => stream.on("thinking", resolve));
    expect("Easy.".startsWith(thought)).toBe(true);
    isHeld = false;
    release();
    expect((await stream.finalMessage()).content).toHaveLength(2);
  });

  it("end the sample when the client has gone", async () => {
    engine.answers = [ANSWER];
    const before = engine.calls.length;
    engine.beforeToken = async (position) => {
      if (position >= 12) await new Promise((resolve) => setTimeout(resolve, 20));
    };
    const stream = client.messages.stream({ model, max_tokens: 500, messages: ask });
    const ended = expect(stream.finalMessage()).rejects.toBeInstanceOf(Anthropic.APIUserAbortError);
    await new Promise((resolve) => stream.on("thinking", resolve));
    stream.abort();
    await ended;
    await expect.poll(() => engine.calls.slice(before).some((call) => call.startsWith("cancel"))).toBe(true);
  });

  it("tell of a failure in the middle", async () => {
    engine.answers = [ANSWER];
    engine.failsAt = 14;
    const stream = client.messages.stream({ model, max_tokens: 500, messages: ask });
    await expect(stream.finalMessage()).rejects.toThrow(/api_error.*had enough/);
  });
});

describe("errors are Anthropic's", () => {
  const options = { model, max_tokens: 100, messages: ask };
  const failure = (request: object) =>
    client.messages.create({ ...options, ...request } as Anthropic.MessageCreateParamsNonStreaming).then(
      () => "no error",
      (error: unknown) => error,
    );

  it.each([
    [
      "an unknown model",
      { model: "none" },
      Anthropic.NotFoundError,
      "not_found_error",
      /model .*none.* does not exist/,
    ],
    ["no limit", { max_tokens: undefined }, Anthropic.BadRequestError, "invalid_request_error", /max_tokens/],
    [
      "a temperature out of range",
      { temperature: 2 },
      Anthropic.BadRequestError,
      "invalid_request_error",
      /temperature/,
    ],
    [
      "what is left out",
      { mcp_servers: [{}] },
      Anthropic.BadRequestError,
      "invalid_request_error",
      /^400 .*mcp_servers is not supported/,
    ],
    [
      "an image",
      { messages: [{ role: "user", content: [{ type: "image", source: {} }] }] },
      Anthropic.BadRequestError,
      "invalid_request_error",
      /messages\.0\.content/,
    ],
    [
      "a result without a call",
      { messages: [{ role: "user", content: [{ type: "tool_result", tool_use_id: "x" }] }] },
      Anthropic.BadRequestError,
      "invalid_request_error",
      /messages\.0\.content: tool_use_id is \\"x\\"/,
    ],
    [
      "a role that names what all objects have",
      { messages: [{ role: "constructor", content: [{ type: "text", text: "Hi" }] }] },
      Anthropic.BadRequestError,
      "invalid_request_error",
      /messages\.0\.role/,
    ],
    [
      "a prefilled answer",
      { messages: [...ask, { role: "assistant", content: "Well," }] },
      Anthropic.BadRequestError,
      "invalid_request_error",
      /messages must end with a user message/,
    ],
    [
      "a tool of the server's",
      { tools: [{ type: "web_search_20250305", name: "web_search" }] },
      Anthropic.BadRequestError,
      "invalid_request_error",
      /tools\.0\.type must be custom/,
    ],
    [
      "a conversation that is too long",
      { messages: [{ role: "user", content: "word ".repeat(9000) }] },
      Anthropic.BadRequestError,
      "invalid_request_error",
      /prompt is too long: 18009 tokens > 8192 maximum/,
    ],
  ])("for %s", async (_, request, kind, type, message) => {
    const error = await failure(request);
    expect(error).toBeInstanceOf(kind);
    expect((error as InstanceType<typeof Anthropic.APIError>).error).toMatchObject({
      type: "error",
      error: { type },
    });
    expect((error as Error).message).toMatch(message);
  });

  it("also for keys, unknown routes, and what a model cannot do", async () => {
    const stranger = new Anthropic({ baseURL: client.baseURL, apiKey: "tml-other", maxRetries: 0 });
    await expect(stranger.messages.create(options)).rejects.toBeInstanceOf(Anthropic.AuthenticationError);
    const unknown = await fetch(`${client.baseURL}/v1/nothing`, {
      headers: { "x-api-key": "tml-key-of-the-tests" },
    });
    expect(await unknown.json()).toMatchObject({ type: "error", error: { type: "not_found_error" } });
  });
});

describe("a real model", () => {
  it("answers the same whole and in a stream, for those who want no thoughts too", async () => {
    const { backend: real } = await nano();
    const talk = new Anthropic({
      baseURL: "http://localhost/anthropic",
      apiKey: "tml-local",
      fetch: real.fetch,
      maxRetries: 0,
    });
    const options = {
      model: "tinkerts/nano",
      max_tokens: 40,
      top_k: 1,
      thinking: { type: "disabled" as const },
      messages: [{ role: "user" as const, content: "Spell cat." }],
    };
    const whole = await talk.messages.create(options);
    const streamed = await talk.messages.stream(options).finalMessage();
    expect(streamed.content).toEqual(whole.content);
    expect(whole.content[0]).toMatchObject({ type: "text" });
    await expect(
      talk.messages.create({ ...options, thinking: undefined, output_config: { effort: "low" } } as never),
    ).rejects.toThrow(/output_config\.effort cannot be low with tinkerts\/nano/);
    const schema = {
      type: "object",
      properties: { word: { type: "string", enum: ["cat", "dog"] } },
      required: ["word"],
    };
    const format = { type: "json_schema" as const, schema: { ...schema, additionalProperties: false } };
    const held = await talk.messages.create({ ...options, output_config: { format } });
    const [said] = held.content;
    expect(["cat", "dog"]).toContain(JSON.parse(said?.type === "text" ? said.text : "").word);
    const wrong = { ...options, output_config: { format: { ...format, schema: { type: "nothing" } } } };
    await expect(talk.messages.create(wrong)).rejects.toThrow(/400 .*output_config\.format/);
    await real.close();
  });
});
