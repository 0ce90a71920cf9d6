import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { LocalBackend } from "../../src/local/index.js";
import { scripted } from "./openai-server.js";
import type { ScriptedEngine } from "./scripted-engine.js";

const model = "Qwen/Qwen3-8B";
const SCHEMA = {
  type: "object" as const,
  properties: { city: { type: "string" as const } },
  required: ["city"],
  additionalProperties: false,
};
const weather = {
  type: "function",
  function: { name: "weather", description: "The weather of a city.", parameters: SCHEMA },
} satisfies OpenAI.ChatCompletionTool;
const CALL =
  '<think>\nI must look.\n</think>\n\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>';
const ANSWER = "<think>\n\n</think>\n\nSunny in Rome: 21°, ☀️.";

let backend: LocalBackend;
let engine: ScriptedEngine;
let baseURL: string;
beforeAll(async () => {
  ({ backend, engine } = await scripted(model, { listen: true, apiKeys: ["tml-key-of-the-tests"] }));
  baseURL = `${backend.baseURL}/v1`;
});
afterAll(() => backend.close());
beforeEach(() => engine.reset());

async function collect<T>(source: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of source) all.push(item);
  return all;
}

describe("the openai package", () => {
  const client = () => new OpenAI({ baseURL, apiKey: "tml-key-of-the-tests", maxRetries: 0 });
  const ask = [{ role: "user" as const, content: "Weather in Rome?" }];

  it("lists models and finds one", async () => {
    const models = await client().models.list();
    expect(models.data.map(({ id }) => id)).toEqual([model]);
    expect(await client().models.retrieve(model)).toMatchObject({ id: model, object: "model" });
  });

  it("chats, with logprobs and usage", async () => {
    engine.answers = ["Sunny."];
    const { choices, usage } = await client().chat.completions.create({
      model,
      messages: ask,
      logprobs: true,
      top_logprobs: 0,
    });
    expect(choices[0]).toMatchObject({ message: { content: "Sunny." }, finish_reason: "stop" });
    const { content } = choices[0]!.logprobs!;
    expect(content!.map(({ token }) => token).join("")).toBe("Sunny.");
    expect(content!.map(({ logprob }) => logprob)).toEqual(content!.map((_, place) => -0.5 * (place + 1)));
    expect(usage!.total_tokens).toBe(usage!.prompt_tokens + usage!.completion_tokens);
  });

  it("streams, with helpers that want roles and reasons", async () => {
    engine.answers = [ANSWER, "second"];
    const stream = client().chat.completions.stream({
      model,
      messages: ask,
      n: 2,
      stream_options: { include_usage: true },
    });
    const deltas: string[] = [];
    stream.on("content", (delta) => deltas.push(delta));
    const completion = await stream.finalChatCompletion();
    expect(completion.choices.map(({ message }) => message.content)).toEqual([
      "Sunny in Rome: 21°, ☀️.",
      "second",
    ]);
    expect(deltas.length).toBeGreaterThan(3);
    expect((await stream.totalUsage()).completion_tokens).toBeGreaterThan(5);
  });

  it("runs a tool in two steps", async () => {
    engine.answers = [CALL, ANSWER];
    const cities: unknown[] = [];
    const runner = client().chat.completions.runTools({
      model,
      messages: ask,
      tools: [
        {
          type: "function",
          function: {
            ...weather.function,
            parse: (text: string) => JSON.parse(text) as { city: string },
            function: ({ city }: { city: string }) => {
              cities.push(city);
              return "sunny, 21 degrees";
            },
          },
        },
      ],
    });
    expect(await runner.finalContent()).toBe("Sunny in Rome: 21°, ☀️.");
    expect(cities).toEqual(["Rome"]);
    expect(engine.heard[1]).toContain("<tool_response>\nsunny, 21 degrees\n</tool_response>");
  });

  it("assembles streamed calls", async () => {
    engine.answers = [CALL];
    const stream = client().chat.completions.stream({ model, messages: ask, tools: [weather] });
    const { choices } = await stream.finalChatCompletion();
    expect(choices[0]).toMatchObject({
      finish_reason: "tool_calls",
      message: { tool_calls: [{ function: { name: "weather", arguments: '{"city": "Rome"}' } }] },
    });
  });

  it("completes texts, whole and streamed", async () => {
    engine.answers = ["one", "two"];
    const whole = await client().completions.create({ model, prompt: ["a", "b"], max_tokens: 5 });
    expect(whole.choices.map(({ text }) => text).sort()).toEqual(["one", "two"]);
    engine.answers = ["streamed text"];
    let text = "";
    for await (const { choices } of await client().completions.create({ model, prompt: "a", stream: true }))
      text += choices[0]?.text ?? "";
    expect(text).toBe("streamed text");
  });

  it("throws its own classes of errors", async () => {
    const failing = (promise: PromiseLike<unknown>) =>
      Promise.resolve(promise).then(
        () => undefined,
        (error) => error,
      );
    const chats = client().chat.completions;
    const unknown = await failing(chats.create({ model: "gpt-4", messages: ask }));
    expect(unknown).toBeInstanceOf(OpenAI.NotFoundError);
    expect(unknown).toMatchObject({ status: 404, code: "model_not_found", param: "model" });
    const penalty = await failing(chats.create({ model, messages: ask, frequency_penalty: 1 }));
    expect(penalty).toBeInstanceOf(OpenAI.BadRequestError);
    expect(penalty).toMatchObject({ code: "unsupported_parameter", param: "frequency_penalty" });
    const long = await failing(
      chats.create({ model, messages: [{ role: "user", content: "x ".repeat(9000) }] }),
    );
    expect(long).toMatchObject({ status: 400, code: "context_length_exceeded" });
    const stranger = new OpenAI({ baseURL, apiKey: "tml-wrong", maxRetries: 0 });
    expect(await failing(stranger.models.list())).toBeInstanceOf(OpenAI.AuthenticationError);
    const nowhere = await failing(client().embeddings.create({ model, input: "x" }));
    expect(nowhere).toBeInstanceOf(OpenAI.NotFoundError);
    expect(String(nowhere)).toContain("embeddings");
  });

  it("gets an error for a failure in the middle of a stream", async () => {
    engine.answers = ["Sunny."];
    engine.failsAt = 2;
    const stream = await client().chat.completions.create({ model, messages: ask, stream: true });
    await expect(collect(stream)).rejects.toThrow(OpenAI.APIError);
  });

  it("ends the sample when it goes away", async () => {
    engine.answers = ["Sunny."];
    engine.beforeToken = (position) => (position < 2 ? Promise.resolve() : new Promise(() => {}));
    const before = engine.calls.length;
    const stream = await client().chat.completions.create({ model, messages: ask, stream: true });
    for await (const { choices } of stream) if (choices[0]?.delta.content) break;
    await expect.poll(() => engine.calls.slice(before).some((call) => call.startsWith("cancel"))).toBe(true);
  });
});

