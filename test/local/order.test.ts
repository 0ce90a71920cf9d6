import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { LocalBackend } from "../../src/local/index.js";
import { Datum, encodeForwardBackwardRequest } from "../../src/wire/index.js";
import { FakeClock } from "../support/fake-clock.js";
import type { FakeEngine } from "./fake-engine.js";
import { passBody, type RawClient, startFake, stepBody } from "./raw-client.js";
import { zstdRaw } from "./zstd-raw.js";

describe("training requests of one model", () => {
  let backend: LocalBackend;
  let engine: FakeEngine;
  let client: RawClient;
  let clock: FakeClock;
  let modelId: string;

  beforeEach(async () => {
    clock = new FakeClock();
    ({ backend, engine, client } = await startFake({ clock }));
    ({ modelId } = await client.openModel());
    engine.calls.length = 0;
  });
  afterEach(() => backend.close());

  it("run by seq_id, whatever the order in which they arrive", async () => {
    const accepted = [];
    for (const seqId of [4, 2, 3])
      accepted.push(await client.ok("/forward_backward", passBody(modelId, seqId, 10 + seqId)));
    expect(engine.calls).toEqual([]);
    accepted.push(await client.ok("/optim_step", stepBody(modelId, 1)));
    await Promise.all(accepted.map((one) => client.result(one)));
    expect(engine.calls).toEqual([
      "optim_step 0.1",
      "forward_backward 12",
      "forward_backward 13",
      "forward_backward 14",
    ]);
  });

  it("of several models do not wait for each other", async () => {
    const other = await client.openModel();
    await client.ok("/optim_step", stepBody(modelId, 2));
    expect(await client.result(client.ok("/optim_step", stepBody(other.modelId, 1)))).toMatchObject({
      metrics: { "step:max": 1 },
    });
  });

  it("say through the queue state which number they wait for", async () => {
    const accepted = await client.ok("/optim_step", stepBody(modelId, 3));
    await client.ok("/optim_step", stepBody(modelId, 2));
    const polling = client.poll(accepted["request_id"]);
    await clock.advance(5_000);
    expect(await polling).toMatchObject({
      type: "try_again",
      queue_state: "paused_capacity",
      queue_state_reason: expect.stringMatching(/request 1 of model .* not arrived; 2 later/),
    });
    await client.ok("/optim_step", stepBody(modelId, 1));
    expect(await client.poll(accepted["request_id"])).toMatchObject({ metrics: { "step:max": 3 } });
  });

  it("sent again get the same future and run once", async () => {
    const first = await client.ok("/forward_backward", passBody(modelId, 1, 7));
    const again = await client.ok("/forward_backward", passBody(modelId, 1, 7));
    expect(again).toEqual(first);
    await client.result(first);
    expect(await client.ok("/forward_backward", passBody(modelId, 1, 7))).toEqual(first);
    expect(engine.calls).toEqual(["forward_backward 7"]);
  });

  it("sent several times at once run once, also in zstd and where they save", async () => {
    const bytes = encodeForwardBackwardRequest({
      modelId,
      seqId: 1,
      data: [new Datum({ modelInput: [7, 8], lossFnInputs: { targetTokens: [8, 9], weights: [1, 1] } })],
      lossFn: "cross_entropy",
      forwardOnly: false,
    });
    const sendPass = async (isZstd: boolean) => {
      const headers = {
        "content-type": "application/x-protobuf",
        "content-encoding": isZstd ? "zstd" : "identity",
      };
      const body = (isZstd ? zstdRaw(bytes) : bytes) as BodyInit;
      return (await client.send("POST", "/api/v1/forward_backward", { headers, body })).json();
    };
    const save = { model_id: modelId, seq_id: 3, path: "kept", overwrite: true };
    const sendAll = () =>
      Promise.all([
        ...[sendPass(false), sendPass(true), sendPass(true)],
        ...[1, 2, 3].map(() => client.ok("/save_weights", save)),
        ...[1, 2, 3].map(() => client.ok("/optim_step", stepBody(modelId, 2))),
      ]);
    const accepted = await sendAll();
    expect(new Set(accepted.map((each) => each.request_id))).toEqual(
      new Set([1, 3, 2].map((seqId) => `${modelId}:${seqId}`)),
    );
    await client.result({ request_id: `${modelId}:3` });
    await sendAll();
    expect(engine.calls).toEqual(["forward_backward 7", "optim_step 0.1", `export model-${modelId}`]);
  });

  it("with another payload under the same seq_id are a 409", async () => {
    await client.ok("/forward_backward", passBody(modelId, 1, 7));
    const conflict = await client.post("/forward_backward", passBody(modelId, 1, 8));
    expect(conflict.status).toBe(409);
    expect(conflict.headers.get("x-should-retry")).toBe("false");
    expect((await client.post("/optim_step", stepBody(modelId, 1))).status).toBe(409);
    const otherLoss = passBody(modelId, 1, 7, { loss_fn: "dro" });
    expect((await client.post("/forward_backward", otherLoss)).status).not.toBe(200);
  });

  it("that sending again cannot mend get a status that the Python package does not send again after", async () => {
    const python = client.asPython();
    const sessionId = modelId.split(":")[0];
    await python.ok("/forward_backward", passBody(modelId, 1, 7));
    await python.result(python.ok("/save_weights", { model_id: modelId, seq_id: 2, path: "taken" }));
    const behind = await python.ok("/optim_step", stepBody(modelId, 4));
    const refusals = [
      await python.post("/forward_backward", passBody(modelId, 1, 8)),
      await python.post("/save_weights", { model_id: modelId, seq_id: 3, path: "taken" }),
      await python.post("/create_model", { session_id: sessionId, model_seq_id: 0, base_model: "fake/tiny" }),
    ];
    expect(refusals.map(({ status }) => status)).toEqual([400, 400, 400]);
    expect(refusals[1]!.body["detail"]).toContain("exists already");
    expect(await python.result(behind)).toMatchObject({ metrics: { "step:max": 1 } });
    const again = { model_id: modelId, seq_id: 5, path: "taken" };
    expect((await client.post("/save_weights", again)).status).toBe(409);
  });

  it("that were refused leave the order usable for those behind them", async () => {
    const behind = await client.ok("/optim_step", stepBody(modelId, 2));
    const refused = await client.post("/forward_backward", passBody(modelId, 1, 5000));
    expect(refused.status).toBe(422);
    expect(await client.result(behind)).toMatchObject({ metrics: { "step:max": 1 } });
    // The client may also correct the request and send it under its own number, late as it is.
    const corrected = await client.ok("/forward_backward", passBody(modelId, 1, 5));
    await client.result(corrected);
    expect(await client.result(client.ok("/optim_step", stepBody(modelId, 3)))).toMatchObject({
      metrics: { "step:max": 2 },
    });
    expect(engine.calls).toEqual(["optim_step 0.1", "forward_backward 5", "optim_step 0.1"]);
  });

  it("that fail do not stop those behind them, and say whose fault it was", async () => {
    const failing = await client.ok("/forward_backward", passBody(modelId, 1, 99));
    const behind = await client.ok("/optim_step", stepBody(modelId, 2));
    expect(await client.result(failing)).toEqual({
      error: "token 99 is not to the fake engine's taste",
      category: "user",
    });
    expect(await client.result(behind)).toMatchObject({ metrics: { "step:max": 1 } });
  });

  it("without numbers run in the order of arrival", async () => {
    const accepted = [];
    for (const first of [11, 12, 13])
      accepted.push(await client.ok("/forward_backward", passBody(modelId, undefined, first)));
    await Promise.all(accepted.map((one) => client.result(one)));
    expect(engine.calls).toEqual(["forward_backward 11", "forward_backward 12", "forward_backward 13"]);
  });

  it("create the model once when create_model is sent again", async () => {
    const sessionId = await client.openSession();
    const body = {
      session_id: sessionId,
      model_seq_id: 0,
      base_model: "fake/tiny",
      lora_config: { rank: 4 },
    };
    const first = await client.ok("/create_model", body);
    expect(await client.ok("/create_model", body)).toEqual(first);
    expect(await client.result(first)).toEqual({ type: "create_model", model_id: `${sessionId}:train:0` });
    expect(engine.calls.filter((call) => call.startsWith("create"))).toHaveLength(1);
    const other = await client.post("/create_model", { ...body, lora_config: { rank: 8 } });
    expect(other.status).toBe(409);
  });

  it("end with 410 once the result of an executed one has expired", async () => {
    const accepted = await client.ok("/optim_step", stepBody(modelId, 1));
    const save = { model_id: modelId, seq_id: 2, path: "kept", overwrite: true };
    await client.result(accepted);
    await client.result(client.ok("/save_weights", save));
    for (let minute = 0; minute < 6; minute += 1) {
      await client.ok("/session_heartbeat", { session_id: modelId.split(":")[0] });
      await clock.advance(60_000);
    }
    expect((await client.post("/retrieve_future", { request_id: accepted["request_id"] })).status).toBe(410);
    expect((await client.post("/optim_step", stepBody(modelId, 1))).status).toBe(410);
    expect((await client.post("/optim_step", stepBody(modelId, 1, 0.5))).status).toBe(409);
    expect((await client.post("/save_weights", save)).status).toBe(410);
    expect(engine.calls).toEqual(["optim_step 0.1", `export model-${modelId}`]);
  });

  it("wait until the model is unloaded, and are refused afterwards", async () => {
    const step = await client.ok("/optim_step", stepBody(modelId, 1));
    const unloaded = await client.result(client.ok("/unload_model", { model_id: modelId }));
    expect(unloaded).toEqual({ type: "unload_model", model_id: modelId });
    expect(await client.result(step)).toMatchObject({ metrics: { "step:max": 1 } });
    expect(engine.adapters.size).toBe(0);
    expect((await client.post("/optim_step", stepBody(modelId, 3))).status).toBe(410);
  });

  it("may be unloaded twice: a client that lost the first answer learns that it is done", async () => {
    const [first, second] = await Promise.all([
      client.ok("/unload_model", { model_id: modelId }),
      client.ok("/unload_model", { model_id: modelId }),
    ]);
    expect(second).toEqual(first);
    expect(await client.result(first)).toEqual({ type: "unload_model", model_id: modelId });
    const third = client.ok("/unload_model", { model_id: modelId });
    expect(await client.result(third)).toEqual({ type: "unload_model", model_id: modelId });
  });
});

