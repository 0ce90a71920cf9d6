import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterEach, describe, expect, it } from "vitest";
import { type Gateway, type GatewayOptions, mainThread, startGateway } from "../../src/gateway/index.js";
import { GoneError, type SamplingClient, type ServiceClient } from "../../src/index.js";
import { silent } from "../local/raw-client.js";
import { FakeClock } from "../support/fake-clock.js";
import { ScriptedSampler } from "./scripted-sampler.js";
import { add, runAgent } from "./tool-agent.js";

let gateway: Gateway | undefined;
afterEach(async () => {
  await gateway?.close();
  gateway = undefined;
});

async function start(script: ScriptedSampler, options: GatewayOptions = {}): Promise<Gateway> {
  gateway = await startGateway({
    models: { nano: script.sampler },
    maxContextLength: 8192,
    logger: silent,
    ...options,
  });
  return gateway;
}

const openai = (baseURL: string, apiKey = "none") => new OpenAI({ baseURL, apiKey, maxRetries: 0 });

describe("a session", () => {
  it.each([false, true])(
    "holds an agent's loop in one thread of the tokens that were sampled (streamed: %s)",
    async (isStreamed) => {
      const script = new ScriptedSampler(add(1), `Let me see.\n${add(2)}`, "It is 9.");
      const { session } = await start(script);
      const episode = session({ problem: { question: "4 + 5" }, group: 3, step: 7, tags: ["sums"] });
      expect(await runAgent(openai(episode.baseURL), "What is 4 + 5?", isStreamed)).toBe("It is 9.");
      episode.setReward(1);
      const record = await episode.end();
      expect(record).toMatchObject({
        ...{ problem: { question: "4 + 5" }, group: 3, step: 7, tags: ["sums"], reward: 1, end: "ended" },
        counts: { requests: 3, failures: 0, unfinished: 0 },
        threads: [
          {
            turns: [{ messageCount: 1 }, { messageCount: 3 }, { messageCount: 5 }],
            tools: [{ name: "add" }],
          },
        ],
      });
      const [{ turns, messages }] = record.threads as [(typeof record.threads)[0]];
      expect(
        turns
          .slice(1)
          .map(({ prompt }, at) =>
            prompt.toInts().slice(0, turns[at]!.prompt.length + turns[at]!.tokens.length),
          ),
      ).toEqual(turns.slice(0, -1).map(({ prompt, tokens }) => [...prompt.toInts(), ...tokens]));
      expect(messages.map(({ role }) => role)).toEqual([
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
      ]);
      expect(mainThread(record)).toBe(record.threads[0]);
    },
  );

  it("speaks Anthropic's API too, also where its clients look by themselves", async () => {
    const script = new ScriptedSampler(add(1), "It is 7.", "Hello.");
    const { session, url } = await start(script);
    const episode = session();
    const client = new Anthropic({
      baseURL: episode.anthropicBaseURL,
      apiKey: episode.apiKey,
      maxRetries: 0,
    });
    const request = {
      ...{ model: "claude-haiku-4-5", max_tokens: 100 },
      tools: [{ name: "add", input_schema: { type: "object" as const } }],
    };
    const question = { role: "user" as const, content: "What is 3 + 4?" };
    const first = await client.messages.create({ ...request, messages: [question] });
    const [call] = first.content;
    const result = { type: "tool_result" as const, tool_use_id: (call as { id: string }).id, content: "7" };
    const messages = [
      question,
      { role: "assistant" as const, content: first.content },
      { role: "user" as const, content: [result] },
    ];
    const last = await client.messages.create({ ...request, messages });
    expect(last.content).toMatchObject([{ type: "text", text: "It is 7." }]);
    const record = await episode.end();
    expect(record.threads).toHaveLength(1);
    const root = new Anthropic({ baseURL: `${url}/r/run/one/iter/2/group/5`, apiKey: "none", maxRetries: 0 });
    await root.messages.create({ ...request, messages: [question] });
    expect(gateway!.sessions().map((each) => each.record())).toMatchObject([
      { id: "run-one.iter-2.group-5", step: 2, group: 5, tags: ["run=one"] },
    ]);
  });

  it("is found by its key, by a header, or by the conversation it continues", async () => {
    const script = new ScriptedSampler(add(1), "one", add(2), "two", "by key", "by header");
    const { session, url, sessions } = await start(script);
    expect(await runAgent(openai(`${url}/v1`), "First?")).toBe("one");
    expect(await runAgent(openai(`${url}/v1`), "First?")).toBe("two");
    expect(sessions().map((each) => each.record().counts.requests)).toEqual([2, 2]);
    const keyed = session({ id: "keyed" });
    await runAgent(openai(`${url}/v1`, keyed.apiKey), "Key?");
    expect(keyed.record().counts.requests).toBe(1);
    const named = new OpenAI({
      baseURL: `${url}/v1`,
      apiKey: "none",
      defaultHeaders: { "x-tinkerts-session": "keyed" },
    });
    await runAgent(named, "Header?");
    expect(keyed.record()).toMatchObject({
      counts: { requests: 2 },
      threads: [{}, { fork: { message: 0, why: "message 0 (user) differs" } }],
    });
  });

  it("ends by call, by limit, by time and by signal, and refuses what comes later for good", async () => {
    const script = new ScriptedSampler();
    const { session } = await start(script);
    const ended = session();
    await ended.end();
    await expect(runAgent(openai(ended.baseURL), "?")).rejects.toMatchObject({
      status: 400,
      message: expect.stringContaining("is over (ended)"),
    });
    const limited = session({ limits: { maxRequests: 1 } });
    await runAgent(openai(limited.baseURL), "?");
    await expect(runAgent(openai(limited.baseURL), "?")).rejects.toMatchObject({
      status: 400,
      message: expect.stringContaining("is over (request_limit)"),
    });
    const short = session({ limits: { maxTokens: 2 } });
    await runAgent(openai(short.baseURL), "?");
    expect(short.record().threads[0]!.turns[0]).toMatchObject({
      stopReason: "length",
      tokens: { length: 2 },
    });
    await expect(runAgent(openai(short.baseURL), "?")).rejects.toMatchObject({
      status: 400,
      message: expect.stringContaining("token_limit"),
    });
    // A request that is being answered stops with its session.
    const gone = new AbortController();
    const left = session({ signal: gone.signal });
    let reached = () => {};
    const isReached = new Promise<void>((resolve) => {
      reached = resolve;
    });
    script.before = (signal) =>
      new Promise((_, reject) => {
        signal?.addEventListener("abort", () => reject(new Error("stopped")));
        reached();
      });
    const asked = runAgent(openai(left.baseURL), "?");
    await isReached;
    gone.abort();
    await expect(asked).rejects.toMatchObject({
      status: 400,
      message: expect.stringContaining("owner_gone"),
    });
    expect(left.record()).toMatchObject({ end: "owner_gone", counts: { unfinished: 1 }, threads: [] });
  });

  it("moves with its weights, and says of each answer how old they were", async () => {
    const script = new ScriptedSampler(add(1), "done");
    const { session } = await start(script, { models: {} });
    let step = 4;
    const episode = session({
      sampler: () => ({ sampler: script.sampler, step: step++ }),
      renderer: "qwen3_instruct",
      sampling: { temperature: 0.7 },
    });
    await runAgent(openai(episode.baseURL), "?");
    expect(episode.record().threads[0]!.turns.map((turn) => turn.step)).toEqual([4, 5]);
    expect(script.settings).toMatchObject([{ temperature: 0.7 }, { temperature: 0.7 }]);
  });

  it("goes on in another session where the server has ended its own", async () => {
    const gone = new GoneError({
      status: 410,
      headers: new Headers(),
      body: undefined,
      message: "It is over.",
    });
    const scripts = [
      new ScriptedSampler("one", gone, gone),
      new ScriptedSampler("two", gone),
      new ScriptedSampler("three"),
    ];
    const closed: number[] = [];
    const service = (number: number): NonNullable<GatewayOptions["service"]> => ({
      createSamplingClient: async () => scripts[number]!.sampler as SamplingClient,
      clone: () => service(number + 1) as ServiceClient,
      close: async () => void closed.push(number),
    });
    const { session, close } = await start(scripts[0]!, {
      service: service(0),
      models: { nano: "tinkerts/nano" },
    });
    const client = openai(session().baseURL);
    expect(await runAgent(client, "?")).toBe("one");
    // Two requests that meet the same end open one session.
    let numWaiting = 0;
    let release = () => {};
    const both = new Promise<void>((resolve) => {
      release = resolve;
    });
    scripts[0]!.before = () => {
      numWaiting += 1;
      if (numWaiting === 2) release();
      return both;
    };
    const lost = await Promise.allSettled([runAgent(client, "?"), runAgent(client, "?")]);
    expect(lost).toMatchObject([{ reason: { status: 503 } }, { reason: { status: 503 } }]);
    expect(await runAgent(client, "?")).toBe("two");
    await expect(runAgent(client, "?")).rejects.toMatchObject({ status: 503 });
    expect(await runAgent(client, "?")).toBe("three");
    expect(closed).toEqual([1]);
    await close();
    // The first belongs to the caller.
    expect(closed).toEqual([1, 2]);
  });

  it("tells an agent what is final with a 400, and what may pass with a 429 or a 503", async () => {
    const failing = (status: number) => Object.assign(new Error("the server said so"), { status });
    const script = new ScriptedSampler(failing(400), failing(429), failing(500), failing(404));
    const { session } = await start(script);
    const client = openai(session().baseURL);
    for (const status of [400, 429, 503, 400])
      await expect(runAgent(client, "?")).rejects.toMatchObject({
        status,
        message: expect.stringContaining("the server said so"),
      });
  });
});

