import { deflateSync, gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { LocalBackend, LocalBackendOptions } from "../../src/local/index.js";
import { FakeClock } from "../support/fake-clock.js";
import { type FakeEngine, fakeModel } from "./fake-engine.js";
import { type Json, passBody, type RawClient, sampleBody, startFake, stepBody } from "./raw-client.js";
import { zstdRaw } from "./zstd-raw.js";

let backend: LocalBackend;
let engine: FakeEngine;
let client: RawClient;
let clock: FakeClock;

async function start(options: LocalBackendOptions = {}): Promise<void> {
  clock = new FakeClock();
  ({ backend, engine, client } = await startFake({ clock, ...options }));
}

async function openSampler(): Promise<{ sessionId: string; samplerId: string }> {
  const sessionId = await client.openSession();
  const body = await client.ok("/create_sampling_session", {
    session_id: sessionId,
    sampling_session_seq_id: 0,
    base_model: fakeModel.name,
  });
  return { sessionId, samplerId: String(body["sampling_session_id"]) };
}

afterEach(() => backend.close());

describe("a long poll", () => {
  beforeEach(() => start());

  it("is held while the operation runs, and answered at once when it ends", async () => {
    const { modelId } = await client.openModel();
    engine.hold();
    const accepted = await client.ok("/optim_step", stepBody(modelId, 1));
    let answered = false;
    const polling = client.poll(accepted["request_id"]).then((body) => {
      answered = true;
      return body;
    });
    await clock.advance(20_000);
    expect(answered).toBe(false);
    engine.open();
    expect(await polling).toEqual({ type: "optim_step", metrics: { "step:max": 1 } });
  });

  it("ends with try_again before clients give up after 45 s", async () => {
    const { modelId } = await client.openModel();
    engine.hold();
    const accepted = await client.ok("/optim_step", stepBody(modelId, 1));
    const polling = client.poll(accepted["request_id"]);
    await clock.advance(30_000);
    expect(await polling).toMatchObject({ type: "try_again", queue_state: "active" });
    engine.open();
  });

  it("ends with the same in a 408 for the Python package, which prints a warning at a 200 without a result", async () => {
    const { modelId } = await client.openModel();
    engine.hold();
    const accepted = await client.ok("/optim_step", stepBody(modelId, 1));
    const polling = client.asPython().post("/retrieve_future", { request_id: accepted["request_id"] });
    await clock.advance(30_000);
    const { status, body } = await polling;
    expect([status, body]).toMatchObject([408, { type: "try_again", queue_state: "active" }]);
    engine.open();
  });

  it("of an unknown request is a 404, of one whose result is gone a 410", async () => {
    const { modelId } = await client.openModel();
    expect((await client.post("/retrieve_future", { request_id: "nobody:train:0:1" })).status).toBe(404);
    const gone = await client.post("/retrieve_future", { request_id: `${modelId}:17` });
    expect(gone.status).toBe(410);
    expect(gone.body["detail"]).toContain("is gone");
    // The Python package sends samples again after a 410; of anything else it would show "Promise expired/broken".
    const asPython = (type: string) =>
      client.asPython(type).post("/retrieve_future", { request_id: `${modelId}:17` });
    expect((await asPython("Sample")).status).toBe(410);
    const { status, body } = await asPython("OptimStep");
    expect([status, body]).toEqual([
      200,
      {
        error: expect.stringMatching(/is gone: .* the server was restarted\. Go on from/),
        category: "server",
      },
    ]);
  });

  it("leaves no timers and no waiters behind when the caller goes away", async () => {
    const { modelId } = await client.openModel();
    engine.hold();
    const accepted = await client.ok("/optim_step", stepBody(modelId, 1));
    const before = clock.pending;
    const abort = new AbortController();
    const polling = client.send("POST", "/api/v1/retrieve_future", {
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ request_id: accepted["request_id"] }),
      signal: abort.signal,
    });
    await clock.advance(1);
    expect(clock.pending).toBe(before + 1);
    abort.abort();
    await polling.catch(() => undefined);
    expect(clock.pending).toBe(before);
    engine.open();
  });
});

