import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterEach, describe, expect, it, vi } from "vitest";
import {
  type Gateway,
  type GatewayOptions,
  readSessions,
  type SessionRecord,
  startGateway,
} from "../../src/gateway/index.js";
import { conversationRows } from "../../src/gateway/recording/export-rows.js";
import { silent } from "../local/raw-client.js";
import { folderForTests } from "../support/folder-for-tests.js";
import { ScriptedSampler } from "./scripted-sampler.js";
import { add, runAgent } from "./tool-agent.js";

const root = folderForTests("upstream");
const KEY = "sk-a-secret-of-the-agent";
let open: { close(): Promise<void> | void }[] = [];
let count = 0;
afterEach(async () => {
  for (const each of open.reverse()) await each.close();
  open = [];
});

/** A service with these APIs: a gateway over a script, as its clients see it. */
async function service(...answers: string[]): Promise<string> {
  const { sampler } = new ScriptedSampler(...answers);
  const behind = await startGateway({ models: { nano: sampler }, maxContextLength: 8192, logger: silent });
  open.push(behind);
  return behind.url;
}

async function passing(
  upstream: string,
  options: GatewayOptions = {},
): Promise<Gateway & { folder: string }> {
  const folder = join(root, String(count++));
  const gateway = await startGateway({ upstream, record: folder, logger: silent, ...options });
  open.push(gateway);
  return Object.assign(gateway, { folder });
}

