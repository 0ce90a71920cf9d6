import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Datum, type DatumInit } from "../../src/wire/index.js";
import { run, start } from "./command.js";

const model = ["--model", "tinkerts/nano"];
const question = { model: "gpt-4o", max_tokens: 4, messages: [{ role: "user", content: "What is 2 + 3?" }] };

describe("tinkerts gateway", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "tinkerts-gateway-"));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  const post = (url: string, body: object, key: string) =>
    fetch(url, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });

  it("answers agents at the addresses that it prints, until Ctrl-C", async () => {
    const gateway = start(["gateway", ...model, "--port", "0"], { cwd: folder });
    const [printed, openai, key, anthropic] = await gateway.seen(
      /^export OPENAI_BASE_URL=(\S+)\nexport OPENAI_API_KEY=(\S+)\nexport ANTHROPIC_BASE_URL=(\S+)\nexport ANTHROPIC_AUTH_TOKEN=\S+\n$/,
    );
    const chat = await post(`${openai}/chat/completions`, question, key!);
    expect(await chat.json()).toMatchObject({
      model: "gpt-4o",
      usage: { completion_tokens: expect.any(Number) },
    });
    const message = await post(`${anthropic}/v1/messages`, question, key!);
    expect(await message.json()).toMatchObject({ type: "message" });
    gateway.child.kill("SIGINT");
    const { code, stdout, stderr } = await gateway.finished;
    expect({ code, stdout }).toEqual({ code: 0, stdout: printed });
    expect(stderr).toContain("Agents are answered by tinkerts/nano at http://127.0.0.1:");
    expect(stderr).toContain("every user of this machine can use it");
  });

  it("asks for its keys and does not show them; names of models are mapped", async () => {
    const key = "tml-key-of-this-gateway";
    writeFileSync(join(folder, "keys"), `${key}\n`, { mode: 0o600 });
    const given = ["--model", "small=tinkerts/nano", "--map", "gpt-*=small", "--api-key-file", "keys"];
    const gateway = start(["gateway", ...given, "--port", "0", "--host", "0.0.0.0"], { cwd: folder });
    const [, url] = await gateway.seen(/OPENAI_BASE_URL=(\S+)\nexport OPENAI_API_KEY='one of your keys'\n/);
    expect((await post(`${url}/chat/completions`, question, "tml-some-other-key-here")).status).toBe(401);
    expect((await post(`${url}/chat/completions`, question, key)).status).toBe(200);
    const models = await fetch(`${url}/models`, { headers: { authorization: `Bearer ${key}` } });
    expect(await models.json()).toMatchObject({ data: [{ id: "small" }] });
    gateway.child.kill("SIGINT");
    const { stdout, stderr } = await gateway.finished;
    expect(stdout + stderr).not.toContain(key);
  });

  it("records sessions that survive kill -9, and lists, prints and exports them as rows to train on", async () => {
    const args = ["gateway", ...model, "--port", "0", "--record", "runs"];
    const gateway = start(args, { cwd: folder });
    const [, openai] = await gateway.seen(/OPENAI_BASE_URL=(\S+)\/v1\n/);
    const ask = (session: string) => post(`${openai}/s/${session}/v1/chat/completions`, question, "none");
    for (const session of ["one", "two"]) expect((await ask(session)).status).toBe(200);
    const reward = await post(`${openai}/sessions/two/end`, { reward: 0.5 }, "none");
    expect(reward.status).toBe(200);
    gateway.child.kill("SIGKILL");
    expect((await gateway.finished).stderr).toContain("Sessions are recorded in");
    const command = (...rest: string[]) => run(["gateway", ...rest], { cwd: folder });
    const listed = await command("sessions", "runs", "--json");
    expect(JSON.parse(listed.stdout)).toMatchObject([
      { id: "two", end: "ended", reward: 0.5, turns: 1, sampledTokens: 2 },
      { id: "one", turns: 1 },
    ]);
    const table = await command("sessions", "runs", "--min-reward", "0.1");
    expect(table.stdout).toMatch(/SESSION.*REWARD.*\n.*two.*0\.5/);
    expect(table.stdout).not.toContain("one");
    const shown = await command("show", "runs", "two");
    expect(shown.stdout).toMatch(
      /session two[\s\S]*reward 0\.5[\s\S]*0 user\n {2}What is 2 \+ 3\?\n1 assistant \(2 tokens/,
    );
    const whole = await command("show", "runs", "one", "--json");
    expect(JSON.parse(whole.stdout)).toMatchObject({ threads: [{ turns: [{ tokens: { length: 2 } }] }] });
    expect(await command("export", "runs", "-o", "rows.jsonl")).toMatchObject({
      code: 0,
      stderr: expect.stringContaining("holds 2 conversations of 2 sessions"),
    });
    const checked = await run(["data", "check", "rows.jsonl", "--json"], { cwd: folder });
    expect(JSON.parse(checked.stdout)).toMatchObject({ rows: 2 });
    expect(await command("export", "runs", "--tag", "none")).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("no session of the recording fits"),
    });
    const datums = await command("export", "runs", "--as", "datums", "--session", "one");
    const { datum } = JSON.parse(datums.stdout) as { datum: DatumInit<"cross_entropy"> };
    expect(new Datum(datum).lossFnInputs["weights"]!.toArray().filter((weight) => weight === 1)).toHaveLength(
      2,
    );
    expect(await command("show", "runs", "three")).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("runs has no session three"),
    });
    expect(await command("sessions", ".")).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("holds no recorded sessions"),
    });
  });

  it("passes requests on to another service, and exports what it has answered for train sft", async () => {
    const service = start(["gateway", ...model, "--port", "0"], { cwd: folder });
    const [, url] = await service.seen(/OPENAI_BASE_URL=(\S+)\n/);
    const args = ["gateway", "--upstream", url!, "--port", "0", "--record", "app"];
    const gateway = start(args, { cwd: folder });
    const [printed, base] = await gateway.seen(
      /^export OPENAI_BASE_URL=(\S+)\nexport ANTHROPIC_BASE_URL=\S+\n$/,
    );
    const asked = { ...question, max_tokens: 40, temperature: 0 };
    const answer = (await (
      await post(`${base}/chat/completions`, asked, "sk-of-the-application")
    ).json()) as {
      choices: { message: { content: string } }[];
    };
    gateway.child.kill("SIGINT");
    const { stdout, stderr } = await gateway.finished;
    expect(stdout).toBe(printed);
    expect(stderr).toContain("passes the agent's own key on");
    service.child.kill("SIGINT");
    await service.finished;
    const rows = await run(["gateway", "export", "app"], { cwd: folder });
    expect(JSON.parse(rows.stdout)).toMatchObject({
      messages: [question.messages[0], { role: "assistant", content: answer.choices[0]!.message.content }],
    });
    expect(
      (await run(["gateway", "show", "app", JSON.parse(rows.stdout).session], { cwd: folder })).stdout,
    ).toContain("What is 2 + 3?");
    expect(await run(["gateway", "--upstream", "here", ...model], { cwd: folder })).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("--upstream answers all requests"),
    });
  });

  it("says what is wrong with its options before it starts anything", async () => {
    const error = async (...args: string[]) => {
      const { code, stderr } = await run(["gateway", ...args], { cwd: folder });
      return { code, stderr };
    };
    expect(await error()).toEqual({ code: 2, stderr: expect.stringContaining("which model? Give --model") });
    expect(await error(...model, "--host", "0.0.0.0")).toEqual({
      code: 2,
      stderr: expect.stringContaining("give --api-key-file or set TINKERTS_GATEWAY_API_KEYS"),
    });
    expect(await error(...model, ...model)).toEqual({
      code: 2,
      stderr: expect.stringContaining("two models are named tinkerts/nano"),
    });
    expect(await error(...model, "--map", "gpt")).toEqual({
      code: 2,
      stderr: expect.stringContaining("two names with = between them"),
    });
  });
});
