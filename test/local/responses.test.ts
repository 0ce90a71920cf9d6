import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { LocalBackend } from "../../src/local/index.js";
import { doorOf, scripted } from "./openai-server.js";
import type { ScriptedEngine } from "./scripted-engine.js";

const model = "Qwen/Qwen3-8B";
const weather = {
  type: "function" as const,
  name: "weather",
  description: "The weather of a city.",
  strict: true,
  parameters: {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  },
};
const CALL =
  '<think>\nI must look.\n</think>\n\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>';
const ANSWER = "<think>\nEasy.\n</think>\n\nSunny in Rome: 21°, ☀️.";
const SAID = "Sunny in Rome: 21°, ☀️.";
const question = { role: "user" as const, content: "Weather in Rome?" };

let backend: LocalBackend;
let engine: ScriptedEngine;
let client: OpenAI;
const KEYS = ["tml-key-of-the-tests", "tml-another-key-of-the-tests"];
beforeAll(async () => {
  ({ backend, engine } = await scripted(model, { listen: true, apiKeys: KEYS }));
  client = clientOf(KEYS[0]!);
});
afterAll(() => backend.close());
beforeEach(() => engine.reset());

type Ask = OpenAI.Responses.ResponseCreateParamsNonStreaming;

const clientOf = (apiKey: string) => new OpenAI({ baseURL: `${backend.baseURL}/v1`, apiKey, maxRetries: 0 });

async function streamed(params: Partial<OpenAI.Responses.ResponseCreateParamsStreaming>) {
  const events: OpenAI.Responses.ResponseStreamEvent[] = [];
  for await (const event of await client.responses.create({ model, stream: true, ...params }))
    events.push(event);
  return events;
}

/** Without ids and times, which are different each time. */
function shape(value: unknown): unknown {
  const text = JSON.stringify(value, (key, inner: unknown) =>
    /^(id|call_id|created_at|store)$/.test(key) ? "-" : inner,
  );
  return JSON.parse(text);
}

describe("a response", () => {
  it("has thoughts, text and usage, and what was asked", async () => {
    engine.answers = [ANSWER];
    const response = await client.responses.create({
      model,
      instructions: "Be brief.",
      input: "Weather in Rome?",
      metadata: { run: "7" },
    });
    expect(response).toMatchObject({
      object: "response",
      status: "completed",
      model,
      instructions: "Be brief.",
      metadata: { run: "7" },
      output_text: SAID,
      output: [
        { type: "reasoning", summary: [{ type: "summary_text", text: "Easy." }] },
        { type: "message", role: "assistant", status: "completed" },
      ],
    });
    const { usage } = response;
    expect(usage!.total_tokens).toBe(usage!.input_tokens + usage!.output_tokens);
    expect(usage!.output_tokens_details.reasoning_tokens).toBeGreaterThan(0);
    expect(engine.heard[0]).toMatch(
      /^<\|im_start\|>system\nBe brief\.<\|im_end\|>\n<\|im_start\|>user\nWeather/,
    );
    const counted = await client.responses.inputTokens.count({
      model,
      instructions: "Be brief.",
      input: "Weather in Rome?",
    });
    expect(counted.input_tokens).toBe(usage!.input_tokens);
  });

  it("says in events what it says whole", async () => {
    for (const answer of [ANSWER, CALL, "Plain.", "<think>\nHm.\n</think>\n\n"]) {
      engine.answers = [answer, answer];
      const params = { input: [question], tools: [weather] };
      const whole = await client.responses.create({ model, ...params });
      const events = await streamed(params);
      expect(events.map(({ sequence_number }) => sequence_number)).toEqual(events.map((_, place) => place));
      expect(events.slice(0, 2).map(({ type }) => type)).toEqual([
        "response.created",
        "response.in_progress",
      ]);
      const last = events.at(-1) as OpenAI.Responses.ResponseCompletedEvent;
      expect(last.type).toBe("response.completed");
      expect(shape(last.response)).toEqual(shape({ ...whole, output_text: undefined }));
      const done = events.filter((event) => event.type === "response.output_item.done");
      expect(done.map(({ item }) => item)).toEqual(last.response.output);
      const ids = last.response.output.map(({ id }) => id);
      expect(new Set(ids).size).toBe(ids.length);
    }
  });

  it("streams text as it is sampled, in the order that clients put together", async () => {
    engine.answers = [ANSWER];
    const stream = client.responses.stream({ model, input: [question] });
    const deltas: string[] = [];
    const kinds: string[] = [];
    stream.on("response.output_text.delta", ({ delta }) => deltas.push(delta));
    stream.on("event", ({ type }) => kinds.push(type.replace("response.", "")));
    const final = await stream.finalResponse();
    expect(final.output_text).toBe(SAID);
    expect(deltas.length).toBeGreaterThan(3);
    expect(deltas.join("")).toBe(SAID);
    expect(kinds.filter((kind, place) => kind !== kinds[place - 1])).toEqual([
      "created",
      "in_progress",
      "output_item.added",
      "reasoning_summary_part.added",
      "reasoning_summary_text.delta",
      "reasoning_summary_text.done",
      "reasoning_summary_part.done",
      "output_item.done",
      "output_item.added",
      "content_part.added",
      "output_text.delta",
      "output_text.done",
      "content_part.done",
      "output_item.done",
      "completed",
    ]);
  });

  it("is incomplete at its limit, whole and streamed", async () => {
    engine.answers = [ANSWER, ANSWER];
    const cut = { input: [question], max_output_tokens: 3 };
    const whole = await client.responses.create({ model, ...cut });
    expect(whole).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "max_output_tokens" },
    });
    expect((await streamed(cut)).at(-1)!.type).toBe("response.incomplete");
  });

  it("has logprobs where they are included", async () => {
    engine.answers = ["Sunny."];
    const response = await client.responses.create({
      model,
      input: [question],
      include: ["message.output_text.logprobs"],
    });
    const [message] = response.output;
    const [part] = (message as OpenAI.Responses.ResponseOutputMessage).content;
    const { logprobs } = part as OpenAI.Responses.ResponseOutputText;
    expect(logprobs!.map(({ token }) => token).join("")).toBe("Sunny.");
  });
});

