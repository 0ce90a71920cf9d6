import { createHash } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { createServer } from "../../src/local/server/index.js";
import { openStore } from "../../src/local/store/index.js";
import { FakeClock } from "../support/fake-clock.js";
import { FakeEngine, fakeModel } from "./fake-engine.js";
import { type Json, RawClient, silent, startFake, stepBody } from "./raw-client.js";

describe("a server with keys", () => {
  let backend: LocalBackend;
  let stranger: RawClient;
  let alice: RawClient;
  let bob: RawClient;
  let clock: FakeClock;
  let sessionId: string;
  let modelId: string;
  let path: string;
  let dataDir: string;

  beforeAll(async () => {
    clock = new FakeClock();
    dataDir = await mkdtemp(join(tmpdir(), "tinkerts-security-"));
    ({ backend, client: stranger } = await startFake({
      clock,
      dataDir,
      tokens: true,
      apiKeys: ["tml-alice-key-of-the-test", "tml-bob-key-of-the-test"],
    }));
    alice = stranger.withKey("tml-alice-key-of-the-test");
    bob = stranger.withKey("tml-bob-key-of-the-test");
    ({ sessionId, modelId } = await alice.openModel());
    path = String(
      (await alice.result(alice.ok("/save_weights", { model_id: modelId, seq_id: 1, path: "one" })))["path"],
    );
    await alice.result(alice.ok("/save_weights_for_sampler", { model_id: modelId, seq_id: 2, path: "two" }));
  });
  afterAll(async () => {
    await backend.close();
    await rm(dataDir, { recursive: true });
  });

  it("hands the first key to clients made from it", () => {
    expect(backend.apiKey).toBe("tml-alice-key-of-the-test");
  });

  it("answers 401 without one, and with a wrong one, but tells its health", async () => {
    expect((await stranger.get("/get_server_capabilities")).status).toBe(401);
    expect((await stranger.withKey("tml-mallory").get("/get_server_capabilities")).status).toBe(401);
    expect((await stranger.get("/healthz")).status).toBe(200);
    expect((await alice.get("/get_server_capabilities")).status).toBe(200);
    const bearer = { authorization: "Bearer tml-alice-key-of-the-test" };
    expect((await stranger.get("/get_server_capabilities", bearer)).status).toBe(200);
  });

  it("shows each key only its own", async () => {
    expect((await bob.get("/training_runs")).body["training_runs"]).toEqual([]);
    expect((await bob.get("/checkpoints")).body["checkpoints"]).toEqual([]);
    expect((await bob.get("/sessions")).body["sessions"]).toEqual([]);
    expect((await bob.ok("/sessions/search", { owner: { type: "accessible" } }))["sessions"]).toEqual([]);
    expect((await bob.get("/audit")).body["entries"]).toEqual([]);
    for (const url of [
      `/training_runs/${modelId}`,
      `/training_runs/${modelId}/checkpoints`,
      `/training_runs/${modelId}/checkpoints/weights/one/archive`,
      `/sessions/${sessionId}`,
      `/sessions/${sessionId}/trace_export`,
    ]) {
      expect([url, (await bob.get(url)).status]).toEqual([url, 404]);
    }
    expect((await alice.get(`/training_runs/${modelId}`)).status).toBe(200);
  });

  it("lets no key act for another", async () => {
    expect((await bob.post("/session_heartbeat", { session_id: sessionId })).status).toBe(404);
    expect((await bob.post(`/sessions/${sessionId}/finish`, {})).status).toBe(404);
    expect((await bob.post("/optim_step", stepBody(modelId, 3))).status).toBe(404);
    expect((await bob.post("/get_info", { model_id: modelId })).status).toBe(404);
    expect((await bob.post("/retrieve_future", { request_id: `${modelId}:1` })).status).toBe(404);
    expect((await bob.post("/weights_info", { tinker_path: path })).status).toBe(404);
    expect((await bob.call("DELETE", `/training_runs/${modelId}/checkpoints/weights/one`)).status).toBe(404);
    expect((await bob.post("/copy_weights", { source_path: path, destination_project_id: "p" })).status).toBe(
      404,
    );
    const sessionOfBob = await bob.openSession();
    const sampler = { session_id: sessionOfBob, sampling_session_seq_id: 0, model_path: path };
    expect((await bob.post("/create_sampling_session", sampler)).status).toBe(404);
    const load = { session_id: sessionOfBob, model_seq_id: 0, path, optimizer: true };
    expect((await bob.post("/load_weights", load)).status).toBe(404);
  });

  it("opens a published checkpoint to all, to read and not to change, until it is unpublished", async () => {
    const checkpoint = `/training_runs/${modelId}/checkpoints/weights/one`;
    expect((await bob.post(`${checkpoint}/publish`)).status).toBe(404);
    expect((await alice.post(`${checkpoint}/publish`)).status).toBe(204);
    expect((await bob.ok("/weights_info", { tinker_path: path }))["base_model"]).toBe(fakeModel.name);
    expect((await bob.get("/training_runs?access_scope=accessible")).body["training_runs"]).toHaveLength(1);
    expect((await bob.get("/training_runs")).body["training_runs"]).toHaveLength(0);
    const sessionOfBob = await bob.openSession();
    const load = { session_id: sessionOfBob, model_seq_id: 0, path, optimizer: true };
    expect(await bob.result(bob.ok("/load_weights", load))).toMatchObject({
      model_id: `${sessionOfBob}:train:0`,
    });
    expect((await bob.call("DELETE", checkpoint)).status).toBe(403);
    expect((await bob.call("PUT", `${checkpoint}/ttl`, { ttl_seconds: 3600 })).status).toBe(403);
    expect((await bob.call("DELETE", `${checkpoint}/publish`)).status).toBe(403);
    expect((await alice.call("DELETE", `${checkpoint}/publish`)).status).toBe(204);
    expect((await bob.post("/weights_info", { tinker_path: path })).status).toBe(404);
  });

  it("shows of a run with a published checkpoint that checkpoint alone", async () => {
    await alice.result(alice.ok("/save_weights", { model_id: modelId, path: "two" }));
    const seen = async () => {
      const { body } = await bob.get(`/training_runs/${modelId}?access_scope=accessible`);
      return (body["last_checkpoint"] as Json | undefined)?.["checkpoint_id"];
    };
    expect(await seen()).toBeUndefined();
    expect((await alice.post(`/training_runs/${modelId}/checkpoints/weights/one/publish`)).status).toBe(204);
    expect(await seen()).toBe("weights/one");
    const listed = await bob.get("/training_runs?access_scope=accessible");
    expect(JSON.stringify(listed.body)).not.toContain("weights/two");
    expect(
      (await alice.call("DELETE", `/training_runs/${modelId}/checkpoints/weights/one/publish`)).status,
    ).toBe(204);
  });

  it("lets a weights access token stand in for its owner", async () => {
    const sessionOfBob = await bob.openSession();
    const load = { session_id: sessionOfBob, model_seq_id: 0, path, optimizer: false };
    expect((await bob.post("/load_weights", load)).status).toBe(404);
    expect(
      (await bob.post("/load_weights", { ...load, weights_access_token: "tml-alice-key-of-the-test" }))
        .status,
    ).toBe(200);
    expect(
      (await bob.post("/load_weights", { ...load, weights_access_token: "tml-eve", model_seq_id: 1 })).status,
    ).toBe(401);
  });

  it("exchanges a key for a token that ends after an hour", async () => {
    const { jwt } = (await alice.ok("/auth/token")) as { jwt: string };
    const claims = JSON.parse(Buffer.from(jwt.split(".")[1]!, "base64url").toString()) as {
      exp: number;
      sub: string;
    };
    expect(claims.exp * 1000).toBe(clock.wallNow() + 3_600_000);
    const withToken = stranger.withKey(jwt);
    expect((await withToken.get(`/training_runs/${modelId}`)).status).toBe(200);
    const forged = `${jwt.slice(0, -4)}AAAA`;
    expect((await stranger.withKey(forged).get("/training_runs")).status).toBe(401);
    expect((await stranger.withKey("eyJ.x").get("/training_runs")).status).toBe(401);
    const unsigned = `${Buffer.from('{"alg":"none"}').toString("base64url")}.${jwt.split(".")[1]}.`;
    expect((await stranger.withKey(unsigned).get("/training_runs")).status).toBe(401);
    const again = await withToken.post("/auth/token");
    expect([again.status, again.body["detail"]]).toEqual([403, expect.stringContaining("send the API key")]);
    const { jwt: ofBob } = (await bob.ok("/auth/token")) as { jwt: string };
    expect((await bob.call("DELETE", "/auth/token")).status).toBe(204);
    expect((await stranger.withKey(ofBob).get("/training_runs")).status).toBe(401);
    const { jwt: newOfBob } = (await bob.ok("/auth/token")) as { jwt: string };
    expect((await stranger.withKey(newOfBob).get("/training_runs")).status).toBe(200);
    expect((await withToken.get("/training_runs")).status).toBe(200);
    await clock.advance(3_601_000);
    expect((await withToken.get("/training_runs")).status).toBe(401);
  });

  it("slows clients that try keys, and none that has one", async () => {
    await clock.advance(60_000);
    const trying = stranger.withKey("tml-mallory-of-the-test");
    for (let tries = 0; tries < 10; tries += 1) await trying.get("/training_runs");
    const answered: number[] = [];
    const guesses = Array.from({ length: 12 }, async () => {
      answered.push((await trying.get("/training_runs")).status);
    });
    // Guesses at the keys of others, in the place of a token for their weights, count too.
    const token = { source_path: path, destination_project_id: "p", weights_access_token: "tml-guess" };
    expect((await bob.post("/copy_weights", token)).status).toBe(429);
    expect((await alice.get("/training_runs")).status).toBe(200);
    expect(answered).toEqual([429, 429, 429, 429]);
    await clock.advance(5_000);
    await Promise.all(guesses);
    expect(answered.slice(4)).toEqual([401, 401, 401, 401, 401, 401, 401, 401]);
    await clock.advance(60_000);
    expect((await trying.get("/training_runs")).status).toBe(401);
  });

  it("names owners by what the data folder alone can tell from their keys", async () => {
    const { name: owner } = (await alice.get("/auth/apikey/me")).body as { name: string };
    const bare = createHash("sha256").update("tml-alice-key-of-the-test").digest("hex");
    expect(owner).not.toContain(bare.slice(0, 8));
    expect((await stat(join(dataDir, "secret"))).mode & 0o777).toBe(0o600);
    const elsewhere = await startFake({ apiKeys: ["tml-alice-key-of-the-test"] });
    const { body } = await elsewhere.client.withKey("tml-alice-key-of-the-test").get("/auth/apikey/me");
    expect(body["name"]).not.toBe(owner);
    await elsewhere.backend.close();
  });

  it("says to browsers that answers are data, and not for other sites", async () => {
    for (const answer of [await alice.get("/training_runs"), await stranger.get("/training_runs")]) {
      expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
      expect(answer.headers.get("cross-origin-resource-policy")).toBe("same-origin");
    }
  });

  it("may be used from any web page, by those who have a key", async () => {
    const origin = { origin: "https://example.com" };
    const preflight = await stranger.send("OPTIONS", "/api/v1/asample", {
      headers: {
        ...origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "x-api-key",
      },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get("access-control-allow-headers")).toBe("x-api-key");
    const answer = await alice.get("/get_server_capabilities", origin);
    expect([answer.status, answer.headers.get("access-control-allow-origin")]).toEqual([
      200,
      "https://example.com",
    ]);
    const refused = await stranger.get("/get_server_capabilities", origin);
    expect([refused.status, refused.headers.get("access-control-allow-origin")]).toEqual([
      401,
      "https://example.com",
    ]);
  });
});

describe("a server without keys", () => {
  let backend: LocalBackend;
  let client: RawClient;
  beforeAll(async () => {
    ({ backend, client } = await startFake({ corsOrigins: ["https://trusted.example"] }));
  });
  afterAll(() => backend.close());

  it("takes any key and none", async () => {
    expect(backend.apiKey).toBe("tml-local");
    expect((await client.get("/training_runs")).status).toBe(200);
    expect((await client.withKey("tml-anything").get("/training_runs")).status).toBe(200);
  });

  it.each([
    ["http://localhost:5173", 200],
    ["http://127.0.0.1:8080", 200],
    ["http://0.0.0.0:8080", 200],
    ["https://trusted.example", 200],
    ["https://evil.example", 403],
    ["http://localhost.evil.example", 403],
    ["null", 403],
  ])("answers pages of %s with %i", async (origin, status) => {
    const answer = await client.get("/get_server_capabilities", { origin });
    expect(answer.status).toBe(status);
    expect(answer.headers.get("access-control-allow-origin")).toBe(status === 200 ? origin : null);
  });

  it("answers only under the names of this machine, so that no other name can be pointed at it", async () => {
    await using listening = await startLocalBackend({ engine: new FakeEngine(), logger: silent });
    const statusFor = (host: string) =>
      new Promise<number | undefined>((resolve, reject) => {
        get(`${listening.baseURL}/healthz`, { headers: { host } }, (response) => {
          response.resume();
          resolve(response.statusCode);
        }).on("error", reject);
      });
    expect(await statusFor("localhost:1234")).toBe(200);
    expect(await statusFor("0.0.0.0:1234")).toBe(200);
    expect(await statusFor("rebound.example")).toBe(403);
    expect(await statusFor("127.0.0.1.rebound.example")).toBe(403);
    // Called directly there is no host to be fooled by.
    expect((await backend.fetch("http://tinker.test/healthz")).status).toBe(200);
  });
});

it("a client of another machine learns no folder of this one, whatever it calls itself", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "tinkerts-folders-"));
  const clock = new FakeClock();
  const store = await openStore(dataDir, { wallNow: clock.wallNow });
  const server = await createServer({
    engine: new FakeEngine(),
    store,
    clock,
    random: () => 0.5,
    logger: silent,
    apiKeys: [],
    origins: [],
    sessionTimeoutMs: 1000,
    limits: {},
    clientConfig: {},
  });
  const from = (address?: string) =>
    new RawClient({
      baseURL: "http://localhost",
      fetch: async (url, init) => server.fetch(new Request(url, init), { address }),
    });
  const { modelId } = await from().openModel();
  const tokenizerFor = async (address?: string) =>
    ((await from(address).ok("/get_info", { model_id: modelId }))["model_data"] as Json)["tokenizer_id"];
  for (const here of [undefined, "127.0.0.1", "::1", "::ffff:127.0.0.1"])
    expect(await tokenizerFor(here)).toBe(fakeModel.tokenizerPath);
  for (const elsewhere of ["10.0.0.9", "::ffff:10.0.0.9", "fe80::1"])
    expect(await tokenizerFor(elsewhere)).toBe(fakeModel.name);
  await server.close();
  await store.close();
  await rm(dataDir, { recursive: true });
});

