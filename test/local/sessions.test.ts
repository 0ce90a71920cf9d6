import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ServiceClient } from "../../src/index.js";
import type { LocalBackend } from "../../src/local/index.js";
import { runWithRecovery } from "../../src/training/index.js";
import { FakeClock } from "../support/fake-clock.js";
import { type FakeEngine, fakeModel } from "./fake-engine.js";
import { passTime } from "./pass-time.js";
import { type Json, type RawClient, sampleBody, startFake, stepBody, weightedPass } from "./raw-client.js";

describe("a session", () => {
  let backend: LocalBackend;
  let engine: FakeEngine;
  let client: RawClient;
  let clock: FakeClock;

  beforeEach(async () => {
    clock = new FakeClock();
    ({ backend, engine, client } = await startFake({ clock, sessionTimeoutMs: 60_000 }));
  });
  afterEach(() => backend.close());

  const heartbeat = (sessionId: string) => client.post("/session_heartbeat", { session_id: sessionId });

  /** A long poll that the client closes when it likes. */
  const pollUntil = (signal: AbortSignal, accepted: Json) =>
    client.send("POST", "/api/v1/retrieve_future", {
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ request_id: accepted["request_id"] }),
      signal,
    });

  const pass = (durationMs: number) => passTime(clock, durationMs);
  const cancelled = () => engine.calls.filter((call) => call.startsWith("cancel"));

  /** Half a minute after its client was last heard, a sample is taken out of the engine, and stays out. */
  async function expectRest(sample: Json): Promise<void> {
    await pass(20_000);
    expect(cancelled()).toEqual([]);
    await pass(10_000);
    expect(cancelled()).toEqual([`cancel ${sample["request_id"]}`]);
    engine.open();
    await pass(5_000);
  }

  it("lives on heartbeats", async () => {
    const { sessionId, modelId } = await client.openModel();
    for (let minute = 0; minute < 3; minute += 1) {
      await pass(50_000);
      expect((await heartbeat(sessionId)).status).toBe(200);
    }
    expect(engine.adapters.size).toBe(1);
    expect((await client.post("/get_info", { model_id: modelId })).status).toBe(200);
  });

  it("is opened once for all copies of a request, by their idempotency key", async () => {
    const open = async (key: string) => {
      const body = { tags: [], user_metadata: null, sdk_version: "0.36.0" };
      const answer = await client.post("/create_session", body, { "x-idempotency-key": key });
      expect(answer.status).toBe(200);
      return answer.body["session_id"];
    };
    const [first, copy, other] = await Promise.all([open("a"), open("a"), open("b")]);
    expect(copy).toBe(first);
    expect(other).not.toBe(first);
    await pass(70_000);
    expect(await open("a")).toBe(first);
    const tooLong = "k".repeat(10_000);
    expect(await open(tooLong)).not.toBe(await open(tooLong));
    const { body } = await client.get("/sessions");
    expect(body["sessions"]).toHaveLength(4);
  });

  it("that could not be opened is opened when its request is sent again", async () => {
    await backend.close();
    ({ backend, engine, client } = await startFake({ clock, limits: { openSessions: 1 } }));
    const held = await client.openSession();
    const key = { "x-idempotency-key": "a" };
    const body = { tags: [], user_metadata: null, sdk_version: "0.36.0" };
    expect((await client.post("/create_session", body, key)).status).toBe(429);
    await client.post(`/sessions/${held}/finish`, {});
    expect((await client.post("/create_session", body, key)).status).toBe(200);
  });

  it("without heartbeats ends and frees its models and samplers", async () => {
    const { sessionId, modelId } = await client.openModel();
    await client.result(
      client.ok("/save_weights_for_sampler", { model_id: modelId, seq_id: 1, sampling_session_seq_id: 0 }),
    );
    const waiting = await client.ok("/optim_step", stepBody(modelId, 3));
    expect(engine.adapters.size).toBe(2);
    await pass(70_000);
    await vi.waitFor(() => expect(engine.adapters.size).toBe(0));
    expect((await heartbeat(sessionId)).status).toBe(410);
    const step = await client.post("/optim_step", stepBody(modelId, 2));
    expect([step.status, step.body["detail"]]).toEqual([410, expect.stringContaining("no longer loaded")]);
    expect(await client.result(waiting)).toMatchObject({
      category: "server",
      error: expect.stringContaining("no heartbeat for 60 s"),
    });
    expect((await client.get(`/training_runs/${modelId}`)).status).toBe(200);
  });

  it("that ends with requests in its queue, because the server does, is restored by runWithRecovery", async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "tinkerts-sessions-"));
    let server = await startFake({ dataDir });
    const failures: string[] = [];
    const { restores } = await runWithRecovery({
      service: () =>
        new ServiceClient({
          ...server.backend,
          // A server that is gone refuses connections.
          fetch: (...request) =>
            server.backend.fetch(...request).catch(() => {
              throw new TypeError("fetch failed");
            }),
        }),
      start: (service) => service.createLoraTrainingClient({ baseModel: fakeModel.name, rank: 4, seed: 0 }),
      steps: 3,
      policy: { backoffMs: 1 },
      onEvent: (event) => {
        if (event.type === "failed") failures.push(event.reason);
      },
      step: async (training, step) => {
        const datum = { modelInput: [1, 2], lossFnInputs: { targetTokens: [2, 3], weights: [1, 1] } };
        const isDisturbed = step === 1 && failures.length === 0;
        if (isDisturbed) server.engine.hold();
        const pass = training.forwardBackward([datum], "cross_entropy");
        const update = training.optimStep({ learningRate: 0.1 });
        if (isDisturbed) {
          await update.submitted;
          // By now both are being polled for.
          await new Promise((resolve) => setTimeout(resolve, 100));
          const closing = server.backend.close();
          server.engine.open();
          await closing;
          server = await startFake({ dataDir });
        }
        await update;
        await pass;
      },
    });
    expect({ restores, failures }).toEqual({
      restores: 1,
      failures: [expect.stringMatching(/^(server|lost)$/)],
    });
    await server.backend.close();
    await rm(dataDir, { recursive: true });
  });

  it("is kept alive by its requests as well", async () => {
    const { sessionId, modelId } = await client.openModel();
    await pass(50_000);
    await client.ok("/optim_step", stepBody(modelId, 1));
    await pass(50_000);
    expect((await heartbeat(sessionId)).status).toBe(200);
  });

  it("that its client finished is over: heartbeats answer 410", async () => {
    const { sessionId } = await client.openModel();
    const finish = () =>
      client.post(`/sessions/${sessionId}/finish`, { reason: { type: "errored" }, detail: "boom" });
    expect((await finish()).status).toBe(204);
    expect((await finish()).status).toBe(204);
    expect((await heartbeat(sessionId)).status).toBe(410);
    await vi.waitFor(() => expect(engine.adapters.size).toBe(0));
    const found = await client.ok("/sessions/search", { session_id: sessionId });
    expect(found).toMatchObject({
      sessions: [{ status: { type: "client_finished", reason: { type: "errored" }, detail: "boom" } }],
    });
  });

  it("that never was is a 404", async () => {
    expect((await heartbeat("nope")).status).toBe(404);
  });

  it("ends its running samples when it ends", async () => {
    const sessionId = await client.openSession();
    const { sampling_session_id: samplerId } = await client.ok("/create_sampling_session", {
      session_id: sessionId,
      sampling_session_seq_id: 0,
      base_model: fakeModel.name,
    });
    engine.hold();
    const accepted = await client.ok("/asample", sampleBody(String(samplerId), 0));
    await client.post(`/sessions/${sessionId}/finish`, {});
    expect(await client.result(accepted)).toEqual({
      category: "user",
      error: `Session ${sessionId} is over: its client finished it.`,
    });
    expect((await client.post("/asample", sampleBody(String(samplerId), 1))).status).toBe(410);
    engine.open();
  });

  it("that is finished while something runs answers at once and is cleaned up behind it", async () => {
    const { sessionId, modelId } = await client.openModel();
    engine.hold();
    const running = await client.ok("/optim_step", stepBody(modelId, 1));
    const waiting = await client.ok("/optim_step", stepBody(modelId, 2));
    expect((await client.post(`/sessions/${sessionId}/finish`, {})).status).toBe(204);
    expect(await client.result(waiting)).toMatchObject({
      category: "user",
      error: expect.stringContaining("finished it"),
    });
    expect(engine.adapters.size).toBe(1);
    engine.open();
    expect(await client.result(running)).toMatchObject({ metrics: { "step:max": 1 } });
    await vi.waitFor(() => expect(engine.adapters.size).toBe(0));
  });

  describe("whose client died without a word", () => {
    let sessionId: string;
    let samplerId: string;
    let modelId: string;

    /** A step that runs, one behind it, and a sample, with the engine busy. */
    async function leaveWork() {
      ({ sessionId, modelId } = await client.openModel());
      const created = await client.ok("/create_sampling_session", {
        session_id: sessionId,
        sampling_session_seq_id: 0,
        base_model: fakeModel.name,
      });
      samplerId = String(created["sampling_session_id"]);
      engine.hold();
      const running = await client.ok("/optim_step", stepBody(modelId, 1));
      const queued = await client.ok("/optim_step", stepBody(modelId, 2, 0.25));
      const sample = await client.ok("/asample", sampleBody(samplerId, 0));
      engine.calls.length = 0;
      return { running, queued, sample };
    }
    const executed = () => engine.calls.filter((call) => !call.startsWith("cancel"));

    it("takes nothing of the engine after half a minute, and all that was asked for once it is back", async () => {
      const { running, queued, sample } = await leaveWork();
      await expectRest(sample);
      expect(executed()).toEqual([]);
      expect((await heartbeat(sessionId)).status).toBe(200);
      await vi.waitFor(() => expect(executed()).toEqual(["optim_step 0.25", "sample 5"]));
      expect(await client.result(running)).toMatchObject({ metrics: { "step:max": 1 } });
      expect(await client.result(queued)).toMatchObject({ metrics: { "step:max": 2 } });
      expect((await client.sampleResult(sample)).sequences).toHaveLength(1);
    });

    it("is found alive again by whatever it sends", async () => {
      const { queued, sample } = await leaveWork();
      await pass(30_000);
      engine.open();
      expect(await client.result(queued)).toMatchObject({ metrics: { "step:max": 2 } });
      expect((await client.sampleResult(sample)).sequences).toHaveLength(1);
    });

    it("can cancel what was paused", async () => {
      const { sample } = await leaveWork();
      await pass(30_000);
      await client.ok("/cancel_future", { request_id: sample["request_id"] });
      expect(await client.result(sample)).toMatchObject({ category: "user" });
      engine.open();
    });

    it("has its work given up when the session ends", async () => {
      const { running, queued, sample } = await leaveWork();
      await pass(30_000);
      engine.open();
      await pass(40_000);
      expect(executed()).toEqual([`remove model-${modelId}`]);
      expect(await client.result(running)).toMatchObject({ metrics: { "step:max": 1 } });
      const over = { category: "server", error: expect.stringContaining("no heartbeat for 60 s") };
      expect(await client.result(queued)).toMatchObject(over);
      expect(await client.result(sample)).toMatchObject(over);
    });

    it("is not taken for one that sends heartbeats and nothing else", async () => {
      await leaveWork();
      for (let time = 0; time < 60_000; time += 20_000) {
        await pass(20_000);
        await heartbeat(sessionId);
      }
      expect(cancelled()).toEqual([]);
      engine.open();
    });

    it("is not taken for one that waits and sends no heartbeats", async () => {
      const { queued } = await leaveWork();
      const abort = new AbortController();
      const poll = () => pollUntil(abort.signal, queued);
      for (let time = 0; time < 60_000; time += 25_000) {
        const polling = poll();
        await pass(25_000);
        await polling;
      }
      expect(cancelled()).toEqual([]);
      const last = poll().catch(() => undefined);
      await pass(20_000);
      abort.abort();
      await last;
      // Counted from its last word: a poll that was cut off is none.
      await pass(5_000);
      expect(cancelled()).toHaveLength(1);
      engine.open();
    });
  });

  describe("that is missing: a sample on its own", () => {
    let accepted: Json;

    async function ask(): Promise<void> {
      const body = { ...sampleBody("", 0), sampling_session_id: undefined, seq_id: undefined };
      accepted = await client.ok("/asample", { ...body, base_model: fakeModel.name });
    }
    beforeEach(async () => {
      engine.hold();
      await ask();
      await vi.waitFor(() => expect(engine.calls).toEqual(["sample 5"]));
      engine.calls.length = 0;
    });
    afterEach(() => engine.open());

    /** A long poll, closed after a while as by a client that is killed. */
    async function pollUntilKilled(): Promise<void> {
      const abort = new AbortController();
      const polled = pollUntil(abort.signal, accepted);
      await pass(5_000);
      abort.abort();
      await polled.catch(() => undefined);
    }

    it("pauses when its poll was closed, and is sampled when another poll comes", async () => {
      await pollUntilKilled();
      await expectRest(accepted);
      expect(engine.calls).toHaveLength(1);
      expect((await client.sampleResult(accepted)).sequences).toHaveLength(1);
      expect(engine.calls.at(-1)).toBe("sample 5");
    });

    it("continues while polls come, and before the first poll", async () => {
      await pass(40_000);
      for (let time = 0; time < 60_000; time += 20_000) {
        await pollUntilKilled();
        await pass(15_000);
      }
      expect(cancelled()).toEqual([]);
    });

    it("is given up after the time of a session, and can be cancelled before", async () => {
      await pollUntilKilled();
      await pass(65_000);
      const failure = { category: "server", error: expect.stringContaining("was not polled for") };
      expect(await client.result(accepted)).toMatchObject(failure);
      await ask();
      await pollUntilKilled();
      await pass(30_000);
      await client.ok("/cancel_future", { request_id: accepted["request_id"] });
      expect(await client.result(accepted)).toMatchObject({ category: "user" });
    });
  });

  it("does not pay for the time in which the server was stopped", async () => {
    const { sessionId, modelId } = await client.openModel();
    engine.hold();
    await client.ok("/optim_step", stepBody(modelId, 1));
    await client.ok("/optim_step", stepBody(modelId, 2));
    await pass(10_000);
    clock.stop(3_600_000);
    await pass(5_000);
    expect((await heartbeat(sessionId)).status).toBe(200);
    expect(engine.adapters.size).toBe(1);
    engine.open();
    clock.stop(3_600_000);
    await pass(70_000);
    expect((await heartbeat(sessionId)).status).toBe(410);
  });

  it("names the models it can have", async () => {
    const sessionId = await client.openSession();
    const answer = await client.post("/create_model", {
      session_id: sessionId,
      model_seq_id: 0,
      base_model: "gpt",
    });
    expect([answer.status, JSON.stringify(answer.body)]).toEqual([422, expect.stringContaining("fake/tiny")]);
  });
});