describe("a conversation", () => {
  const result = (callId: string) => ({
    type: "function_call_output" as const,
    call_id: callId,
    output: "sunny, 21 degrees",
  });
  const callIn = ({ output }: OpenAI.Responses.Response) =>
    output.find((item) => item.type === "function_call")!;

  it.each([
    [
      "whole, sent again",
      (first: OpenAI.Responses.Response) => ({
        input: [question, ...first.output, result(callIn(first).call_id)],
      }),
    ],
    [
      "by previous_response_id",
      (first: OpenAI.Responses.Response) => ({
        previous_response_id: first.id,
        input: [result(callIn(first).call_id)],
      }),
    ],
    [
      "by references to its items",
      (first: OpenAI.Responses.Response) => ({
        input: [
          question,
          ...first.output.map(({ id }) => ({ type: "item_reference" as const, id: id! })),
          result(callIn(first).call_id),
        ],
      }),
    ],
    [
      "with thoughts that are sealed",
      (first: OpenAI.Responses.Response) => ({
        input: [
          question,
          ...first.output.map((item) =>
            item.type === "reasoning" ? { ...item, id: undefined as never, summary: [] } : item,
          ),
          result(callIn(first).call_id),
        ],
      }),
    ],
  ])("goes on %s", async (_, next) => {
    engine.answers = [CALL, ANSWER];
    const tools = [weather];
    const first = await client.responses.create({
      model,
      input: [question],
      tools,
      include: ["reasoning.encrypted_content"],
    });
    expect(callIn(first)).toMatchObject({ name: "weather", status: "completed" });
    expect(JSON.parse(callIn(first).arguments)).toEqual({ city: "Rome" });
    const second = await client.responses.create({ model, tools, ...next(first) } as Ask);
    expect(second.output_text).toBe(SAID);
    const [asked, answered] = engine.heard;
    expect(answered).toContain(asked!.replace(/assistant\n$/, ""));
    expect(answered).toMatch(
      /I must look\.[\s\S]*"name": "weather"[\s\S]*<tool_response>\nsunny, 21 degrees\n<\/tool_response>/,
    );
  });

  it("has one message for each answer, also where calls and results alternate", async () => {
    const TWO = `${CALL}\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>`;
    engine.answers = [TWO, "Both."];
    const tools = [weather];
    const first = await client.responses.create({ model, input: [question], tools });
    const calls = first.output.filter((item) => item.type === "function_call");
    expect(calls).toHaveLength(2);
    await client.responses.create({
      model,
      tools,
      input: [question, ...calls.flatMap((call) => [call, result(call.call_id)])],
    });
    expect(engine.heard[1]!.match(/<\|im_start\|>assistant/g)).toHaveLength(2);
  });

  it("is kept for its owner alone, until it is deleted", async () => {
    engine.answers = ["One.", "Two.", "Three."];
    const first = await client.responses.create({ model, input: "1" });
    const second = await client.responses.create({ model, input: "2", previous_response_id: first.id });
    const items = await client.responses.inputItems.list(second.id, { order: "asc" });
    expect(items.data.map((item) => "content" in item && item.content)).toMatchObject([
      "1",
      [{ text: "One." }],
      "2",
    ]);
    const page = await client.responses.inputItems.list(second.id, { limit: 2 });
    expect(page).toMatchObject({ has_more: true, data: [{ content: "2" }, { type: "message" }] });
    expect(await client.responses.retrieve(first.id)).toMatchObject({ id: first.id, output_text: "One." });
    const other = clientOf(KEYS[1]!);
    await expect(other.responses.retrieve(first.id)).rejects.toThrow(OpenAI.NotFoundError);
    const stolen = { model, input: "3", previous_response_id: first.id };
    await expect(other.responses.create(stolen)).rejects.toMatchObject({
      status: 400,
      code: "previous_response_not_found",
    });
    await client.responses.delete(first.id);
    await expect(client.responses.retrieve(first.id)).rejects.toThrow(OpenAI.NotFoundError);
    const unkept = await client.responses.create({ model, input: "4", store: false });
    await expect(client.responses.retrieve(unkept.id)).rejects.toThrow(OpenAI.NotFoundError);
  });
});

