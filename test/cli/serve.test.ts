import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ServiceClient } from "../../src/index.js";
import { FakeHub } from "../support/fake-hub.js";
import { run, start } from "./command.js";
import { noTerminal, openTerminal } from "./terminal.js";

const tiny = fileURLToPath(new URL("../fixtures/engine/qwen3", import.meta.url));
const serve = ["serve", "--port", "0", "--threads", "1"];
const serveTiny = [...serve, "--no-nano", "--model", `test/tiny=${tiny}`];

describe("tinkerts serve", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "tinkerts-serve-"));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  it("serves until Ctrl-C, and keeps what was saved", async () => {
    const server = start(serveTiny, { cwd: folder });
    const [lines, baseURL] = await server.seen(
      /^export TINKER_BASE_URL=(http:\/\/127\.0\.0\.1:\d+)\nexport TINKER_API_KEY=tml-local\n$/,
    );
    let path: string;
    {
      await using service = new ServiceClient({ baseURL: baseURL!, apiKey: "tml-local" });
      const { supportedModels } = await service.getServerCapabilities();
      expect(supportedModels.map(({ modelName }) => modelName)).toEqual(["test/tiny"]);
      const training = await service.createLoraTrainingClient({ baseModel: "test/tiny", rank: 4 });
      ({ path } = await training.saveWeightsForSampler("kept"));
    }
    server.child.kill("SIGINT");
    const { code, stdout, stderr } = await server.finished;
    expect({ code, stdout }).toEqual({ code: 0, stdout: lines });
    expect(stderr).toContain(`Serving test/tiny at ${baseURL}`);
    expect(stderr).toContain("every user of this machine can use it");
    expect(existsSync(join(folder, ".tinkerts"))).toBe(true);

    const again = start([...serveTiny, "--data-dir", ".tinkerts"], { cwd: folder });
    const found = await again.seen(/TINKER_BASE_URL=(\S+)/);
    {
      await using service = new ServiceClient({ baseURL: found[1]!, apiKey: "tml-local" });
      const sampler = await service.createSamplingClient({ modelPath: path });
      const { sequences } = await sampler.sample({
        prompt: [1, 2],
        samplingParams: { maxTokens: 2, stop: [] },
      });
      expect(sequences[0]?.tokens).toHaveLength(2);
    }
    again.child.kill("SIGTERM");
    expect((await again.finished).code).toBe(0);
  });

  it("refuses to let other machines in without a key", async () => {
    const { code, stdout, stderr } = await run([...serveTiny, "--host", "0.0.0.0"], { cwd: folder });
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toBe(
      "error: listening on 0.0.0.0 lets other machines in, which needs an API key: give --api-key-file or set TINKERTS_SERVE_API_KEYS, or leave --host out to stay on this machine\n",
    );
    expect(existsSync(join(folder, ".tinkerts"))).toBe(false);
  });

  it("asks for the keys it was given, all of them good, and does not show them", async () => {
    const keys = ["tml-first-key-of-the-test", "tml-second-key-of-the-test"];
    writeFileSync(join(folder, "keys"), `# of two people\n${keys[1]}\n`, { mode: 0o600 });
    const where = ["--host", "0.0.0.0", "--api-key", keys[0]!, "--api-key-file", "keys"];
    const server = start([...serveTiny, ...where, "--tokens"], { cwd: folder });
    const [, baseURL] = await server.seen(
      /TINKER_BASE_URL=(\S+)\nexport TINKER_API_KEY='one of your keys'\n/,
    );
    const config = await fetch(`${baseURL}/api/v1/client/config`, {
      method: "POST",
      headers: { "x-api-key": keys[0]!, "content-type": "application/json" },
      body: JSON.stringify({ sdk_version: "0.36.0" }),
    });
    expect(await config.json()).toMatchObject({ pjwt_auth_enabled: true });
    const statusWith = async (key: string) => {
      const response = await fetch(`${baseURL}/oai/api/v1/models`, { headers: { "x-api-key": key } });
      return response.status;
    };
    const third = "tml-third-key-of-the-test";
    expect(await Promise.all([...keys, third].map(statusWith))).toEqual([200, 200, 401]);
    const post = async (path: string, body: object, key: string) => {
      const headers = { "x-api-key": key, "content-type": "application/json" };
      const response = await fetch(`${baseURL}/api/v1${path}`, {
        method: "POST",
        headers,
        body: JSON.stringify(body),
      });
      return (await response.json()) as Record<string, string>;
    };
    const { jwt } = await post("/auth/token", {}, keys[0]!);
    expect(await statusWith(jwt!)).toBe(200);
    const revoke = await run(["tokens", "revoke", "--base-url", baseURL!], {
      env: { TINKER_API_KEY: keys[0]! },
    });
    expect(revoke).toMatchObject({ code: 0, stderr: `all tokens for this key have ended at ${baseURL}\n` });
    expect([await statusWith(jwt!), await statusWith(keys[0]!)]).toEqual([401, 200]);
    server.child.kill("SIGINT");
    const { stdout, stderr } = await server.finished;
    for (const key of keys) expect(stdout + stderr).not.toContain(key);
  });

  it("takes its keys from the environment too, and refuses those that could be guessed", async () => {
    const env = { TINKERTS_SERVE_API_KEYS: "tml-first-key-of-the-test, tml-short" };
    const { code, stderr } = await run(serveTiny, { cwd: folder, env });
    expect([code, stderr]).toEqual([1, expect.stringMatching(/at least 20 characters, got one of 9/)]);
    expect(stderr).not.toContain("tml-short");
    writeFileSync(join(folder, "keys"), "\n# none\n");
    const empty = await run([...serveTiny, "--api-key-file", "keys"], { cwd: folder });
    expect([empty.code, empty.stderr]).toEqual([2, expect.stringContaining("no key in keys")]);
  });

  it("downloads a model of the hub, stops at once on Ctrl-C and resumes", async () => {
    const names = ["config.json", "generation_config.json", "model.safetensors"];
    const files = Object.fromEntries(names.map((name) => [name, readFileSync(join(tiny, name))]));
    const hub = await FakeHub.start("some-org/tiny", files);
    const env = { HF_ENDPOINT: hub.url, HF_HUB_CACHE: join(folder, "cache") };
    const serveHub = [...serve, "--no-nano", "--model", "some-org/tiny"];
    hub.holdAfter("model.safetensors", 1000);
    const interrupted = start(serveHub, { cwd: folder, env });
    const partial = join(folder, "cache/models--some-org--tiny/snapshots", FakeHub.COMMIT);
    await vi.waitFor(() =>
      expect(readFileSync(join(partial, "model.safetensors.incomplete"))).toHaveLength(1000),
    );
    interrupted.child.kill("SIGINT");
    const { code, stdout, stderr } = await interrupted.finished;
    expect({ code, stdout }).toEqual({ code: 130, stdout: "" });
    expect(stderr).toMatch(/^Downloading some-org\/tiny \(29 kB\) from the Hugging Face hub\.\n/);
    expect(stderr).toContain("What was downloaded is kept: run the same command to continue.");
    hub.holdAfter("model.safetensors", undefined);
    const server = start(serveHub, { cwd: folder, env });
    const [, baseURL] = await server.seen(
      /^export TINKER_BASE_URL=(\S+)\nexport TINKER_API_KEY=tml-local\n$/,
    );
    expect(hub.asked.at(-1)).toMatch(/model\.safetensors bytes=1000-$/);
    {
      await using service = new ServiceClient({ baseURL: baseURL!, apiKey: "tml-local" });
      const training = await service.createLoraTrainingClient({ baseModel: "some-org/tiny", rank: 4 });
      // The path in this machine's cache would be of no use to a client on another one.
      expect((await training.getInfo()).modelData.tokenizerId).toBe("some-org/tiny");
    }
    server.child.kill("SIGINT");
    expect((await server.finished).code).toBe(0);
    await hub.close();
  });

  it("says what to do when the port is taken or the data folder is in use", async () => {
    const first = start(serveTiny, { cwd: folder });
    const [, port] = await first.seen(/TINKER_BASE_URL=http:\/\/127\.0\.0\.1:(\d+)/);
    const samePort = await run([...serveTiny, "--port", port!, "--data-dir", "other"], { cwd: folder });
    expect(samePort).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^error: port \d+ is taken: give another with --port/),
    });
    const sameFolder = await run(serveTiny, { cwd: folder });
    expect(sameFolder).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^error: .*data folder .*\.tinkerts/),
    });
    first.child.kill("SIGINT");
    expect((await first.finished).code).toBe(0);
  });

  it("adds models to nano, which can be declined, and lets named web origins in", async () => {
    const args = [...serve, "--model", `test/tiny=${tiny}`, "--cors", "https://one.example"];
    const server = start([...args, "--cors", "https://two.example:8443"], { cwd: folder });
    const [, baseURL] = await server.seen(/TINKER_BASE_URL=(\S+)/);
    {
      await using service = new ServiceClient({ baseURL: baseURL!, apiKey: "tml-local" });
      const { supportedModels } = await service.getServerCapabilities();
      expect(supportedModels.map(({ modelName }) => modelName)).toEqual(["tinkerts/nano", "test/tiny"]);
    }
    const statusFrom = async (origin: string) =>
      (await fetch(`${baseURL}/api/v1/healthz`, { headers: { origin } })).status;
    const origins = ["https://one.example", "https://two.example:8443", "https://other.example"];
    expect(await Promise.all([...origins, "http://localhost:3000"].map(statusFrom))).toEqual([
      200, 200, 403, 200,
    ]);
    server.child.kill("SIGINT");
    await server.finished;
    for (const [wrong, why] of [
      [["--no-nano"], /^error: --no-nano leaves no model to serve: give --model\n/],
      [["--cors", "https://one.example/page"], /^error: .*--cors.* It must be an origin such as https:/],
    ] as const) {
      const { code, stderr } = await run([...serve, ...wrong], { cwd: folder });
      expect(code).toBe(2);
      expect(stderr).toMatch(why);
    }
  });

  const batch = [{ modelInput: [1, 2, 3], lossFnInputs: { targetTokens: [2, 3, 4], weights: [0, 1, 1] } }];

  async function trainAndSample(baseURL: string, name: string) {
    await using service = new ServiceClient({ baseURL, apiKey: "tml-local", displayName: name });
    const training = await service.createLoraTrainingClient({ baseModel: "test/tiny", rank: 4, seed: 1 });
    const own = { baseModel: "test/tiny", rank: 2, userMetadata: { name: "my \x1b[31mown" } };
    await (await service.createLoraTrainingClient(own)).unloadModel();
    const losses: string[] = [];
    for (let step = 0; step < 3; step += 1) {
      const { metrics } = await training.forwardBackward(batch, "cross_entropy");
      await training.optimStep({ learningRate: 1e-2 });
      losses.push((metrics["loss:sum"]! / 2).toPrecision(4));
    }
    await training.saveState("last");
    const sampler = await training.saveWeightsAndGetSamplingClient();
    await sampler.sample({ prompt: [1, 2], samplingParams: { maxTokens: 20, stop: [] } });
    return losses;
  }

  it("prints plain lines about each run without a terminal", async () => {
    const server = start(serveTiny, { cwd: folder });
    const [, baseURL] = await server.seen(/TINKER_BASE_URL=(\S+)/);
    const losses = await trainAndSample(baseURL!, "evening run");
    server.child.kill("SIGINT");
    const { code, stderr } = await server.finished;
    expect(code).toBe(0);
    const time = "\\d\\d:\\d\\d:\\d\\d  ";
    const told = [
      "evening run: started, rank 4 on test/tiny",
      "my \ufffd\\[31mown: started, rank 2 on test/tiny",
      "my \ufffd\\[31mown: unloaded after 0 steps",
      `evening run: step 1, loss ${losses[0]}`,
      "evening run: saved tinker://\\S+/weights/last",
      `evening run: finished after 3 steps, loss ${losses[2]}`,
    ].map((line) => `${time}${line}\n`);
    expect(stderr).toMatch(new RegExp(`\\n\\n${told.join("")}$`));
  });

  it("prints nothing but the address when it is to be quiet", async () => {
    const server = start([...serveTiny, "--quiet"], { cwd: folder });
    const [, baseURL] = await server.seen(/TINKER_BASE_URL=(\S+)/);
    await trainAndSample(baseURL!, "quiet run");
    server.child.kill("SIGINT");
    expect(await server.finished).toEqual({
      code: 0,
      stdout: `export TINKER_BASE_URL=${baseURL}\nexport TINKER_API_KEY=tml-local\n`,
      stderr: "",
    });
  });

  it.skipIf(noTerminal !== undefined)(
    `has a line for each run and one for all at a terminal${noTerminal ? ` (${noTerminal})` : ""}`,
    async () => {
      const terminal = openTerminal(serveTiny, { cwd: folder, columns: 70 });
      const [, baseURL] = await terminal.seen(/TINKER_BASE_URL=(\S+)\r\n/);
      await terminal.seen(/idle/);
      await using service = new ServiceClient({ baseURL: baseURL!, apiKey: "tml-local", displayName: "one" });
      const training = await service.createLoraTrainingClient({ baseModel: "test/tiny", rank: 4, seed: 1 });
      await terminal.seen(/\d\d:\d\d:\d\d {2}one: started, rank 4 on test\/tiny\r\n {2}one: no step yet\r\n/);
      await training.forwardBackward(batch, "cross_entropy");
      await training.optimStep({ learningRate: 1e-2 });
      await terminal.seen(/ {2}one: step 1, loss \d\.\d{3}\r\ntraining: 0 in the queue, \d+ tokens\/s/);
      // Drawn over what was there, not below it.
      expect(terminal.text()).toContain("\x1b[1A\r\x1b[J  one: step 1");
      await service.close();
      await terminal.seen(/one: finished after 1 step, loss \d\.\d{3}\r\n/);
      terminal.type("\x03");
      expect(await terminal.ended).toBe(0);
    },
  );
});