describe("starting", () => {
  it("refuses to listen for other machines without a key", async () => {
    const engine = new FakeEngine();
    await expect(startLocalBackend({ engine, host: "0.0.0.0" })).rejects.toThrow(/needs an API key/);
    await expect(startLocalBackend({ engine, host: "::" })).rejects.toThrow(/needs an API key/);
    const backend = await startLocalBackend({ engine, host: "0.0.0.0", apiKeys: ["tml-x-key-of-the-test"] });
    expect((await fetch(`${backend.baseURL}/healthz`)).status).toBe(200);
    await backend.close();
  });

  it("refuses keys that no SDK would send, without repeating them", async () => {
    const starting = startLocalBackend({ engine: new FakeEngine(), apiKeys: ["secret123"] });
    await expect(starting).rejects.toThrow(/must begin with 'tml-'/);
    await expect(starting).rejects.not.toThrow(/secret123/);
    const guessable = startLocalBackend({ engine: new FakeEngine(), apiKeys: ["tml-secret123"] });
    await expect(guessable).rejects.toThrow(/at least 20 characters, got one of 13/);
    await expect(guessable).rejects.not.toThrow(/secret123/);
  });

  it("refuses limits that would bound nothing, or that it does not have", async () => {
    const limited = (limits: object) => startLocalBackend({ engine: new FakeEngine(), limits });
    for (const bytes of [-1, Number.NaN])
      await expect(limited({ bodyBytes: bytes })).rejects.toThrow(
        `limits.bodyBytes must be a number, 0 or more, got ${bytes}`,
      );
    await expect(limited({ bodybytes: 1 })).rejects.toThrow("did you mean bodyBytes?");
  });

  it("issues no tokens by default", async () => {
    const { backend, client } = await startFake({ apiKeys: ["tml-alice-key-of-the-test"] });
    const answer = await client.withKey("tml-alice-key-of-the-test").post("/auth/token");
    expect([answer.status, answer.body["detail"]]).toEqual([403, expect.stringContaining("no tokens")]);
    await backend.close();
  });

  it("keeps everybody's own in a data folder that an earlier version wrote, and refuses one with a broken secret", async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "tinkerts-former-"));
    const apiKeys = ["tml-alice-key-of-the-test"];
    const first = await startFake({ dataDir, apiKeys });
    const { modelId } = await first.client.withKey(apiKeys[0]!).openModel();
    const { name } = (await first.client.withKey(apiKeys[0]!).get("/auth/apikey/me")).body as {
      name: string;
    };
    await first.backend.close();
    // As it was: owners by a bare hash, and no secret.
    const former = `key-${createHash("sha256").update(apiKeys[0]!).digest("hex").slice(0, 16)}`;
    for (const entry of await readdir(dataDir, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile() || !/\.jsonl?$/.test(entry.name)) continue;
      const file = join(entry.parentPath, entry.name);
      await writeFile(file, (await readFile(file, "utf8")).replaceAll(name, former));
    }
    await rm(join(dataDir, "secret"));
    const second = await startFake({ dataDir, apiKeys });
    expect((await second.client.withKey(apiKeys[0]!).get(`/training_runs/${modelId}`)).status).toBe(200);
    await second.backend.close();
    await writeFile(join(dataDir, "secret"), "damaged");
    await expect(startFake({ dataDir, apiKeys })).rejects.toThrow(/secret must hold 64 hexadecimal digits/);
    await rm(dataDir, { recursive: true });
  });
});

