import { getEventListeners } from "node:events";
import { Worker } from "node:worker_threads";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { APIUserAbortError, ModelInput, type SampleResponse, SamplingClient } from "../../src/index.js";
import { encodeSampleResponse } from "../../src/wire/protobuf.js";
import { FakeClock } from "../support/fake-clock.js";
import { type ProtocolServer, type ScriptedAnswer, startProtocolServer } from "../support/protocol-server.js";
import { sampleResponse, type TestClient, testClient } from "./client.js";

const SAMPLE = "POST /api/v1/asample";
const CANCEL = "POST /api/v1/cancel_future";

const response = (parts: Partial<SampleResponse> = {}): SampleResponse =>
  sampleResponse(2, {
    sequences: [
      {
        stopReason: "stop",
        sequenceId: null,
        tokens: Int32Array.of(7, 8),
        logprobs: Float32Array.of(-0.5, -0.25),
        topkLogprobs: null,
      },
    ],
    promptCacheHitTokens: 3,
    ...parts,
  });
const answer = (parts: Partial<SampleResponse> = {}): ScriptedAnswer => ({
  bytes: encodeSampleResponse(response(parts)),
});

const textPrompt = (tokens: number[]) => ({ chunks: [{ type: "encoded_text", tokens }] });

describe("sampling", () => {
  let server: ProtocolServer;
  let client: TestClient;
  let sampler: SamplingClient;

  const start = async (config: Record<string, unknown> = {}, dynamic?: Record<string, unknown>) => {
    server.on("POST /api/v1/client/config", { json: config });
    if (dynamic !== undefined) server.on("POST /api/v1/client/dynamic_config", { json: dynamic });
    client = testClient(server);
    sampler = await client.service.createSamplingClient({ baseModel: "test/tiny" });
    server.requests.length = 0;
  };
  beforeEach(async () => {
    server = await startProtocolServer();
    server.accept(SAMPLE, answer());
  });
  afterEach(async () => {
    await client.service.close();
    await server.close();
  });
  const sent = () => server.requestsTo(SAMPLE).map((request) => request.json() as Record<string, unknown>);

  it("sends what was asked and reads protobuf", async () => {
    await start();
    server.on(SAMPLE, { json: { request_id: "a", sample_sequence_ids: ["seq-1"] } });
    server.future(
      "a",
      answer({
        promptLogprobs: [null, -1.5],
        topkPromptLogprobs: [
          null,
          [
            [4, -0.5],
            [5, -1],
          ],
        ],
      }),
    );
    const result = await sampler.sample({
      prompt: [1, 2],
      numSamples: 1,
      samplingParams: { maxTokens: 16, temperature: 0.5, topK: 5, topP: 0.9, seed: 3, stop: ["\n"] },
      includePromptLogprobs: true,
      topkPromptLogprobs: 2,
    });
    expect(sent()).toEqual([
      expect.objectContaining({
        num_samples: 1,
        prompt: { chunks: [{ type: "encoded_text", tokens: [1, 2] }] },
        sampling_params: { max_tokens: 16, temperature: 0.5, top_k: 5, top_p: 0.9, seed: 3, stop: ["\n"] },
        sampling_session_id: sampler.samplingSessionId,
        seq_id: 0,
        prompt_logprobs: true,
        topk_prompt_logprobs: 2,
        type: "sample",
      }),
    ]);
    expect(server.requestsTo(SAMPLE)[0]!.headers["x-tinker-sampling-backpressure"]).toBe("1");
    expect(result.sequences[0]).toMatchObject({ sequenceId: "seq-1", stopReason: "stop" });
    expect([...result.sequences[0]!.tokens]).toEqual([7, 8]);
    expect(result.promptLogprobs).toEqual([null, -1.5]);
    expect(result.topkPromptLogprobs).toEqual([
      null,
      [
        [4, -0.5],
        [5, -1],
      ],
    ]);
    expect(result.promptCacheHitTokens).toBe(3);
  });

  it("reads the JSON of older servers", async () => {
    await start();
    server.accept(SAMPLE, {
      json: {
        type: "sample",
        sequences: [{ stop_reason: "length", tokens: [5], logprobs: [-2] }],
        prompt_logprobs: [null, -1],
      },
    });
    const result = await sampler.sample({ prompt: ModelInput.fromInts([1]) });
    expect(result.sequences[0]).toMatchObject({ stopReason: "length", tokens: Int32Array.of(5) });
    expect(result.promptLogprobs).toEqual([null, -1]);
  });

  it("refuses bad arguments before sending", async () => {
    await start();
    expect(() => sampler.sample({ prompt: [1], samplingParams: { maxTokens: -1 } })).toThrow(
      /samplingParams.maxTokens/,
    );
    // @ts-expect-error misspelt on purpose
    expect(() => sampler.sample({ prompt: [1], samplingParams: { maxToken: 1 } })).toThrow(/maxTokens/);
    // @ts-expect-error at the wrong place on purpose
    expect(() => sampler.sample({ prompt: [1], maxTokens: 1 })).toThrow(
      /did you mean samplingParams.maxTokens\?/,
    );
    // @ts-expect-error the name on the wire, not that of the argument
    expect(() => sampler.sample({ prompt: [1], promptLogprobs: true })).toThrow(
      /known fields are .*includePrompt/,
    );
    // @ts-expect-error a prompt alone
    expect(() => sampler.sample([1, 2])).toThrow("the options of sample must be an object, got a list of 2");
    // @ts-expect-error text instead of tokens
    expect(() => sampler.sample({ prompt: "hello" })).toThrow(/prompt must be tokens, got the text "hello"/);
    expect(() => sampler.sample({ prompt: [1, 1.5] })).toThrow(/prompt/);
    expect(() => sampler.sample({ prompt: [1, 2], promptLogprobsLastN: 1 })).toThrow(/promptLogprobsLastN/);
    expect(sent()).toEqual([]);
    await expect(client.service.createSamplingClient({ modelPath: "run/x" })).rejects.toThrow(/tinker:\/\//);
    // @ts-expect-error a sampler of nothing
    await expect(client.service.createSamplingClient({})).rejects.toThrow(
      "createSamplingClient needs a baseModel or a modelPath, and got neither",
    );
    const modelPath = "tinker://run/sampler_weights/x";
    // @ts-expect-error a sampler of two things
    await expect(client.service.createSamplingClient({ baseModel: "m", modelPath })).rejects.toThrow(
      "createSamplingClient needs a baseModel or a modelPath, and got both",
    );
    // @ts-expect-error as Python writes it
    await expect(client.service.createLoraTrainingClient({ base_model: "m" })).rejects.toThrow(
      "unknown field base_model; did you mean baseModel?",
    );
    // @ts-expect-error a name alone
    await expect(client.service.createLoraTrainingClient("m")).rejects.toThrow(
      'the options of createLoraTrainingClient must be an object, got "m"',
    );
  });

  it("computes logprobs", async () => {
    await start();
    server.accept(SAMPLE, answer({ promptLogprobs: [null, -1, -2] }));
    expect(await sampler.computeLogprobs([1, 2, 3])).toEqual([null, -1, -2]);
    expect(sent()[0]).toMatchObject({ prompt_logprobs: true, sampling_params: { max_tokens: 1 } });
    await expect(sampler.computeLogprobs([1, 2, 3], { promptLogprobsLastN: 1 })).rejects.toThrow(
      /does not support this option/,
    );
    server.accept(SAMPLE, answer({ promptLogprobs: [-1, -2] }));
    expect(await sampler.computeLogprobs([1, 2, 3]), "a server that leaves the first token out").toEqual([
      null,
      -1,
      -2,
    ]);
  });

  it("keeps one number for all attempts of a request", async () => {
    await start();
    server.on(SAMPLE, [{ status: 503 }, { drop: "before" }, { status: 429 }, { json: { request_id: "a" } }]);
    server.future("a", { status: 410 }, answer());
    await sampler.sample({ prompt: [1] });
    await sampler.sample({ prompt: [2] });
    expect(sent().map(({ seq_id }) => seq_id)).toEqual([0, 0, 0, 0, 0, 1]);
  });

  it("backs off together with every client of the same server and key, and with no other", async () => {
    await start();
    const clock = new FakeClock();
    const clients = ["tml-shared", "tml-shared", "tml-other"].map((apiKey) =>
      testClient(server, { apiKey, clock }),
    );
    const [first, second, stranger] = await Promise.all(
      clients.map(({ service }) => service.createSamplingClient({ baseModel: "test/tiny" })),
    );
    server.on(SAMPLE, [{ status: 429 }, { json: { request_id: "a" } }]);
    server.future("a", answer());
    const refused = first!.sample({ prompt: [1] });
    await expect.poll(() => sent().length).toBe(1);
    await expect.poll(() => clock.sleeps).toEqual([1_000]);
    const held = second!.sample({ prompt: [2] });
    await stranger!.sample({ prompt: [3] });
    await clock.advance(999);
    expect(sent().map(({ prompt }) => prompt)).toEqual([[1], [3]].map(textPrompt));
    await clock.advance(1);
    await Promise.all([refused, held]);
    expect(sent()).toHaveLength(4);
    for (const { service } of clients) await service.close();
  });

  it("waits five seconds when a large request met a 429", async () => {
    await start();
    server.on(SAMPLE, [{ status: 429 }, { json: { request_id: "a" } }]);
    server.future("a", answer());
    const startedAt = client.clock.now();
    await sampler.sample({ prompt: Array.from({ length: 14_000 }, () => 1) });
    expect(client.clock.now() - startedAt).toBeGreaterThanOrEqual(5_000);
  });

  it("holds a dispatch place only until the request is accepted", async () => {
    await start();
    const waiting: ((answer: ScriptedAnswer) => void)[] = [];
    server.accept(SAMPLE, () => new Promise((resolve) => waiting.push(resolve)));
    const futures = Array.from({ length: 450 }, () => sampler.sample({ prompt: [1] }));
    await Promise.all(futures.map((future) => future.submitted));
    expect(sent()).toHaveLength(450);
    await expect.poll(() => waiting.length).toBeGreaterThan(0);
    server.on("POST /api/v1/retrieve_future", answer());
    for (const release of waiting.splice(0)) release(answer());
    await Promise.all(futures);
  });

  it("keeps to the server's limit of requests in flight", async () => {
    await start({ sample_max_concurrent_requests: 3 });
    let inFlight = 0;
    let most = 0;
    server.on(SAMPLE, () => {
      inFlight += 1;
      most = Math.max(most, inFlight);
      const id = server.newId("future");
      server.future(id, () => {
        inFlight -= 1;
        return answer();
      });
      return { json: { request_id: id } };
    });
    await Promise.all(Array.from({ length: 12 }, () => sampler.sample({ prompt: [1] })));
    expect(most).toBeLessThanOrEqual(3);
  });

  it("is aborted at every stage, and tells the server when it may", async () => {
    await start({}, { sample_cancel_enabled: true });
    server.on(CANCEL, { json: {} });
    await expect(sampler.sample({ prompt: [1] }, { signal: AbortSignal.abort() })).rejects.toBeInstanceOf(
      APIUserAbortError,
    );
    expect(sent()).toEqual([]);

    const sending = new AbortController();
    server.on(SAMPLE, () => {
      sending.abort();
      return { delayMs: Number.POSITIVE_INFINITY };
    });
    await expect(sampler.sample({ prompt: [1] }, { signal: sending.signal })).rejects.toBeInstanceOf(
      APIUserAbortError,
    );
    expect(server.requestsTo(CANCEL)).toEqual([]);

    const polling = new AbortController();
    server.on(SAMPLE, { json: { request_id: "slow" } });
    server.future("slow", () => {
      polling.abort();
      return { delayMs: Number.POSITIVE_INFINITY };
    });
    await expect(sampler.sample({ prompt: [1] }, { signal: polling.signal })).rejects.toBeInstanceOf(
      APIUserAbortError,
    );
    await expect
      .poll(() => server.requestsTo(CANCEL).map((request) => request.json()))
      .toEqual([{ request_id: "slow" }]);
    for (const controller of [sending, polling])
      expect(getEventListeners(controller.signal, "abort")).toEqual([]);
  });

  it("gives up on everything when nothing has moved for two hours", async () => {
    await start();
    server.accept(SAMPLE, { status: 408 });
    const future = sampler.sample({ prompt: [1] });
    await future.submitted;
    await client.clock.advance(2 * 3600_000 + 1);
    await expect(future).rejects.toThrow(/two hours/);
  });

  it("polls a whole sampling session at once where the server offers it", async () => {
    await start({ sample_use_retrieve_futures: true });
    const waiting: string[] = [];
    server.on(SAMPLE, () => {
      const id = server.newId("future");
      waiting.push(id);
      server.future(id, answer());
      return { json: { request_id: id } };
    });
    let cursor = 0;
    server.on("POST /api/v1/retrieve_futures", () => {
      cursor += 1;
      const completions = waiting
        .splice(0)
        .map((request_id) => ({ state: "finished", request_id, response_payload_uncompressed_size: 10 }));
      return { json: { completions, cursor }, delayMs: 5 };
    });
    await Promise.all(Array.from({ length: 20 }, () => sampler.sample({ prompt: [1] })));
    const polls = server.requestsTo("POST /api/v1/retrieve_futures").map((request) => request.json());
    expect(polls[0]).toMatchObject({
      target: {
        type: "sampling_session",
        sampling_session_id: sampler.samplingSessionId,
        cloned_sampler_id: 0,
      },
      prev_cursor: 0,
    });
    expect(server.requestsTo("POST /api/v1/retrieve_future")).toHaveLength(20);
    await expect
      .poll(
        () =>
          server
            .requestsTo("POST /api/v1/retrieve_futures")
            .flatMap(
              (request) => (request.json() as { retrieved_request_ids: string[] }).retrieved_request_ids,
            ).length,
      )
      .toBeGreaterThanOrEqual(20);
  });

  it("does not wait for a second completion of a request that it had to send again", async () => {
    await start({ sample_use_retrieve_futures: true });
    // A server that still knows the request gives it the same id, and has already reported its end.
    server.on(SAMPLE, { json: { request_id: "future-x" } });
    server.future("future-x", { status: 410, json: { detail: "gone" } }, answer());
    const page = { headers: { "content-type": "text/html" }, text: "<html>Please log in</html>" };
    const told = { json: { completions: [{ state: "finished", request_id: "future-x" }], cursor: 1 } };
    const nothing = { json: { completions: [], cursor: 1 }, delayMs: 5 };
    server.on("POST /api/v1/retrieve_futures", [page, { status: 400, text: "no" }, told, nothing]);
    expect((await sampler.sample({ prompt: [1] })).sequences).toHaveLength(1);
    expect(sent()).toHaveLength(2);
  });

  it("goes to another thread as plain data and samples there under numbers of its own", async () => {
    await start();
    server.on("GET /api/v1/samplers/*", {
      json: { sampler_id: sampler.samplingSessionId, base_model: "test/tiny" },
    });
    const handle = structuredClone(sampler.getSamplerHandle());
    expect(JSON.parse(JSON.stringify(sampler))).toEqual(handle);
    expect(JSON.stringify(handle)).not.toContain("tml-");
    await using copy = await SamplingClient.fromSamplerHandle(handle, { apiKey: "tml-test" });
    await copy.sample({ prompt: [1] });
    await sampler.sample({ prompt: [1] });
    const [fromCopy, fromOriginal] = sent().map(({ seq_id }) => seq_id as number);
    expect(fromCopy).toBeGreaterThanOrEqual(1_000_000_000);
    expect(Number.isSafeInteger(fromCopy)).toBe(true);
    expect(fromOriginal).toBe(0);
    expect(await copy.getBaseModel()).toBe("test/tiny");

    const code = `
      import { parentPort, workerData } from "node:worker_threads";
      const { SamplingClient } = await import(workerData.sdk);
      const sampler = await SamplingClient.fromSamplerHandle(workerData.handle, { apiKey: "tml-test" });
      const { sequences } = await sampler.sample({ prompt: [1, 2, 3] });
      await sampler.close();
      parentPort.postMessage([...sequences[0].tokens]);`;
    const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(code)}`), {
      workerData: { handle, sdk: new URL("../../dist/bundle/index.js", import.meta.url).href },
    });
    const tokens = await new Promise((resolve, reject) => {
      worker.once("message", resolve).once("error", reject);
    });
    expect(tokens).toEqual([7, 8]);
    await worker.terminate();
  });

  it("lets the server number its copies", async () => {
    await start({ sample_join_sampling_session: true });
    server.on("POST /api/v1/join_sampling_session", { json: { client_counter: 5 } });
    await using copy = await SamplingClient.fromSamplerHandle(sampler.getSamplerHandle(), {
      apiKey: "tml-test",
    });
    await Promise.all([copy.sample({ prompt: [1] }), copy.sample({ prompt: [1] })]);
    expect(server.requestsTo("POST /api/v1/join_sampling_session")).toHaveLength(1);
    expect(
      sent()
        .map(({ seq_id }) => seq_id as number)
        .sort(),
    ).toEqual([5_000_000_000, 5_000_000_001]);
  });
});
