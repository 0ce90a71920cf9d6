import { appendFile, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import OpenAI from "openai";
import { afterEach, describe, expect, it } from "vitest";
import { conversations } from "../../src/cookbook/index.js";
import {
  type Gateway,
  type GatewayOptions,
  listSessions,
  readSessions,
  type SessionRecord,
  startGateway,
} from "../../src/gateway/index.js";
import { conversationRows, datumRows } from "../../src/gateway/recording/export-rows.js";
import { Datum } from "../../src/wire/index.js";
import { silent } from "../local/raw-client.js";
import { folderForTests } from "../support/folder-for-tests.js";
import { callText, ScriptedSampler } from "./scripted-sampler.js";

const root = folderForTests("recording");
let count = 0;
const folder = () => join(root, String(count++));
let gateway: Gateway | undefined;
afterEach(async () => {
  await gateway?.close();
  gateway = undefined;
});

async function start(script: ScriptedSampler, options: GatewayOptions = {}): Promise<Gateway> {
  gateway = await startGateway({
    ...{ models: { nano: script.sampler }, maxContextLength: 8192, logger: silent, record: folder() },
    ...options,
  });
  return gateway;
}

type Messages = OpenAI.ChatCompletionMessageParam[];
const tool = (name: string) => ({
  type: "function" as const,
  function: { name, description: "", parameters: { type: "object", properties: {} } },
});

/** Asks once and returns the conversation with the answer. */
async function ask(baseURL: string, messages: Messages, more: object = {}): Promise<Messages> {
  const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
  const body = { model: "nano", messages, ...more } as OpenAI.ChatCompletionCreateParamsNonStreaming;
  const { choices } = await client.chat.completions.create(body);
  return [...messages, choices[0]!.message];
}

const user = (content: string) => ({ role: "user" as const, content });

/** A record as JSON, without what only the one who reads it later has. */
const plain = ({ key, ...record }: SessionRecord & { key?: string }) =>
  JSON.parse(
    JSON.stringify(record, (_, value) =>
      ArrayBuffer.isView(value) ? Array.from(value as Float32Array) : value,
    ),
  );

async function gathered<T>(values: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const value of values) found.push(value);
  return found;
}

async function recorded(path: string): Promise<SessionRecord[]> {
  return gathered(readSessions(path));
}