describe("download links", () => {
  it("are signed, for one thing, and end", async () => {
    const clock = new FakeClock();
    const { backend, client } = await startFake({ clock, apiKeys: ["tml-alice-key-of-the-test"] });
    const alice = client.withKey("tml-alice-key-of-the-test");
    const { modelId } = await alice.openModel();
    for (const [seqId, name] of [
      [1, "one"],
      [2, "two"],
    ] as const) {
      await alice.result(alice.ok("/save_weights", { model_id: modelId, seq_id: seqId, path: name }));
    }
    const archive = `/training_runs/${modelId}/checkpoints/weights/one/archive`;
    const { url, expires } = (await alice.get(archive, { accept: "application/json" })).body as Record<
      string,
      string
    >;
    expect(Date.parse(expires!)).toBe(clock.wallNow() + 15 * 60_000);
    expect((await client.send("GET", url!)).status).toBe(200);
    expect((await client.send("GET", url!.replace("one", "two"))).status).toBe(403);
    expect((await client.send("GET", url!.replace(/expires=\d+/, "expires=99999999999"))).status).toBe(403);
    expect((await client.send("GET", url!.replace(/signature=.*/, ""))).status).toBe(403);
    expect((await client.send("GET", `${backend.baseURL}/api/v1/downloads/trace?session=x`)).status).toBe(
      403,
    );
    await clock.advance(15 * 60_000 + 1);
    expect((await client.send("GET", url!)).status).toBe(403);
    await backend.close();
  });
});