describe("the AI SDK", () => {
  const chatModel = () =>
    createOpenAICompatible({ name: "tinkerts", baseURL, apiKey: "tml-key-of-the-tests", includeUsage: true })(
      model,
    );
  const tools = {
    weather: tool({
      description: "The weather of a city.",
      inputSchema: jsonSchema<{ city: string }>(SCHEMA),
      execute: async ({ city }) => `sunny in ${city}`,
    }),
  };

  it("generates text with its thoughts and usage", async () => {
    engine.answers = ["<think>\nA greeting.\n</think>\n\nHello!"];
    const { text, reasoningText, usage, finishReason } = await generateText({
      model: chatModel(),
      prompt: "Hi",
    });
    expect([text, reasoningText, finishReason]).toEqual(["Hello!", "A greeting.", "stop"]);
    expect(usage.totalTokens).toBe(usage.inputTokens! + usage.outputTokens!);
    expect(usage.outputTokenDetails.reasoningTokens).toBeGreaterThan(0);
  });

  it("streams text, thoughts and usage", async () => {
    engine.answers = ["<think>\nA greeting.\n</think>\n\nHello!"];
    const result = streamText({ model: chatModel(), prompt: "Hi" });
    const pieces = await collect(result.textStream);
    expect(pieces.join("")).toBe("Hello!");
    expect(pieces.length).toBeGreaterThan(1);
    expect(await result.reasoningText).toBe("A greeting.");
    expect((await result.usage).inputTokens).toBeGreaterThan(3);
    expect(await result.finishReason).toBe("stop");
  });

  it.each(["generates", "streams"])("%s with a tool in two steps", async (how) => {
    engine.answers = [CALL, ANSWER];
    const options = { model: chatModel(), prompt: "Weather in Rome?", tools, stopWhen: stepCountIs(3) };
    const { steps, text } = how === "streams" ? streamText(options) : await generateText(options);
    expect(await text).toBe("Sunny in Rome: 21°, ☀️.");
    const [first] = await steps;
    expect(first!.toolCalls).toMatchObject([{ toolName: "weather", input: { city: "Rome" } }]);
    expect(engine.heard[1]).toContain("<tool_response>\nsunny in Rome\n</tool_response>");
  });

  it("obeys a tool choice", async () => {
    engine.answers = ['{"city": "Oslo"}}\n</tool_call>'];
    const { toolCalls } = await generateText({
      model: chatModel(),
      prompt: "Weather?",
      tools,
      toolChoice: { type: "tool", toolName: "weather" },
    });
    expect(toolCalls).toMatchObject([{ toolName: "weather", input: { city: "Oslo" } }]);
  });

  it("completes plain texts", async () => {
    engine.answers = ["done"];
    const provider = createOpenAICompatible({
      name: "tinkerts",
      baseURL,
      apiKey: "tml-key-of-the-tests",
      includeUsage: true,
    });
    const result = streamText({ model: provider.completionModel(model), prompt: "Go" });
    expect(await result.text).toBe("done");
    expect((await result.usage).outputTokens).toBeGreaterThan(0);
  });
});