describe("unnamed sampler weights", () => {
  it("stay in memory when the disk does not take them", async () => {
    const { backend, engine, client } = await startFake({ limits: { loadedSamplers: 1 } });
    const { sessionId, modelId } = await client.openModel();
    await rm(join(backend.dataDir, "spill"), { recursive: true });
    await writeFile(join(backend.dataDir, "spill"), "a file where a folder was");
    const samplers: string[] = [];
    for (const seqId of [1, 2, 3]) {
      const body = { model_id: modelId, seq_id: seqId, sampling_session_seq_id: seqId };
      const saved = await client.result(client.ok("/save_weights_for_sampler", body));
      samplers.push(String(saved["sampling_session_id"]));
    }
    for (const seqId of [1, 2]) {
      for (const samplerId of samplers) {
        expect(await client.result(client.ok("/asample", sampleBody(samplerId, seqId)))).toMatchObject({
          sequences: [{}],
        });
      }
    }
    await client.post(`/sessions/${sessionId}/finish`, {});
    await vi.waitFor(() => expect(engine.adapters.size).toBe(0));
    await backend.close();
  });

  it("are never taken for those of another model, or of another time, under the same number", async () => {
    const { backend, engine, client } = await startFake();
    const { sessionId, modelId } = await client.openModel();
    const other = await client.createModel(sessionId, 1, 5);
    const freeze = (model: string, seqId: number) =>
      client.result(
        client.ok("/save_weights_for_sampler", {
          model_id: model,
          seq_id: seqId,
          sampling_session_seq_id: 7,
        }),
      );
    const samplerId = `${sessionId}:sample:7`;
    expect(await freeze(modelId, 1)).toMatchObject({ sampling_session_id: samplerId });
    const adapters = engine.adapters.size;
    for (const refused of [await freeze(other, 1), await freeze(modelId, 2)]) {
      expect(refused).toMatchObject({
        category: "user",
        error: expect.stringContaining(`${samplerId} exists`),
      });
    }
    expect(engine.adapters.size).toBe(adapters);
    const sampled = await client.result(client.ok("/asample", sampleBody(samplerId, 1)));
    expect(sampled["sequences"]).toHaveLength(1);
    await backend.close();
  });

  it("are frozen when they are made, wait on disk when there are many, and come back", async () => {
    const { backend, engine, client } = await startFake({
      limits: { loadedSamplers: 2, ephemeralSamplers: 6 },
    });
    const { modelId } = await client.openModel();
    const samplers: string[] = [];
    for (let index = 0; index < 8; index += 1) {
      await client.ok("/forward_backward", weightedPass(modelId, 3 * index + 1, 10));
      await client.ok("/optim_step", stepBody(modelId, 3 * index + 2, 1));
      const saved = await client.result(
        client.ok("/save_weights_for_sampler", {
          model_id: modelId,
          seq_id: 3 * index + 3,
          sampling_session_seq_id: index,
        }),
      );
      samplers.push(String(saved["sampling_session_id"]));
    }
    await vi.waitFor(() => expect(engine.adapters.size).toBeLessThanOrEqual(3));
    const logprobs: number[] = [];
    for (const samplerId of samplers.slice(2)) {
      const response = await client.sampleResult(await client.ok("/asample", sampleBody(samplerId, 0)));
      logprobs.push(response.sequences[0]!.logprobs![0]!);
    }
    expect(new Set(logprobs).size).toBe(6);
    expect([...logprobs].sort((a, b) => b - a)).toEqual(logprobs);
    const again = await client.sampleResult(await client.ok("/asample", sampleBody(samplers[2]!, 1)));
    expect(again.sequences[0]!.logprobs![0]).toBe(logprobs[0]);
    expect((await client.post("/asample", sampleBody(samplers[0]!, 0))).status).toBe(410);
    await backend.close();
  });
});