describe("a training request whose body is too large", () => {
  it.each([
    ["plain", false, 20_000],
    ["in zstd", true, 20_000],
    ["in zstd and only large once decompressed", true, 100_000],
  ])("is a 413 that leaves no hole in the order: %s", async (_, isZstd, bodyBytes) => {
    const { backend, client } = await startFake({ limits: { bodyBytes, decompressedBytes: 21_000 } });
    const { modelId } = await client.openModel();
    const tokens = Array.from({ length: 10_000 }, (_, index) => index % 90);
    const bytes = encodeForwardBackwardRequest({
      modelId,
      seqId: 1,
      data: [new Datum({ modelInput: tokens, lossFnInputs: {} })],
      lossFn: "cross_entropy",
      forwardOnly: false,
    });
    const send = (headers: Record<string, string> = {}) =>
      client.send("POST", "/api/v1/forward_backward", {
        headers: {
          "content-type": "application/x-protobuf",
          ...(isZstd ? { "content-encoding": "zstd" } : {}),
          ...headers,
        },
        body: (isZstd ? zstdRaw(bytes) : bytes) as BodyInit,
      });
    const behind = await client.ok("/optim_step", stepBody(modelId, 2));
    expect((await send()).status).toBe(413);
    expect(await client.result(behind)).toMatchObject({ metrics: { "step:max": 1 } });
    // A client that takes the number again, as ours does, is served too.
    expect(await client.result(client.ok("/optim_step", stepBody(modelId, 1)))).toMatchObject({
      metrics: { "step:max": 2 },
    });
    await backend.close();
  });

  it("gives up no other client's number", async () => {
    const { backend, client } = await startFake({
      limits: { bodyBytes: 20_000 },
      apiKeys: ["tml-alice-key-of-the-test", "tml-bob-key-of-the-test"],
    });
    const alice = client.withKey("tml-alice-key-of-the-test");
    const { modelId } = await alice.openModel();
    const body = encodeForwardBackwardRequest({
      modelId,
      seqId: 1,
      data: [new Datum({ modelInput: Array(10_000).fill(1), lossFnInputs: {} })],
      lossFn: "cross_entropy",
      forwardOnly: false,
    }) as BodyInit;
    const answer = await client.withKey("tml-bob-key-of-the-test").send("POST", "/api/v1/forward_backward", {
      headers: { "content-type": "application/x-protobuf" },
      body,
    });
    expect(answer.status).toBe(413);
    const later = await alice.ok("/optim_step", stepBody(modelId, 2));
    await alice.ok("/optim_step", stepBody(modelId, 1, 0.5));
    expect(await alice.result(later)).toMatchObject({ metrics: { "step:max": 2 } });
    await backend.close();
  });
});