describe("over HTTP", () => {
  it("sessions are opened, read, rewarded and ended; a session's key reaches that session alone", async () => {
    const key = "tml-gateway-key-of-this-test";
    const script = new ScriptedSampler();
    const { url } = await start(script, { apiKeys: [key] });
    const ask = (path: string, body?: object, apiKey = key) =>
      fetch(`${url}${path}`, {
        method: body === undefined ? "GET" : "POST",
        headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
        ...(body && { body: JSON.stringify(body) }),
      });
    const made = await ask("/sessions", {
      id: "one",
      problem: "1 + 1",
      tags: ["sums"],
      limits: { maxRequests: 9 },
    });
    expect(made.status).toBe(201);
    const session = (await made.json()) as { baseURL: string; apiKey: string };
    expect((await ask("/sessions", { id: "one" })).status).toBe(409);
    expect(await (await ask("/sessions", { group: -1 })).json()).toMatchObject({
      detail: [{ msg: expect.stringContaining("group:") }],
    });
    await ask("/sessions", { id: "two" });
    await runAgent(openai(session.baseURL, session.apiKey), "?");
    await expect(runAgent(openai(`${url}/s/two/v1`, session.apiKey), "?")).rejects.toMatchObject({
      status: 403,
    });
    await expect(runAgent(openai(`${url}/s/two/v1`, "tml-no-key-of-anybody"), "?")).rejects.toMatchObject({
      status: 401,
    });
    await expect(runAgent(openai(`${url}/v1`, `${session.apiKey}x`), "?")).rejects.toMatchObject({
      status: 401,
    });
    expect((await ask("/sessions", undefined, session.apiKey)).status).toBe(403);
    expect((await ask("/sessions/two", undefined, session.apiKey)).status).toBe(403);
    expect((await ask("/sessions/one/reward", { reward: 0.5 }, session.apiKey)).status).toBe(204);
    expect(await (await ask("/sessions")).json()).toMatchObject({
      sessions: [
        { id: "one", turns: 1, reward: 0.5 },
        { id: "two", turns: 0 },
      ],
    });
    const record = await (await ask("/sessions/one/end", {}, session.apiKey)).json();
    expect(record).toMatchObject({
      id: "one",
      end: "ended",
      reward: 0.5,
      threads: [{ turns: [{ tokens: expect.any(Array) }] }],
    });
    expect((await ask("/sessions/one")).status).toBe(404);
  });

  it("refuses names and pages that are not of this machine, and other machines without keys", async () => {
    const { url } = await start(new ScriptedSampler());
    const { port } = new URL(url);
    const { request } = await import("node:http");
    const status = await new Promise<number | undefined>((resolve, reject) => {
      request(
        { port, host: "127.0.0.1", path: "/v1/models", headers: { host: "evil.example" } },
        (answer) => {
          answer.resume();
          resolve(answer.statusCode);
        },
      )
        .once("error", reject)
        .end();
    });
    expect(status).toBe(403);
    expect((await fetch(`${url}/v1/models`, { headers: { origin: "https://evil.example" } })).status).toBe(
      403,
    );
    await expect(startGateway({ host: "0.0.0.0" })).rejects.toThrow("needs an API key");
    await expect(startGateway({ models: { a: "Qwen/Qwen3-8B" } })).rejects.toThrow("service must be");
  });

  it("a session that requests began ends when it is silent; one that a gone process owns ends too", async () => {
    const clock = new FakeClock();
    const {
      fetch: ask,
      sessions,
      session,
    } = await start(new ScriptedSampler(), {
      ...{ listen: false, sessionTimeoutMs: 60_000, clock },
    });
    const headers = { "content-type": "application/json" };
    const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: "?" }] });
    const answer = await ask("http://localhost/s/mine/v1/chat/completions", {
      method: "POST",
      headers,
      body,
    });
    expect(answer.status).toBe(200);
    session({ id: "kept" });
    session({ id: "orphan", ownerPid: 2 ** 30 });
    await clock.advance(6_000);
    expect(sessions().map(({ id }) => id)).toEqual(["mine", "kept"]);
    await clock.advance(61_000);
    expect(sessions().map(({ id }) => id)).toEqual(["kept"]);
  });
});