describe("a result", () => {
  it("comes as protobuf or as JSON, as the client asks", async () => {
    await start();
    const { modelId } = await client.openModel();
    const accepted = await client.ok("/forward_backward", passBody(modelId, 1, 1));
    const output = await client.passResult(accepted);
    const expected = [-1.2, -1.3, -1.4];
    expect(output.metrics).toEqual({ "loss:sum": expect.closeTo(3.9), "tokens:sum": 3 });
    expect(output.lossFnOutputs[0]?.["logprobs"]?.toArray()).toEqual(
      expected.map((value) => expect.closeTo(value)),
    );
    const json = await client.result(accepted);
    expect(json).toMatchObject({
      loss_fn_outputs: [
        { logprobs: { dtype: "float32", shape: [3], data: expected.map((value) => expect.closeTo(value)) } },
      ],
      metrics: { "tokens:sum": 3 },
    });
  });

  it("is announced by its size first when it is large and the client allows that", async () => {
    await start({ limits: { inlineResultBytes: 40 } });
    const { modelId } = await client.openModel();
    const accepted = await client.ok("/forward_backward", passBody(modelId, 1, 1));
    const announced = await client.poll(accepted["request_id"], { allow_metadata_only: true });
    expect(announced).toMatchObject({ status: "complete_metadata" });
    const bytes = await client.proto(accepted["request_id"]);
    expect(announced["response_payload_size"]).toBe(bytes.byteLength);
  });

  it("that is not fetched is kept for an hour, a fetched one for minutes", async () => {
    await start({ sessionTimeoutMs: 10 * 3_600_000 });
    const { modelId } = await client.openModel();
    const fetched = await client.ok("/optim_step", stepBody(modelId, 1));
    const unfetched = await client.ok("/optim_step", stepBody(modelId, 2));
    await client.result(fetched);
    await clock.advance(6 * 60_000);
    expect((await client.post("/retrieve_future", { request_id: fetched["request_id"] })).status).toBe(410);
    await clock.advance(50 * 60_000);
    expect(await client.result(unfetched)).toMatchObject({ metrics: { "step:max": 2 } });
  });

  it("makes room for newer ones when the bytes run out, fetched ones first", async () => {
    await start({ limits: { resultBytes: 3000 } });
    const { modelId } = await client.openModel();
    const accepted = [];
    for (let seqId = 1; seqId <= 3; seqId += 1)
      accepted.push(await client.ok("/optim_step", stepBody(modelId, seqId)));
    for (const one of accepted.slice(0, 2)) await client.result(one);
    for (let seqId = 4; seqId <= 6; seqId += 1) await client.ok("/optim_step", stepBody(modelId, seqId));
    await client.result({ request_id: `${modelId}:6` });
    expect((await client.post("/retrieve_future", { request_id: accepted[0]!["request_id"] })).status).toBe(
      410,
    );
    expect(await client.result(accepted[2]!)).toMatchObject({ metrics: { "step:max": 3 } });
  });
});

describe("fetched results", () => {
  it("are dropped early when they are many, but never the last one", async () => {
    await start({ limits: { fetchedResultBytes: 1200 } });
    const { modelId } = await client.openModel();
    for (let seqId = 1; seqId <= 4; seqId += 1)
      await client.result(client.ok("/optim_step", stepBody(modelId, seqId)));
    const status = async (seqId: number) =>
      (await client.post("/retrieve_future", { request_id: `${modelId}:${seqId}` })).status;
    expect([await status(1), await status(2), await status(3), await status(4)]).toEqual([
      410, 410, 200, 200,
    ]);
  });
});