describe("a full queue", () => {
  it("answers 429 and takes the request once there is room", async () => {
    const { backend, engine, client } = await startFake({ limits: { queuedRequestsPerModel: 2 } });
    const { modelId } = await client.openModel();
    engine.hold();
    for (const seqId of [1, 2]) await client.ok("/optim_step", stepBody(modelId, seqId));
    const refused = await client.post("/optim_step", stepBody(modelId, 3));
    expect(refused.status).toBe(429);
    expect(refused.headers.get("retry-after")).toBe("1");
    engine.open();
    await client.result({ request_id: `${modelId}:2` });
    expect(await client.result(client.ok("/optim_step", stepBody(modelId, 3)))).toMatchObject({
      metrics: { "step:max": 3 },
    });
    await backend.close();
  });

  it("counts the bytes that wait in all models together", async () => {
    const { backend, engine, client } = await startFake({ limits: { queuedBytes: 80 } });
    const { modelId } = await client.openModel();
    engine.hold();
    await client.ok("/forward_backward", passBody(modelId, 1, 1));
    expect((await client.post("/forward_backward", passBody(modelId, 2, 2))).status).toBe(429);
    engine.open();
    await client.result({ request_id: `${modelId}:1` });
    await client.result(client.ok("/forward_backward", passBody(modelId, 2, 2)));
    await backend.close();
  });
});