/** A service that answers by hand, and what it was asked. */
async function byHand(
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<{ url: string; asked: IncomingMessage[] }> {
  const asked: IncomingMessage[] = [];
  const server: Server = createServer((request, response) => {
    asked.push(request);
    request.resume().on("end", () => answer(request, response));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  open.push({
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

async function recorded(folder: string): Promise<SessionRecord[]> {
  const found: SessionRecord[] = [];
  for await (const session of readSessions(folder)) found.push(session);
  return found;
}

const openai = (baseURL: string) => new OpenAI({ baseURL, apiKey: KEY, maxRetries: 0 });
describe("a gateway that passes requests on", () => {
  it.each([false, true])(
    "records a chat's loop as one conversation to train on (streamed: %s)",
    async (isStreamed) => {
      const gateway = await passing(await service(add(1), `Let me see.\n${add(2)}`, "It is 9."));
      const episode = gateway.session({ id: "mine", tags: ["sums"] });
      expect(await runAgent(openai(episode.baseURL), "What is 4 + 5?", isStreamed)).toBe("It is 9.");
      episode.setReward(1);
      const record = await episode.end();
      expect(record).toMatchObject({
        counts: { requests: 3, failures: 0, unfinished: 0, sampledTokens: 0 },
        threads: [
          {
            turns: [],
            passed: [{ messageCount: 1 }, { messageCount: 3 }, { messageCount: 5, model: "gpt-4o" }],
          },
        ],
      });
      expect(record.threads).toHaveLength(1);
      const [again] = await recorded(gateway.folder);
      expect(again).toMatchObject(JSON.parse(JSON.stringify(record)));
      const [row] = conversationRows(again!);
      expect(row).toMatchObject({
        ...{ session: "mine", reward: 1, tags: ["sums"], tools: [{ function: { name: "add" } }] },
        messages: [
          { role: "user", content: "What is 4 + 5?" },
          { role: "assistant", tool_calls: [{ function: { name: "add", arguments: '{"a": 1}' } }] },
          { role: "tool", content: "7" },
          { role: "assistant", content: "Let me see." },
          { role: "tool" },
          { role: "assistant", content: "It is 9." },
        ],
      });
      expect(row!.messages.some((message) => "weight" in message)).toBe(false);
      for (const file of ["sessions.jsonl", join("capture", "sample.jsonl")])
        expect(await readFile(join(gateway.folder, file), "utf8")).not.toContain(KEY);
    },
  );

  it("reads Anthropic's messages and OpenAI's responses, whole and streamed; conversations find their session", async () => {
    const url = await service(add(1), "seven", "one", "two", "three");
    const gateway = await passing(`${url}/v1`);
    const anthropic = new Anthropic({ baseURL: `${gateway.url}/anthropic`, apiKey: KEY, maxRetries: 0 });
    const body = {
      model: "claude-x",
      max_tokens: 50,
      tools: [{ name: "add", input_schema: { type: "object" as const } }],
    };
    const question: Anthropic.MessageParam = { role: "user", content: "3 + 4?" };
    const first = await anthropic.messages.stream({ ...body, messages: [question] }).finalMessage();
    const { id } = first.content.find((block) => block.type === "tool_use")!;
    const result: Anthropic.MessageParam = {
      role: "user",
      content: [{ type: "tool_result", tool_use_id: id, content: "7" }],
    };
    const told = { role: "assistant" as const, content: first.content };
    await anthropic.messages.create({ ...body, messages: [question, told, result] });
    const client = openai(`${gateway.url}/v1`);
    const one = await client.responses.create({ model: "m", input: "First?" });
    const two = await client.responses
      .stream({ model: "m", input: "Second?", previous_response_id: one.id })
      .finalResponse();
    await client.responses.create({ model: "m", input: "Third?", previous_response_id: two.id });
    await client.models.list();
    await gateway.close();
    const sessions = await recorded(gateway.folder);
    expect(
      sessions.map(({ threads }) => threads.map(({ messages }) => messages.map(({ content }) => content))),
    ).toEqual([[["3 + 4?", "", "7", "seven"]], [["First?", "one", "Second?", "two", "Third?", "three"]]]);
    expect(sessions.map(({ counts }) => counts.requests)).toEqual([2, 3]);
  });

  it("passes keys on, or sends its own in their place; a session's key is never passed on", async () => {
    const upstream = await byHand((_, response) => {
      response.setHeader("content-type", "application/json");
      response.setHeader("x-request-id", "req-1");
      response.setHeader("set-cookie", "a=b");
      response.end(
        JSON.stringify({
          model: "big",
          choices: [{ message: { role: "assistant", content: "Hi." }, finish_reason: "stop" }],
        }),
      );
    });
    const ask = (url: string, headers: Record<string, string>) =>
      fetch(`${url}/v1/chat/completions?x=1`, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "?" }] }),
      });
    const open = await passing(upstream.url);
    const given = { authorization: `Bearer ${KEY}`, cookie: "c=d", "openai-project": "p" };
    const answer = await ask(open.url, { ...given, "x-tinkerts-session": "named" });
    expect(answer.headers.get("x-request-id")).toBe("req-1");
    expect(answer.headers.get("set-cookie")).toBeNull();
    expect(await answer.json()).toMatchObject({ model: "big" });
    expect(upstream.asked[0]).toMatchObject({ url: "/v1/chat/completions?x=1" });
    const { headers } = upstream.asked[0]!;
    expect(headers).toMatchObject({ authorization: `Bearer ${KEY}`, "openai-project": "p" });
    expect(headers).not.toHaveProperty("cookie");
    expect(headers).not.toHaveProperty("x-tinkerts-session");
    expect(open.sessions().map(({ id }) => id)).toEqual(["named"]);
    const refused = await ask(open.url, { authorization: `Bearer ${open.session({ id: "s" }).apiKey}` });
    expect(refused.status).toBe(401);
    expect(upstream.asked).toHaveLength(1);
    const guarded = await passing(upstream.url, {
      apiKeys: ["tml-key-of-this-gateway"],
      upstreamApiKey: "sk-key-for-the-service",
    });
    expect((await ask(guarded.url, given)).status).toBe(401);
    const { apiKey } = guarded.session();
    expect((await ask(guarded.url, { authorization: `Bearer ${apiKey}` })).status).toBe(200);
    expect(upstream.asked[1]!.headers.authorization).toBe("Bearer sk-key-for-the-service");
    expect(JSON.stringify(upstream.asked[1]!.headers)).not.toContain(apiKey);
  });

  it("passes failures and odd answers on as they are, and records no half answer", async () => {
    const answers = [
      (response: ServerResponse) => {
        response.writeHead(429, { "content-type": "application/json", "retry-after": "7" });
        response.end('{"error":{"message":"slow down"}}');
      },
      (response: ServerResponse) => {
        response.writeHead(200, { "content-type": "application/json" });
        response.end("no JSON");
      },
      (response: ServerResponse) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write('data: {"choices":[{"index":0,"delta":{"content":"half"}}]}\n\n');
      },
    ];
    const upstream = await byHand((_, response) => answers.shift()!(response));
    const gateway = await passing(upstream.url);
    const episode = gateway.session();
    const client = openai(episode.baseURL);
    const body = { model: "m", messages: [{ role: "user" as const, content: "?" }] };
    await expect(client.chat.completions.create(body)).rejects.toMatchObject({
      status: 429,
      headers: expect.toSatisfy((headers: Headers) => headers.get("retry-after") === "7"),
    });
    const raw = (more = {}, signal?: AbortSignal) =>
      fetch(`${episode.baseURL}/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ ...body, ...more }),
        ...(signal && { signal }),
      });
    expect(await (await raw()).text()).toBe("no JSON");
    const gone = new AbortController();
    const streamed = await raw({ stream: true }, gone.signal);
    const { value } = await streamed.body!.getReader().read();
    expect(new TextDecoder().decode(value)).toContain("half");
    gone.abort();
    await vi.waitFor(() => expect(episode.record().counts.unfinished).toBe(1));
    expect(await episode.end()).toMatchObject({ threads: [], counts: { requests: 3, failures: 1 } });
  });

  it("says what is wrong with its upstream", async () => {
    for (const upstream of ["openai.com", "ftp://a.b", "https://user:secret@a.b/v1", "https://a.b/v1?key=1"])
      await expect(startGateway({ upstream })).rejects.toThrow("upstream must be an address such as");
    const { sampler } = new ScriptedSampler();
    await expect(startGateway({ upstream: "http://a.b", models: { a: sampler } })).rejects.toThrow(
      "models must be absent with upstream",
    );
    await expect(
      startGateway({ upstream: "http://a.b", apiKeys: ["tml-key-of-this-gateway"] }),
    ).rejects.toThrow("upstreamApiKey must be a key for the upstream service");
    await expect(startGateway({ upstreamApiKey: "sk-something" })).rejects.toThrow(
      "upstream must be the address",
    );
    const { url } = await passing("http://127.0.0.1:9");
    await expect(openai(`${url}/v1`).models.list()).rejects.toMatchObject({
      status: 502,
      message: expect.stringContaining("could not be reached"),
    });
  });
});