describe("samples", () => {
  beforeEach(() => start());

  it("carry one sequence id for each sample and every kind of logprobs", async () => {
    const { samplerId } = await openSampler();
    const accepted = await client.ok(
      "/asample",
      sampleBody(samplerId, 0, {
        num_samples: 2,
        prompt_logprobs: true,
        topk_prompt_logprobs: 2,
        topk_sample_logprobs: 1,
        prompt_alt_tokens_k: 2,
        target_prompt_logprobs: { data: [7, -1], dtype: "int64", shape: [1, 2] },
      }),
    );
    expect(accepted["sample_sequence_ids"]).toEqual([`${samplerId}:0:0`, `${samplerId}:0:1`]);
    const response = await client.sampleResult(accepted);
    expect(response.sequences.map((sequence) => [...sequence.tokens])).toEqual([
      [7, 8, 9],
      [8, 9, 10],
    ]);
    expect(response.sequences[0]).toMatchObject({
      stopReason: "length",
      topkLogprobs: [[[1, -1]], [[1, -1]], [[1, -1]]],
    });
    expect(response.promptLogprobs).toEqual([null, expect.closeTo(-0.06)]);
    expect(response.topkPromptLogprobs).toEqual([
      null,
      [
        [1, -1],
        [2, -2],
      ],
    ]);
    expect(response.targetPromptLogprobs?.toNested()).toEqual([[expect.closeTo(-0.7), 0]]);
    expect(response.promptAltTokens?.tokens.toNested()).toEqual([[1, 2]]);
    expect(response.promptCacheHitTokens).toBe(1);
  });

  it("keep the sparse layout of the targets asked for", async () => {
    const { samplerId } = await openSampler();
    const prompt = { chunks: [{ type: "encoded_text", tokens: [5, 6, 7] }] };
    const target_prompt_logprobs = {
      data: [9, 8],
      dtype: "int64",
      shape: [2, 4],
      sparse_crow_indices: [0, 1, 2],
      sparse_col_indices: [3, 0],
    };
    const accepted = await client.ok(
      "/asample",
      sampleBody(samplerId, 0, { prompt, target_prompt_logprobs }),
    );
    const { targetPromptLogprobs } = await client.sampleResult(accepted);
    expect([...(targetPromptLogprobs?.sparseColIndices ?? [])]).toEqual([3, 0]);
    expect([...(targetPromptLogprobs?.data ?? [])]).toEqual([expect.closeTo(-0.9), expect.closeTo(-0.8)]);
  });

  it("sent again get the same future; another payload is a 409", async () => {
    const { samplerId } = await openSampler();
    const first = await client.ok("/asample", sampleBody(samplerId, 0));
    expect(await client.ok("/asample", sampleBody(samplerId, 0))).toEqual(first);
    await client.sampleResult(first);
    expect(engine.calls.filter((call) => call.startsWith("sample"))).toHaveLength(1);
    expect((await client.post("/asample", sampleBody(samplerId, 0, { num_samples: 2 }))).status).toBe(409);
  });

  it("sent several times at once are drawn once, however their bodies are packed", async () => {
    const { samplerId } = await openSampler();
    const text = new TextEncoder().encode(JSON.stringify(sampleBody(samplerId, 0)));
    const bodies = { identity: text, gzip: gzipSync(text), deflate: deflateSync(text), zstd: zstdRaw(text) };
    const answers = await Promise.all(
      Object.entries(bodies).map(async ([encoding, body]) => {
        const headers = { "content-type": "application/json", "content-encoding": encoding };
        const response = await client.send("POST", "/api/v1/asample", { headers, body: body as BodyInit });
        return (await response.json()) as Json;
      }),
    );
    for (const answer of answers) expect(answer).toEqual(answers[0]);
    await client.sampleResult(answers[0]!);
    expect(engine.calls.filter((call) => call.startsWith("sample"))).toHaveLength(1);
  });

  it("whose result has expired are drawn again when they are sent again", async () => {
    const { samplerId, sessionId } = await openSampler();
    const first = await client.ok("/asample", sampleBody(samplerId, 0));
    const response = await client.sampleResult(first);
    await clock.advance(4 * 60_000);
    await client.ok("/session_heartbeat", { session_id: sessionId });
    await clock.advance(2 * 60_000);
    expect((await client.post("/retrieve_future", { request_id: first["request_id"] })).status).toBe(410);
    const again = await client.ok("/asample", sampleBody(samplerId, 0));
    expect((await client.sampleResult(again)).sequences[0]?.tokens).toEqual(response.sequences[0]?.tokens);
  });

  describe("delivered late by the network", () => {
    const key = (name: string) => ({ "x-idempotency-key": name });
    const drawn = () => engine.calls.filter((call) => call.startsWith("sample")).length;

    /** Sends a sample, fetches its result, and lets the server drop that for newer ones. */
    async function lose(samplerId: string, headers: Record<string, string>): Promise<Json> {
      const first = (await client.post("/asample", sampleBody(samplerId, 0), headers)).body;
      await client.sampleResult(first);
      for (const seqId of [1, 2])
        await client.sampleResult(await client.ok("/asample", sampleBody(samplerId, seqId)));
      expect((await client.post("/retrieve_future", { request_id: first["request_id"] })).status).toBe(410);
      return first;
    }

    beforeEach(async () => {
      await backend.close();
      await start({ limits: { fetchedResults: 1 } });
    });

    it("are not drawn again once their client has the result", async () => {
      const { samplerId } = await openSampler();
      const target = { sampling_session_id: samplerId, cloned_sampler_id: 0 };
      const first = await client.ok("/asample", sampleBody(samplerId, 0));
      await client.sampleResult(first);
      await client.ok("/retrieve_futures", { target, retrieved_request_ids: [first["request_id"]] });
      // Another attempt of the Python package has another key.
      const copy = await client.post("/asample", sampleBody(samplerId, 0), key("another"));
      expect(copy).toMatchObject({ status: 200, body: first });
      expect(drawn()).toBe(1);
    });

    it("are not drawn again under the idempotency key of a request that was accepted", async () => {
      const { samplerId } = await openSampler();
      const first = await lose(samplerId, key("sent"));
      const before = drawn();
      const copy = await client.post("/asample", sampleBody(samplerId, 0), key("sent"));
      expect(copy).toMatchObject({ status: 200, body: first });
      expect(drawn()).toBe(before);
    });

    it("are told from a client that has lost the result and asks again", async () => {
      const { samplerId } = await openSampler();
      await lose(samplerId, key("sent"));
      const before = drawn();
      const again = (await client.post("/asample", sampleBody(samplerId, 0), key("sent again"))).body;
      expect((await client.sampleResult(again)).sequences).toHaveLength(1);
      expect(drawn()).toBe(before + 1);
      for (const name of ["sent", "sent again"])
        expect(await client.post("/asample", sampleBody(samplerId, 0), key(name))).toMatchObject({
          body: again,
        });
      expect(drawn()).toBe(before + 1);
    });

    it("are drawn once without a sampling session, too", async () => {
      const body = (token: number) => ({
        base_model: fakeModel.name,
        prompt: { chunks: [{ type: "encoded_text", tokens: [token] }] },
        sampling_params: { max_tokens: 2 },
      });
      const first = (await client.post("/asample", body(1), key("sent"))).body;
      expect((await client.post("/asample", body(1), key("sent"))).body).toEqual(first);
      expect(drawn()).toBe(1);
      const others = [
        await client.post("/asample", body(1), key("other")),
        await client.post("/asample", body(2), key("sent")),
        await client.post("/asample", body(1)),
        await client.post("/asample", body(1)),
      ];
      expect(
        new Set([first, ...others.map((other) => other.body)].map((each) => each["request_id"])).size,
      ).toBe(5);
      expect(drawn()).toBe(5);
    });
  });

  it("keep numbers beyond 2^53 apart", async () => {
    const { samplerId } = await openSampler();
    const send = async (seqId: string) => {
      const text = JSON.stringify(sampleBody(samplerId, 0)).replace('"seq_id":0', `"seq_id": ${seqId}`);
      const response = await client.send("POST", "/api/v1/asample", {
        headers: { "content-type": "application/json" },
        body: text,
      });
      return ((await response.json()) as { request_id: string }).request_id;
    };
    const first = await send("123456789000000000");
    expect(await send("123456789000000001")).not.toBe(first);
    expect(await send("123456789000000000")).toBe(first);
  });

  it("can be cancelled, which ends the work", async () => {
    const { samplerId } = await openSampler();
    engine.hold();
    const accepted = await client.ok("/asample", sampleBody(samplerId, 0));
    expect((await client.post("/cancel_future", { request_id: accepted["request_id"] })).status).toBe(200);
    expect(await client.result(accepted)).toEqual({ error: "The request was cancelled.", category: "user" });
    expect(engine.calls).toContain(`cancel ${accepted["request_id"]}`);
    engine.open();
  });

  it("are limited in number with a 429", async () => {
    await backend.close();
    await start({ limits: { queuedSequences: 3 } });
    const { samplerId } = await openSampler();
    engine.hold();
    await client.ok("/asample", sampleBody(samplerId, 0, { num_samples: 2 }));
    const refused = await client.post("/asample", sampleBody(samplerId, 1, { num_samples: 2 }));
    expect(refused.status).toBe(429);
    await client.ok("/asample", sampleBody(samplerId, 2, { num_samples: 1 }));
    // A queue that one session has filled is not full for another.
    const other = await openSampler();
    await client.ok("/asample", sampleBody(other.samplerId, 0, { num_samples: 1 }));
    expect((await client.post("/asample", sampleBody(other.samplerId, 1, { num_samples: 1 }))).status).toBe(
      429,
    );
    engine.open();
  });

  it("need no sampling session when they name a model", async () => {
    const accepted = await client.ok("/asample", {
      base_model: fakeModel.name,
      prompt: { chunks: [{ type: "encoded_text", tokens: [1] }] },
      sampling_params: { max_tokens: 2 },
    });
    expect((await client.sampleResult(accepted)).sequences).toHaveLength(1);
  });

  it("read as JSON by older clients", async () => {
    const { samplerId } = await openSampler();
    const json = await client.result(
      client.ok("/asample", sampleBody(samplerId, 0, { prompt_logprobs: true })),
    );
    expect(json).toMatchObject({
      sequences: [{ stop_reason: "length", tokens: [7, 8, 9], logprobs: [-1, -1, -1] }],
      prompt_logprobs: [null, expect.closeTo(-0.06)],
    });
  });
});