describe("tools", () => {
  it("may take free text, and may be in a namespace", async () => {
    const call = (name: string, given: object) =>
      `<tool_call>\n${JSON.stringify({ name, arguments: given })}\n</tool_call>`;
    engine.answers = [`${call("patch", { input: "*** Begin" })}\n${call("crm__find", { id: 7 })}`, "Done."];
    const tools: OpenAI.Responses.Tool[] = [
      { type: "custom", name: "patch", description: "Applies a patch." },
      {
        type: "namespace",
        name: "crm",
        description: "Customers.",
        tools: [{ type: "function", name: "find", parameters: { type: "object", properties: {} } }],
      },
    ];
    const events = await streamed({ input: [question], tools });
    const { response } = events.at(-1) as OpenAI.Responses.ResponseCompletedEvent;
    expect(response.output).toMatchObject([
      { type: "custom_tool_call", name: "patch", input: "*** Begin" },
      { type: "function_call", namespace: "crm", name: "find", arguments: expect.stringContaining("7") },
    ]);
    const [patch, find] = response.output as [
      OpenAI.Responses.ResponseCustomToolCall,
      OpenAI.Responses.ResponseFunctionToolCall,
    ];
    await client.responses.create({
      model,
      tools,
      input: [
        question,
        patch,
        find,
        { type: "custom_tool_call_output", call_id: patch.call_id, output: "applied" },
        { type: "function_call_output", call_id: find.call_id, output: "found" },
      ],
    });
    expect(engine.heard[1]).toMatch(
      /"name": "patch", "arguments": {"input": "\*\*\* Begin"}[\s\S]*"name": "crm__find"/,
    );
    expect(engine.heard[1]).toContain("<tool_response>\nfound\n</tool_response>");
  });

  it("are chosen, or left out, as asked", async () => {
    engine.answers = ['{"city": "Rome"}}\n</tool_call>', "No."];
    const tools = [weather];
    const forced = await client.responses.create({
      model,
      input: [question],
      tools,
      tool_choice: { type: "function", name: "weather" },
    });
    expect(forced.output).toMatchObject([{ type: "function_call", name: "weather" }]);
    const none = await client.responses.create({ model, input: [question], tools, tool_choice: "none" });
    expect(none.output_text).toBe("No.");
    expect(engine.heard[1]).not.toContain('weather"');
  });
});

describe("what is not done", () => {
  it.each([
    ["tools.0.type", { tools: [{ type: "web_search" }] }],
    [
      "tools.0.format",
      {
        tools: [{ type: "custom", name: "x", format: { type: "grammar", syntax: "lark", definition: "x" } }],
      },
    ],
    ["tool_choice", { tool_choice: { type: "file_search" } }],
    ["input.0.type", { input: [{ type: "web_search_call", id: "ws_1" }] }],
    [
      "input.0.content.0",
      { input: [{ role: "user", content: [{ type: "input_image", image_url: "data:" }] }] },
    ],
    ["background", { background: true }],
    ["conversation", { conversation: "conv_1" }],
    ["prompt", { prompt: { id: "pmpt_1" } }],
    ["truncation", { truncation: "auto" }],
    ["text.verbosity", { text: { verbosity: "low" } }],
    ["input.0", { input: [{ id: "msg_nowhere" }] }],
    ["input", { input: [{ type: "function_call_output", call_id: "call_1", output: "x" }] }],
    ["input", { input: [] }],
    ["max_output_tokens", { max_output_tokens: 0 }],
    ["model", { model: undefined }],
  ])("is a 400 that names %s", async (param, more) => {
    const send = doorOf(backend).send;
    const headers = { authorization: `Bearer ${KEYS[0]}` };
    const { status, body } = await send("/responses", { model, input: "Hi", ...more }, { headers });
    expect({ status, ...(body["error"] as object) }).toMatchObject({
      status: 400,
      type: "invalid_request_error",
      param,
    });
  });

  it("is taken where it changes nothing", async () => {
    engine.answers = ["Yes."];
    const response = await client.responses.create({
      model,
      input: "Hi",
      include: ["reasoning.encrypted_content", "web_search_call.action.sources"],
      prompt_cache_key: "x",
      safety_identifier: "y",
      service_tier: "auto",
      truncation: "disabled",
      reasoning: { summary: "auto" },
    });
    expect(response.output_text).toBe("Yes.");
  });

  it("is an event if a prompt is too long for a stream, and a 400 elsewhere", async () => {
    const long = { input: "word ".repeat(9000) };
    const last = (await streamed(long)).at(-1) as OpenAI.Responses.ResponseFailedEvent;
    expect(last).toMatchObject({
      type: "response.failed",
      response: { status: "failed", error: { code: "context_length_exceeded" } },
    });
    await expect(client.responses.create({ model, ...long })).rejects.toMatchObject({
      status: 400,
      code: "context_length_exceeded",
    });
  });
});
