import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Gateway, startGateway } from "../../src/gateway/index.js";
import { ServiceClient } from "../../src/index.js";
import { startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";

// biome-ignore lint/suspicious/noExplicitAny: what the APIs answer
type Json = any;

const model = "tinkerts/nano";
/** Short, since tools take most of the model's 512 tokens. */
const parameters = { type: "object", properties: { n: { enum: [4, 7] } }, required: ["n"] };
const asTool = (name: string, more: object = {}) => ({
  type: "function",
  function: { name, parameters: { ...parameters, ...more } },
});
const named = (schema: object) => ({ type: "json_schema", json_schema: { name: "x", schema } });
const isMove = (text: string) => [4, 7].includes((JSON.parse(text) as Json)["n"]);

describe("a gateway over a server that can constrain its samples", () => {
  let backend: Awaited<ReturnType<typeof startLocalBackend>>;
  let service: ServiceClient;
  let gateway: Gateway;
  beforeAll(async () => {
    backend = await startLocalBackend({ listen: false, logger: silent });
    service = new ServiceClient({ ...backend, logLevel: "off" });
    gateway = await startGateway({ service, models: { [model]: model }, listen: false, logger: silent });
  });
  afterAll(async () => {
    await gateway.close();
    await service.close();
    await backend.close();
  });

  async function post(path: string, body: object): Promise<Json> {
    const answer = await gateway.fetch(`${gateway.url}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model, temperature: 1, ...body }),
    });
    const json = (await answer.json()) as Json;
    expect(answer.status, JSON.stringify(json)).toBe(200);
    return json;
  }
  const messages = [{ role: "user", content: "Move." }];
  const chat = async (body: object, path = "/v1") =>
    (await post(`${path}/chat/completions`, { messages, max_tokens: 60, ...body }))["choices"][0] as Json;

  it("keeps required and named calls in each API, with a model that never learnt to call", async () => {
    for (let seed = 1; seed <= 20; seed += 1) {
      const { message, finish_reason: reason } = await chat({
        tools: [asTool("move")],
        tool_choice: "required",
        seed,
      });
      expect(reason).toBe("tool_calls");
      for (const { function: called } of message.tool_calls)
        expect([called.name, isMove(called.arguments)]).toEqual(["move", true]);
    }
    const choice = { type: "function", function: { name: "move" } };
    const { message } = await chat({ tools: [asTool("move")], tool_choice: choice });
    expect(message.tool_calls.map((call: Json) => call.function.name)).toEqual(["move"]);
    const { output } = await post("/v1/responses", {
      ...{ input: "Move.", max_output_tokens: 60, tool_choice: "required" },
      tools: [{ type: "function", name: "move", parameters }],
    });
    expect(output[0]).toMatchObject({ type: "function_call", name: "move" });
    expect(isMove(output[0].arguments)).toBe(true);
    const { content, stop_reason: stop } = await post("/anthropic/v1/messages", {
      ...{ messages, max_tokens: 60, tool_choice: { type: "any" } },
      tools: [{ name: "move", input_schema: parameters }],
    });
    expect([stop, content.at(-1).type]).toEqual(["tool_use", "tool_use"]);
    expect(isMove(JSON.stringify(content.at(-1).input))).toBe(true);
  });

  it("keeps JSON schemas, also where the model may call a tool instead; streams too", async () => {
    for (const more of [{}, { tools: [asTool("move")] }]) {
      const { message } = await chat({ response_format: named(parameters), ...more, seed: 3 }, "/s/json/v1");
      expect(isMove(message.content ?? message.tool_calls[0].function.arguments)).toBe(true);
    }
    expect(
      gateway
        .sessions()
        .find(({ id }) => id === "json")
        ?.record().ignored,
    ).toEqual([]);
    const stream = await gateway.fetch(`${gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model, messages, stream: true, response_format: named(parameters) }),
    });
    const pieces = (await stream.text()).matchAll(/^data: (\{.*)$/gm);
    const text = [...pieces].map(([, event]) => (JSON.parse(event!) as Json).choices[0]?.delta.content ?? "");
    expect(isMove(text.join(""))).toBe(true);
  });

  it("asks in words for what the server's grammars cannot keep, and says so in the session", async () => {
    const odd = { properties: { list: { type: "array", uniqueItems: true } }, required: ["list"] };
    const format = await chat(
      { response_format: named({ type: "object", ...odd }), max_tokens: 8 },
      "/s/odd/v1",
    );
    expect(format.finish_reason).toMatch(/stop|length/);
    expect(
      gateway
        .sessions()
        .find(({ id }) => id === "odd")
        ?.record().ignored,
    ).toEqual(["response_format"]);
    await chat({ tools: [asTool("move", odd)], tool_choice: "required", max_tokens: 8 }, "/s/begun/v1");
    const begun = gateway
      .sessions()
      .find(({ id }) => id === "begun")!
      .record();
    expect(begun.ignored).toEqual([]);
    const sampler = await service.createSamplingClient({ baseModel: model });
    const tokenizer = await sampler.getTokenizer();
    expect(tokenizer.decode(begun.threads[0]!.turns[0]!.prompt.toInts())).toMatch(
      /"name": "move", "arguments": $/,
    );
  });
});