describe("retrieve_futures", () => {
  beforeEach(() => start());

  it("tells of every ended request of a client once, and forgets what was retrieved", async () => {
    const { samplerId } = await openSampler();
    const target = { sampling_session_id: samplerId, cloned_sampler_id: 0 };
    const first = await client.ok("/asample", sampleBody(samplerId, 0));
    const size = (await client.proto(first["request_id"])).byteLength;
    const one = await client.ok("/retrieve_futures", { target });
    expect(one).toEqual({
      completions: [
        { state: "finished", request_id: first["request_id"], response_payload_uncompressed_size: size },
      ],
      cursor: 1,
    });
    const clone = await client.ok("/asample", sampleBody(samplerId, 1_000_000_000));
    await client.sampleResult(clone);
    const waiting = client.ok("/retrieve_futures", {
      target,
      prev_cursor: 1,
      retrieved_request_ids: [first["request_id"]],
    });
    await clock.advance(1);
    expect((await client.post("/retrieve_future", { request_id: first["request_id"] })).status).toBe(410);
    const second = await client.ok("/asample", sampleBody(samplerId, 1));
    expect(await waiting).toMatchObject({ completions: [{ request_id: second["request_id"] }], cursor: 2 });
    const idle = client.ok("/retrieve_futures", { target, prev_cursor: 2, timeout: 5 });
    await clock.advance(6_000);
    expect(await idle).toEqual({ completions: [], cursor: 2 });
  });

  it("gives clones ids of their own", async () => {
    const { samplerId } = await openSampler();
    const join = () => client.ok("/join_sampling_session", { sampling_session_id: samplerId });
    expect((await join())["client_counter"]).toBe(1);
    expect((await join())["client_counter"]).toBe(2);
  });
});