describe("a recording", () => {
  it("holds what the sessions' own records hold: turns, forks and their reasons, repeated answers, samples of plain prompts", async () => {
    const path = folder();
    const script = new ScriptedSampler(callText("add", { a: 1 }), "It is 7.");
    const { session } = await start(script, { record: path });
    const episode = session({ problem: { q: "3 + 4" }, group: 2, step: 5, tags: ["run=one", "sums"] });
    const tools = [tool("add")];
    const first = await ask(episode.baseURL, [user("3 + 4?")], { tools });
    const [call] = (first[1] as OpenAI.ChatCompletionMessage).tool_calls!;
    const result = { role: "tool" as const, tool_call_id: call!.id, content: "7" };
    const second = await ask(episode.baseURL, [...first, result], { tools });
    await ask(episode.baseURL, [...second, user("Sure?")], { tools });
    // A retry, an edit, other tools, two answers at once, an answer that was never given.
    await ask(episode.baseURL, [...second, user("Sure?")], { tools });
    await ask(episode.baseURL, [...second, user("Really?")], { tools });
    await ask(episode.baseURL, [...second, user("Sure?")], { tools: [tool("subtract")] });
    await ask(episode.baseURL, [...second, user("And now?")], { tools, n: 2 });
    await ask(episode.baseURL, [user("3 + 4?"), { role: "assistant", content: "Nine." }, user("No.")]);
    const client = new OpenAI({ baseURL: episode.baseURL, apiKey: "none" });
    await client.completions.create({ model: "nano", prompt: "Once" });
    episode.setReward(0.5);
    const record = await episode.end();
    expect(record.threads.length).toBeGreaterThan(5);
    expect(record.threads.flatMap(({ turns }) => turns).some(({ isRepeated }) => isRepeated)).toBe(true);
    expect((await recorded(path)).map(plain)).toEqual([plain(record)]);
    const { sessions, badLines } = await listSessions(path);
    expect(badLines).toBe(0);
    expect(sessions).toMatchObject([
      {
        ...{ id: episode.id, end: "ended", group: 2, step: 5, reward: 0.5, turns: 10 },
        ...{ tags: ["run=one", "sums"], threads: record.threads.length, baseModel: "tinkerts/nano" },
        sampledTokens: record.counts.sampledTokens,
      },
    ]);
  });

  it("is exported as conversations and datums in which each answer is trained once", async () => {
    const path = folder();
    const script = new ScriptedSampler("wrong", "right", "cut", "title");
    const { session } = await start(script, { record: path });
    const episode = session({ id: "it", tags: ["a"] });
    const first = await ask(episode.baseURL, [user("1?")]);
    const again = await ask(episode.baseURL, [user("1?")]);
    expect([first, again].map(([, answer]) => answer!.content)).toEqual(["wrong", "right"]);
    await ask(episode.baseURL, [...again, user("2?")], { max_tokens: 1 });
    await ask(episode.baseURL, [...again, user("A title?")]);
    await ask(episode.baseURL, [user("1?"), { role: "assistant", content: "made up" }, user("3?")]);
    episode.setReward(1);
    await episode.end();
    const [record] = await recorded(path);
    const main = conversationRows(record!);
    const all = conversationRows(record!, "all");
    expect(main).toHaveLength(1);
    const trained = all.flatMap(({ messages }) =>
      (messages as { role: string; content: string; weight?: number }[]).flatMap(
        ({ role, content, weight }) => (role === "assistant" && weight !== 0 ? content : []),
      ),
    );
    // The answer that was asked for again and the one that was cut off are nothing to learn from.
    expect(trained.sort()).toEqual(["done", "right", "title"]);
    const file = join(path, "rows.jsonl");
    await writeFile(file, all.map((row) => `${JSON.stringify(row)}\n`).join(""));
    await using rows = await conversations(file).open();
    expect((await rows.read([0]))[0]).toMatchObject({ messages: { length: 4 } });
    expect(rows.length).toBe(all.length);
    const datums = datumRows(record!);
    const numTrained = datums
      .map(({ datum }) => new Datum(datum).lossFnInputs["weights"]!.toArray())
      .flatMap((weights) => weights.filter((weight) => weight === 1)).length;
    const kept = record!.threads.flatMap(({ turns }) => turns).filter(({ isRepeated }) => !isRepeated);
    expect(numTrained).toBe(kept.reduce((sum, { tokens }) => sum + tokens.length, 0));
    expect(datums[0]).toMatchObject({ session: "it", reward: 1, tags: ["a"] });
  });

  it("has an answer on disk before the agent has read its end, and goes on behind a torn line", async () => {
    const path = folder();
    const { session } = await start(new ScriptedSampler("one", "two"), { record: path });
    const episode = session({ id: "mine" });
    await ask(episode.baseURL, [user("?")]);
    // Nothing has been closed: this is what a killed gateway leaves, with half a line behind it.
    const left = await readFile(join(path, "sessions.jsonl"), "utf8");
    const capture = await readFile(join(path, "capture", "sample.jsonl"), "utf8");
    const other = folder();
    await gateway!.close();
    await (await startGateway({ record: other })).close();
    await writeFile(join(other, "sessions.jsonl"), `${left}{"type":"answered","key":"abc`);
    await writeFile(join(other, "capture", "sample.jsonl"), `${capture}{"kind":"samp`);
    expect(await recorded(other)).toMatchObject([{ id: "mine", threads: [{ turns: [{}] }] }]);
    expect((await recorded(other))[0]).not.toHaveProperty("end");
    const again = await start(new ScriptedSampler("three"), { record: other });
    const named = again.session({ id: "mine" });
    await ask(named.baseURL, [user("?")]);
    await named.end();
    expect((await listSessions(other)).badLines).toBe(0);
    expect(await recorded(other)).toMatchObject([
      { id: "mine", threads: [{ messages: [{}, { content: "one" }] }] },
      { id: "mine", end: "ended", threads: [{ messages: [{}, { content: "three" }] }] },
    ]);
    const rows = (await readFile(join(other, "capture", "sample.jsonl"), "utf8")).trim().split("\n");
    expect(rows.map((row) => JSON.parse(row).kind)).toEqual(["sample", "sample"]);
  });

  it("keeps the keys of sessions valid when its gateway is started again", async () => {
    const path = folder();
    const options = { record: path, apiKeys: ["tml-gateway-key-of-this-test"] };
    const before = await start(new ScriptedSampler("one"), options);
    const { id, apiKey } = before.session({ id: "mine" });
    const askWith = ({ url }: Gateway, key: string) =>
      new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 }).chat.completions.create({
        model: "nano",
        messages: [user("?")],
      });
    await askWith(before, apiKey);
    await before.close();
    expect((await stat(join(path, ".session-secret"))).mode & 0o077).toBe(0);
    const again = await start(new ScriptedSampler("two"), options);
    await askWith(again, apiKey);
    expect(again.sessions().map((session) => session.id)).toEqual([id]);
    const elsewhere = await start(new ScriptedSampler(), { ...options, record: folder() });
    await expect(askWith(elsewhere, apiKey)).rejects.toMatchObject({ status: 401 });
    await again.close();
  });

  it("takes the reward of a session that a limit has ended", async () => {
    const path = folder();
    const { session, url } = await start(new ScriptedSampler("one"), { record: path });
    const limited = session({ id: "short", limits: { maxRequests: 1 } });
    await ask(limited.baseURL, [user("?")]);
    await expect(ask(limited.baseURL, [user("?")])).rejects.toThrow("is over (request_limit)");
    const post = (route: string, body: object, apiKey = limited.apiKey) =>
      fetch(`${url}/sessions/${route}`, {
        method: "POST",
        headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
        body: JSON.stringify(body),
      });
    expect((await post("short/reward", { reward: 0.25 }, session().apiKey)).status).toBe(403);
    expect((await post("short/reward", { reward: 0.5 })).status).toBe(204);
    expect(await recorded(path)).toMatchObject([{ id: "short", end: "request_limit", reward: 0.5 }]);
    const ended = await post("short/end", { reward: 0.75 });
    expect(await ended.json()).toEqual({ id: "short", end: "request_limit", reward: 0.75 });
    expect(await recorded(path)).toMatchObject([{ id: "short", reward: 0.75 }]);
    expect((await post("none/reward", { reward: 1 }, "")).status).toBe(404);
  });

  it("takes the reward of a session that an earlier gateway has recorded", async () => {
    const path = folder();
    const before = await start(new ScriptedSampler("one", "two"), { record: path });
    for (const id of ["mine", "other"]) await ask(before.session({ id }).baseURL, [user("?")]);
    await before.close();
    const again = await start(new ScriptedSampler("three"), { record: path });
    const post = (route: string, body: object) =>
      again.fetch(`${again.url}/sessions/${route}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
    expect((await post("mine/reward", { reward: 1 })).status).toBe(204);
    expect(await (await post("other/end", { reward: 0.5 })).json()).toEqual({ id: "other", reward: 0.5 });
    expect((await post("none/end", { reward: 1 })).status).toBe(404);
    expect((await post("mine/end", {})).status).toBe(404);
    // An open session of the name is another one.
    await ask(again.session({ id: "mine" }).baseURL, [user("?")]);
    await post("mine/reward", { reward: 0 });
    const found = await recorded(path);
    expect(found.map(({ id, reward }) => [id, reward]).toSorted()).toEqual([
      ["mine", 0],
      ["mine", 1],
      ["other", 0.5],
    ]);
  });

  it("reads a folder with lines that are none of its own, and says which folder is none", async () => {
    const path = folder();
    const { session } = await start(new ScriptedSampler(), { record: path });
    await ask(session({ id: "one" }).baseURL, [user("?")]);
    await gateway!.close();
    const strange = [
      "[]",
      "null",
      "{",
      '{"type":"answered","key":1}',
      '{"type":"reward","key":"x","at":1,"reward":2}',
    ];
    await appendFile(join(path, "sessions.jsonl"), `${strange.join("\n")}\n`);
    expect(await listSessions(path)).toMatchObject({ sessions: [{ id: "one" }], badLines: strange.length });
    await expect(listSessions(folder())).rejects.toThrow("holds no recorded sessions");
  });

  it("stays within its bytes: agents are answered, and no longer recorded", async () => {
    const path = folder();
    const warnings: string[] = [];
    const logger = { ...silent, warn: (text: string) => void warnings.push(text) };
    const gate = await start(new ScriptedSampler(), { record: path, maxRecordBytes: 4000, logger });
    const episode = gate.session();
    let messages: Messages = [user("?")];
    for (let turn = 0; turn < 10; turn += 1)
      messages = [...(await ask(episode.baseURL, messages)), user("And then?")];
    expect(messages).toHaveLength(21);
    const { unrecorded, bytes } = gate.recording!;
    expect(unrecorded).toBeGreaterThan(0);
    expect(bytes).toBeLessThanOrEqual(4000);
    expect(warnings).toEqual([expect.stringContaining("limit of 4000 bytes")]);
    await gateway!.close();
    const files = ["sessions.jsonl", join("capture", "sample.jsonl")];
    const sizes = await Promise.all(files.map(async (file) => (await stat(join(path, file))).size));
    expect(sizes.reduce((sum, size) => sum + size)).toBe(bytes);
    const [kept] = await recorded(path);
    expect(kept!.threads[0]!.turns.length).toBeLessThan(10);
  });

  it("belongs to one gateway at a time", async () => {
    const path = folder();
    await start(new ScriptedSampler(), { record: path });
    await expect(startGateway({ record: path })).rejects.toThrow("recording");
    await gateway!.close();
    await (await startGateway({ record: path })).close();
    await expect(startGateway({ record: join(path, "sessions.jsonl") })).rejects.toThrow(
      "Nothing can be recorded in",
    );
  });
});
