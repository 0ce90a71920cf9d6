import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it } from "vitest";
import { startEngine } from "../../src/local/engine/start-engine.node.js";
import type { LocalBackendOptions } from "../../src/local/index.js";
import { FakeClock } from "../support/fake-clock.js";
import type { FakeEngine } from "./fake-engine.js";
import { fakeModel } from "./fake-engine.js";
import { type Json, passBody, type RawClient, startFake, stepBody } from "./raw-client.js";

const KEYS = ["tml-alice-alice-alice", "tml-bob-bob-bob-bob-bob"] as const;

let closeLast = async () => {};
afterEach(() => closeLast());

/** A server with two keys: one tenant who takes all they can get, and another who tries to work. */
async function twoTenants(
  options: LocalBackendOptions = {},
): Promise<{ greedy: RawClient; other: RawClient; engine: FakeEngine }> {
  const { backend, client, engine } = await startFake({ apiKeys: KEYS, ...options });
  closeLast = () => backend.close();
  return { greedy: client.withKey(KEYS[0]), other: client.withKey(KEYS[1]), engine };
}

it("the prompt cache tells a tenant nothing of what another sent", async () => {
  const path = fileURLToPath(new URL("../fixtures/engine/qwen3", import.meta.url));
  const engine = await startEngine({ models: [{ name: "tiny", path }], threads: 1, inThread: true });
  const { greedy: victim, other: guesser } = await twoTenants({ engine });
  const sample = async (client: RawClient) => {
    const tokens = Array.from({ length: 40 }, (_, index) => (index * 7) % 50);
    const accepted = await client.ok("/asample", {
      base_model: "tiny",
      num_samples: 1,
      prompt: { chunks: [{ type: "encoded_text", tokens }] },
      sampling_params: { max_tokens: 4, seed: 5 },
    });
    const { promptCacheHitTokens, sequences } = await client.sampleResult(accepted);
    return { promptCacheHitTokens, sampled: sequences[0]!.tokens };
  };
  const { sampled, promptCacheHitTokens } = await sample(victim);
  expect(promptCacheHitTokens).toBe(0);
  expect(await sample(guesser)).toEqual({ sampled, promptCacheHitTokens: 0 });
  expect(await sample(victim)).toEqual({ sampled, promptCacheHitTokens: 32 });
  expect(await sample(guesser)).toEqual({ sampled, promptCacheHitTokens: 32 });
});

describe("request bodies", () => {
  /** A body of which `bytes` come at once, and as many again with each `send`. */
  function slowBody(client: RawClient, bytes: number) {
    let send = () => {};
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        send = () => controller.enqueue(new Uint8Array(bytes).fill(0x20));
        send();
      },
    });
    const headers = { "content-type": "application/json" };
    const answer = client.send("POST", "/api/v1/telemetry", { headers, body, duplex: "half" } as RequestInit);
    return { answer, send };
  }

  it("of one tenant that never end leave room for those of another", async () => {
    const clock = new FakeClock();
    const { greedy, other } = await twoTenants({ clock, limits: { arrivingBytes: 100_000 } });
    const slow = Array.from({ length: 8 }, () => slowBody(greedy, 20_000).answer);
    // Those beyond the share of the tenant are refused at once; the others go on arriving.
    const refused = Promise.all(slow.slice(3).map(async (answer) => (await answer).status));
    await clock.advance(500);
    expect(await refused).toEqual([429, 429, 429, 429, 429]);
    const events = ["x".repeat(20_000)];
    expect((await other.post("/telemetry", { events })).status).toBe(200);
    expect((await greedy.post("/telemetry", { events })).status).toBe(429);
    await clock.advance(31_000);
    expect(await Promise.all(slow.slice(0, 3).map(async (answer) => (await answer).status))).toEqual([
      408, 408, 408,
    ]);
    expect((await greedy.post("/telemetry", { events })).status).toBe(200);
  });

  it("that trickle in are given up, however regularly something comes", async () => {
    const clock = new FakeClock();
    const { other } = await twoTenants({ clock, limits: { bodyBytesPerSecond: 1000 } });
    const body = slowBody(other, 100);
    for (let at = 0; at < 3; at += 1) {
      await clock.advance(10_000);
      body.send();
    }
    await clock.advance(1000);
    const answer = await body.answer;
    expect([answer.status, await answer.text()]).toEqual([
      408,
      expect.stringContaining("less than 1000 bytes a second"),
    ]);
  });
});