describe("LangChain", () => {
  const chat = (fields: object = {}) =>
    new ChatOpenAI({
      model,
      apiKey: "tml-key-of-the-tests",
      configuration: { baseURL },
      maxRetries: 0,
      ...fields,
    });

  it("answers, with logprobs", async () => {
    engine.answers = ["Hello!"];
    const answer = await chat({ logprobs: true }).invoke("Hi");
    expect(answer.text).toBe("Hello!");
    expect(answer).toHaveProperty("usage_metadata.total_tokens", expect.any(Number));
    const { content } = answer.response_metadata["logprobs"] as { content: { token: string }[] };
    expect(content.map(({ token }) => token).join("")).toBe("Hello!");
  });

  it("streams, with usage", async () => {
    engine.answers = ["Hello there!"];
    const chunks = await collect(await chat().stream("Hi"));
    expect(chunks.map(({ text }) => text).join("")).toBe("Hello there!");
    const usages = chunks.map((chunk): { output_tokens: number } | undefined => chunk.usage_metadata);
    expect(usages.some((usage) => (usage?.output_tokens ?? 0) > 0)).toBe(true);
  });

  it("calls a tool in two steps", async () => {
    engine.answers = [CALL, ANSWER];
    const bound = chat().bindTools([weather]);
    const question = new HumanMessage("Weather in Rome?");
    const first = await bound.invoke([question]);
    expect(first.tool_calls).toMatchObject([{ name: "weather", args: { city: "Rome" } }]);
    const second = await bound.invoke([
      question,
      first,
      new ToolMessage({ content: "sunny", tool_call_id: first.tool_calls![0]!.id! }),
    ]);
    expect(second.text).toBe("Sunny in Rome: 21°, ☀️.");
  });

  it("says what went wrong", async () => {
    await expect(chat({ model: "gpt-4" }).invoke("Hi")).rejects.toMatchObject({ code: "model_not_found" });
  });
});

it("the models' list suits a picker", async () => {
  const response = await fetch(`${backend.baseURL}/oai/api/v1/models`, {
    headers: { authorization: "Bearer tml-key-of-the-tests" },
  });
  expect(response.status).toBe(200);
  const { data } = (await response.json()) as { data: { id: string }[] };
  expect(data.map(({ id }) => id)).toEqual([model]);
});

describe("JSON output", () => {
  const said = '{"city": "Rome"}';
  const constraint = { type: "json_schema", schema: SCHEMA };

  it("is asked for by the openai package", async () => {
    engine.answers = [said];
    const client = new OpenAI({ baseURL, apiKey: "tml-key-of-the-tests", maxRetries: 0 });
    const { choices } = await client.chat.completions.parse({
      model,
      messages: [{ role: "user", content: "Which city?" }],
      response_format: { type: "json_schema", json_schema: { name: "place", schema: SCHEMA, strict: true } },
    });
    expect(JSON.parse(choices[0]!.message.content!)).toEqual({ city: "Rome" });
    expect(engine.requests.at(-1)).toMatchObject({ constraint });
    expect(engine.heard[0]!.endsWith("<think>\n\n</think>\n\n")).toBe(true);
  });

  it("is asked for by the AI SDK", async () => {
    engine.answers = [said];
    const provider = createOpenAICompatible({
      name: "tinkerts",
      baseURL,
      apiKey: "tml-key-of-the-tests",
      supportsStructuredOutputs: true,
    });
    const { output } = await generateText({
      model: provider(model),
      prompt: "Which city?",
      output: Output.object({ schema: jsonSchema<{ city: string }>(SCHEMA) }),
    });
    expect(output).toEqual({ city: "Rome" });
    expect(engine.requests.at(-1)).toMatchObject({ constraint });
  });

  it("is asked for by LangChain", async () => {
    engine.answers = [said];
    const chat = new ChatOpenAI({
      model,
      apiKey: "tml-key-of-the-tests",
      configuration: { baseURL },
      maxRetries: 0,
    });
    const structured = chat.withStructuredOutput(SCHEMA, { method: "jsonSchema", name: "place" });
    expect(await structured.invoke("Which city?")).toEqual({ city: "Rome" });
    expect(engine.requests.at(-1)).toMatchObject({ constraint });
  });
});