describe("one tenant who takes all they can get leaves the other room for", () => {
  /** Repeats a request until it is refused; how often it was not. */
  async function untilRefused(send: (count: number) => Promise<{ status: number; body: Json }>) {
    for (let count = 0; count < 1000; count += 1) {
      const { status, body } = await send(count);
      if (status !== 200) return { count, status, detail: String(body["detail"]) };
    }
    throw new Error("never refused");
  }
  const alone = (numSamples: number) => ({
    base_model: fakeModel.name,
    num_samples: numSamples,
    prompt: { chunks: [{ type: "encoded_text", tokens: [5, 6] }] },
    sampling_params: { max_tokens: 3 },
  });

  it("sessions", async () => {
    const { greedy, other } = await twoTenants({ limits: { openSessions: 8 } });
    const open = { tags: [], sdk_version: "1" };
    expect(await untilRefused(() => greedy.post("/create_session", open))).toEqual({
      count: 6,
      status: 429,
      detail: "You have 6 open sessions, and may have 6 now; close some first.",
    });
    for (let count = 0; count < 2; count += 1) await other.openSession();
    expect((await other.post("/create_session", open)).status).toBe(429);
  });

  it("models", async () => {
    const { greedy, other } = await twoTenants({ limits: { openModels: 4 } });
    const sessionId = await greedy.openSession();
    const create = (index: number) =>
      greedy.post("/create_model", {
        session_id: sessionId,
        model_seq_id: index,
        base_model: fakeModel.name,
        lora_config: { rank: 4 },
      });
    const refused = await untilRefused(create);
    expect(refused).toMatchObject({ count: 3, status: 429 });
    expect(refused.detail).toMatch(/You have 3 models in training, and may have 3 now; unload some first/);
    expect((await other.openModel()).modelId).toContain(":train:0");
  });

  it("training requests that wait", async () => {
    const { greedy, other, engine } = await twoTenants({ limits: { queuedBytes: 8192 } });
    const [{ modelId }, { modelId: modelOfOther }] = [await greedy.openModel(), await other.openModel()];
    engine.hold();
    const refused = await untilRefused((count) => greedy.post("/optim_step", stepBody(modelId, count + 1)));
    expect(refused).toMatchObject({ count: 6, status: 429 });
    expect(refused.detail).toMatch(
      /6144 bytes of yours are waiting to be processed; at most 6144 may wait now/,
    );
    const accepted = await other.ok("/forward_backward", passBody(modelOfOther, 1, 1));
    engine.open();
    expect((await other.passResult(accepted)).lossFnOutputs).toHaveLength(1);
  });

  it("sequences that are sampled", async () => {
    const { greedy, other, engine } = await twoTenants({ limits: { queuedSequences: 8 } });
    engine.hold();
    expect(await untilRefused(() => greedy.post("/asample", alone(1)))).toMatchObject({
      count: 6,
      status: 429,
    });
    // From another session too: its share is within that of its owner.
    const accepted = await other.ok("/asample", alone(2));
    expect((await other.post("/asample", alone(1))).status).toBe(429);
    engine.open();
    expect((await other.sampleResult(accepted)).sequences).toHaveLength(2);
  });

  it("prompts and schemas that wait to be sampled", async () => {
    const { greedy, other, engine } = await twoTenants({ limits: { queuedBytes: 4096 } });
    engine.hold();
    const tokens = Array.from({ length: 50 }, () => 5);
    const long = { ...alone(1), prompt: { chunks: [{ type: "encoded_text", tokens }] } };
    const refused = await untilRefused(() => greedy.post("/asample", long));
    expect(refused).toMatchObject({ count: 7, status: 429 });
    expect(refused.detail).toMatch(/2800 bytes of your prompts and schemas are .* at most 3072 may now/);
    const accepted = await other.ok("/asample", long);
    engine.open();
    expect((await other.sampleResult(accepted)).sequences).toHaveLength(1);
  });

  it("results that were not fetched", async () => {
    const { greedy, other } = await twoTenants({ limits: { resultBytes: 2000, fetchedResults: 2 } });
    const mine = await other.ok("/asample", alone(1));
    for (let count = 0; count < 100; count += 1) await greedy.ok("/asample", alone(4));
    expect((await other.sampleResult(mine)).sequences).toHaveLength(1);
    for (let count = 0; count < 10; count += 1)
      await greedy.sampleResult(await greedy.ok("/asample", alone(1)));
    // Fetched, and requested again after a broken connection.
    expect((await other.sampleResult(mine)).sequences).toHaveLength(1);
  });

  it("disk, counted before anything is written", async () => {
    const { greedy, other } = await twoTenants({ limits: { diskBytes: 40_000 } });
    const { modelId } = await greedy.openModel();
    const { path } = await greedy.result(greedy.ok("/save_weights", { model_id: modelId, path: "first" }));
    const copy = { source_path: path, destination_project_id: "p" };
    const refused = await untilRefused(() => greedy.post("/copy_weights", copy));
    expect(refused.status).toBe(403);
    expect(refused.detail).toMatch(
      /This checkpoint takes \d kB, and your others take \d+ kB of the 30 kB of disk that you may use now\. Delete checkpoints/,
    );
    // Nothing is left of what was refused, and all at once are counted like one after the other.
    const { checkpoints } = (await greedy.get("/checkpoints?limit=1000")).body as { checkpoints: Json[] };
    expect(checkpoints).toHaveLength(refused.count + 1);
    const used = checkpoints.reduce((sum, { size_bytes: bytes }) => sum + Number(bytes), 0);
    expect(used).toBeLessThanOrEqual(30_000);
    const failed = await greedy.result(greedy.ok("/save_weights", { model_id: modelId, path: "more" }));
    expect(failed).toMatchObject({
      category: "user",
      error: expect.stringContaining("Delete checkpoints"),
    });
    const { modelId: modelOfOther } = await other.openModel();
    expect(
      await other.result(other.ok("/save_weights", { model_id: modelOfOther, path: "mine" })),
    ).toHaveProperty("path");
    const [first] = checkpoints as { checkpoint_id: string; tinker_path: string }[];
    const run = /tinker:\/\/([^/]+)/.exec(first!.tinker_path)![1];
    expect(
      (await greedy.call("DELETE", `/training_runs/${run}/checkpoints/${first!.checkpoint_id}`)).status,
    ).toBe(204);
    const atOnce = await Promise.all(Array.from({ length: 8 }, () => greedy.post("/copy_weights", copy)));
    expect(atOnce.filter(({ status }) => status === 200)).toHaveLength(1);
  });

  it("disk, also for unnamed sampler weights that do not fit into memory", async () => {
    const { greedy, other } = await twoTenants({ limits: { diskBytes: 40_000, loadedSamplers: 1 } });
    const { modelId } = await greedy.openModel();
    const samplers: string[] = [];
    for (let index = 0; index < 12; index += 1) {
      const frozen = greedy.ok("/save_weights_for_sampler", {
        model_id: modelId,
        sampling_session_seq_id: index,
      });
      samplers.push(String((await greedy.result(frozen))["sampling_session_id"]));
    }
    const draw = async (sampler: string) => {
      const body = { ...alone(1), base_model: undefined, sampling_session_id: sampler, seq_id: 0 };
      return greedy.result(greedy.ok("/asample", body));
    };
    // The last one is in memory, the first ones are on disk, those for which there was no room are gone.
    expect(await draw(samplers.at(-1)!)).toHaveProperty("sequences");
    expect(await draw(samplers[0]!)).toHaveProperty("sequences");
    expect(await draw(samplers[9]!)).toMatchObject({
      error: expect.stringMatching(/of disk that you may use now|your share of the disk was full/),
    });
    const failed = await greedy.result(greedy.ok("/save_weights", { model_id: modelId, path: "one" }));
    expect(failed["error"]).toMatch(/your others take 2\d kB of the 30 kB/);
    const { modelId: modelOfOther } = await other.openModel();
    const mine = { model_id: modelOfOther, path: "mine" };
    expect(await other.result(other.ok("/save_weights", mine))).toHaveProperty("path");
  });
});
