import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  APIConnectionError,
  APIUserAbortError,
  AuthenticationError,
  ConflictError,
  type ForwardBackwardOutput,
  type OptimParams,
  TensorData,
  type TrainingClient,
  UnprocessableEntityError,
  ValidationError,
} from "../../src/index.js";
import { decodeForwardBackwardRequest, encodeForwardBackwardOutput } from "../../src/wire/protobuf.js";
import {
  type ProtocolServer,
  type RecordedRequest,
  type ScriptedAnswer,
  startProtocolServer,
} from "../support/protocol-server.js";
import { datum, seqIds, startTraining, type TestClient, testClient, trainingClient } from "./client.js";

const FORWARD_BACKWARD = "POST /api/v1/forward_backward";
const OPTIM = "POST /api/v1/optim_step";
const SAVE = "POST /api/v1/save_weights";
const SAVE_FOR_SAMPLER = "POST /api/v1/save_weights_for_sampler";
const LOAD = "POST /api/v1/load_weights";

const output = (datums: number, metrics: Record<string, number> = {}): ForwardBackwardOutput => ({
  lossFnOutputType: "TorchLossReturn",
  lossFnOutputs: Array.from({ length: datums }, () => ({
    logprobs: TensorData.from(new Float32Array([-0.5])),
  })),
  metrics,
});

/** The request arrives, and its caller gives up. */
const arrivesAndIsLost = (waiting: AbortController) => (): ScriptedAnswer => {
  waiting.abort();
  return { delayMs: Number.POSITIVE_INFINITY };
};

/** Answers each chunk in protobuf with one record per datum and metrics made from it. */
const answerChunks =
  (metrics: (datums: number) => Record<string, number>) =>
  (request: RecordedRequest): ScriptedAnswer => {
    const { data } = decodeForwardBackwardRequest(request.body);
    return { bytes: encodeForwardBackwardOutput(output(data.length, metrics(data.length))) };
  };

describe("training requests", () => {
  let server: ProtocolServer;
  let client: TestClient;
  let training: TrainingClient;

  const start = async (config?: Record<string, unknown>) => {
    ({ client, training } = await startTraining(server, config));
  };
  beforeEach(async () => {
    server = await startProtocolServer();
    server.accept(OPTIM, { json: {} });
    server.accept(
      FORWARD_BACKWARD,
      answerChunks((datums) => ({ "loss:sum": datums })),
    );
  });
  afterEach(async () => {
    await client.service.close();
    await server.close();
  });
  const chunks = () =>
    server.requestsTo(FORWARD_BACKWARD).map((request) => decodeForwardBackwardRequest(request.body));

  it("asks for a model and waits until it is there", async () => {
    server.accept("POST /api/v1/create_model", [
      { status: 408, json: { queue_state: "paused_capacity" } },
      { json: { model_id: "s:train:0" } },
    ]);
    client = testClient(server);
    training = await client.service.createLoraTrainingClient({
      baseModel: "test/tiny",
      rank: 4,
      seed: 7,
      trainMlp: false,
    });
    expect(training.modelId).toBe("s:train:0");
    expect(server.requestsTo("POST /api/v1/create_model")[0]!.json()).toEqual({
      session_id: await client.service.getSessionId(),
      model_seq_id: 0,
      base_model: "test/tiny",
      lora_config: { rank: 4, seed: 7, train_unembed: true, train_mlp: false, train_attn: true },
      type: "create_model",
    });
  });

  it("starts at once and keeps the order of the calls", async () => {
    await start();
    const pass = training.forwardBackward([datum()], "cross_entropy");
    const step = training.optimStep({ learningRate: 2e-4 });
    const second = training.forward([datum([4, 5])], "cross_entropy");
    await Promise.all([pass, step, second]);
    const order = server.requests
      .map((request) => request.path)
      .filter((path) => path.endsWith("forward_backward") || path.endsWith("optim_step"));
    expect(order.map((path) => path.split("/").at(-1))).toEqual([
      "forward_backward",
      "optim_step",
      "forward_backward",
    ]);
    expect(chunks().map(({ seqId, forwardOnly }) => [seqId, forwardOnly])).toEqual([
      [1, false],
      [3, true],
    ]);
    expect(server.requestsTo(OPTIM)[0]!.json()).toEqual({
      adam_params: {
        learning_rate: 2e-4,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-12,
        weight_decay: 0,
        grad_clip_norm: 0,
      },
      model_id: training.modelId,
      seq_id: 2,
      type: "optim_step",
    });
    expect((await pass).metrics["loss:sum"]).toBe(1);
    expect((await pass).lossFnOutputs[0]!.logprobs.toArray()).toEqual([-0.5]);
  });

  it("cuts at the border of datums and of bytes", async () => {
    await start({ fwdbwd_max_chunk_len: 3, parallel_fwdbwd_chunks: false });
    await training.forwardBackward(
      Array.from({ length: 7 }, () => datum()),
      "cross_entropy",
    );
    expect(chunks().map(({ data, seqId }) => [seqId, data.length])).toEqual([
      [1, 3],
      [2, 3],
      [3, 1],
    ]);
    await client.service.close();
    server.requests.length = 0;
    // One datum of three tokens is 3 * (4 + 8 + 4) = 48 bytes.
    await start({ fwdbwd_max_chunk_bytes_count: 96, parallel_fwdbwd_chunks: false });
    await training.forwardBackward(
      [datum(), datum(), datum(), datum([1, 2, 3, 4, 5, 6, 7, 8])],
      "cross_entropy",
    );
    expect(chunks().map(({ data }) => data.length)).toEqual([2, 1, 1]);
  });

  it("sends the chunks of one call side by side and the first one last", async () => {
    await start({ fwdbwd_max_chunk_len: 1 });
    const arrived: number[] = [];
    let release: () => void = () => {};
    const othersArrived = new Promise<void>((resolve) => {
      release = resolve;
    });
    server.on(FORWARD_BACKWARD, async (request) => {
      const { seqId } = decodeForwardBackwardRequest(request.body);
      arrived.push(seqId);
      if (arrived.length === 3) release();
      await othersArrived;
      const requestId = server.newId("future");
      server.future(requestId, { bytes: encodeForwardBackwardOutput(output(1)) });
      return { json: { request_id: requestId } };
    });
    await training.forwardBackward([datum(), datum(), datum(), datum()], "cross_entropy");
    expect(arrived.slice(0, 3).sort()).toEqual([2, 3, 4]);
    expect(arrived[3]).toBe(1);
  });

  it("combines outputs in order and every kind of metric", async () => {
    await start({ fwdbwd_max_chunk_len: 3 });
    server.accept(
      FORWARD_BACKWARD,
      answerChunks((datums) => ({
        "loss:sum": datums,
        "mfu:mean": datums,
        "low:min": datums,
        "high:max": datums,
        "wait:slack": datums,
        "host:unique": datums,
        "order:hash_unordered": datums,
        "check:hash2": datums,
        plain: datums,
        "odd:unheard_of": datums,
        ...(datums === 3 ? { "only_one:sum": 1 } : {}),
      })),
    );
    const result = await training.forwardBackward([datum(), datum(), datum(), datum()], "cross_entropy");
    expect(result.lossFnOutputs).toHaveLength(4);
    expect(result.metrics).toEqual({
      "loss:sum": 4,
      "mfu:mean": (3 * 3 + 1 * 1) / 4,
      "low:min": 1,
      "high:max": 3,
      "wait:slack": 3 - 2.5,
      "host:unique": 3,
      "host:unique_1": 1,
      // CPython's hash((1, 3))
      "order:hash_unordered": Number(-1440771752368011620n),
      "check:hash2": 4,
      plain: 3,
    });
  });

  it("refuses bad input before anything is sent, naming datum and field, and keeps the order free of holes", async () => {
    await start();
    const bad = [datum(), { modelInput: [1, 2], lossFnInputs: { targetTokens: [1, 2], weights: [1] } }];
    expect(() => training.forwardBackward(bad, "cross_entropy")).toThrow(/1.*weights/s);
    expect(() => training.forwardBackward([], "cross_entropy")).toThrow(ValidationError);
    const nan = { modelInput: [1, Number.NaN], lossFnInputs: { targetTokens: [1, 2] } };
    expect(() => training.forwardBackward([nan], "cross_entropy")).toThrow(/data\[0\].*NaN/s);
    const rl = { modelInput: [1], lossFnInputs: { targetTokens: [1], logprobs: [-1], advantages: [1] } };
    expect(() => training.optimStep({ learningRate: -1 })).toThrow(/learningRate/);
    // @ts-expect-error a misspelt key of a known loss does not compile
    expect(() => training.forwardBackward([rl], "ppo", { config: { clipLowTreshold: 0.8 } })).toThrow(
      /clipLowThreshold/,
    );
    // @ts-expect-error nor does a datum without the inputs of its loss
    expect(() => training.forwardBackward([datum()], "ppo")).toThrow(
      /data\[0\].lossFnInputs.logprobs is missing/,
    );
    // @ts-expect-error nor does a misspelt loss
    expect(() => training.forwardBackward([datum()], "cross_entrpy")).toThrow(/did you mean cross_entropy\?/);
    // @ts-expect-error nor does a config at the place of the options
    expect(() => training.forwardBackward([rl], "ppo", { clipLowThreshold: 0.8 })).toThrow(
      "unknown field clipLowThreshold; did you mean config.clipLowThreshold?",
    );
    // @ts-expect-error nor does nothing where options are expected
    expect(() => training.forward([datum()], "cross_entropy", null)).toThrow(
      "the options of forward must be an object, got null",
    );
    const misspelt = { modelInput: [1], lossFnInputs: { targetTokens: [1], weight: [1] } };
    expect(() => training.forwardBackward([misspelt], "cross_entropy")).toThrow(
      "unknown field data[0].lossFnInputs.weight; did you mean weights?",
    );
    // @ts-expect-error nor does a parameter that AdamW does not have
    expect(() => training.optimStep({ lr: 1e-4, beta1: 0.9 })).toThrow(
      "unknown field lr; did you mean learningRate?",
    );
    // @ts-expect-error nor does a number alone
    expect(() => training.optimStep(1e-4)).toThrow("the options of optimStep must be an object, got 0.0001");
    expect(() => training.forwardBackward([rl], { name: "" })).toThrow(
      /lossFn.name must be a non-empty string/,
    );
    expect(() => training.saveState("x", { ttlSeconds: -5 })).toThrow(/ttlSeconds/);
    await training.optimStep();
    expect(seqIds(server, OPTIM)).toEqual([1]);
    expect(chunks()).toEqual([]);
  });

  it("names the missing datum of a list with a gap", async () => {
    await start();
    const data = [datum(), datum(), datum()];
    delete data[1];
    expect(() => training.forwardBackward(data, "cross_entropy")).toThrow(/data\[1\] must be an object/);
  });

  it("accepts a known loss with its config, and any loss it does not know", async () => {
    await start();
    const rl = {
      modelInput: [1, 2],
      lossFnInputs: { targetTokens: [1, 2], logprobs: [-1, -1], advantages: [1, 1] },
    };
    await training.forwardBackward([rl], "ppo", {
      config: { clipLowThreshold: 0.8, clipHighThreshold: 1.2 },
    });
    await training.forwardBackward([rl], { name: "loss_of_tomorrow" }, { config: { newKnob: 3 } });
    expect(chunks().map(({ lossFn, lossFnConfig }) => [lossFn, lossFnConfig])).toEqual([
      ["ppo", { clipLowThreshold: 0.8, clipHighThreshold: 1.2 }],
      ["loss_of_tomorrow", { newKnob: 3 }],
    ]);
  });

  it("types the metrics, outputs and settings of a loss together", async () => {
    await start();
    const output = await training.forwardBackward([datum()], "cross_entropy");
    const loss: number = output.metrics["loss:sum"];
    expect(loss).toBe(1);
    // @ts-expect-error the server's other metrics may be missing
    const other: number = output.metrics["mfu:mean"];
    expect(other).toBeUndefined();
    const unlisted = await training.forwardBackward([datum()], { name: "loss_of_tomorrow" });
    // @ts-expect-error so may any metric of a loss that these types do not know
    const unknown: number = unlisted.metrics["loss:sum"];
    expect(unknown).toBe(1);
    await training.optimStep({ type: "of_next_year", anything: 1 });
    await training.optimStep({ type: "dimuon", learningRate: 1e-3 });
    const chosen: OptimParams[] = [{ learningRate: 1e-4 }, { type: "dimuon", learningRate: 1e-3 }];
    for (const params of chosen) await training.optimStep(params);
  });

  it("gives the number of a refused request to the next one", async () => {
    await start();
    server.on(OPTIM, [
      { status: 422, json: { detail: "no" } },
      { json: { request_id: "a" } },
      { json: { request_id: "b" } },
    ]);
    server.future("a", { json: {} }).future("b", { json: {} });
    const refused = training.optimStep();
    const next = training.optimStep();
    const last = training.optimStep();
    await expect(refused).rejects.toBeInstanceOf(UnprocessableEntityError);
    await Promise.all([next, last]);
    expect(seqIds(server, OPTIM)).toEqual([1, 1, 2]);
  });

  it("skips a number that a lost request has used after all", async () => {
    await start();
    const waiting = new AbortController();
    server.on(OPTIM, [
      arrivesAndIsLost(waiting),
      { status: 409, json: { detail: "another payload under this seq_id" } },
      { json: { request_id: "a" } },
    ]);
    server.future("a", { json: {} });
    const lost = training.optimStep({}, { signal: waiting.signal });
    const next = training.optimStep();
    await expect(lost).rejects.toBeInstanceOf(APIUserAbortError);
    await next;
    expect(seqIds(server, OPTIM)).toEqual([1, 1, 2]);
  });

  it("remembers that a request refused at last may have arrived at first", async () => {
    await start();
    server.on(OPTIM, [
      // Arrives, but its answer is lost; what comes back later is about something else.
      { drop: "before" },
      { status: 401, json: { detail: "the token has expired" } },
      { status: 409, json: { detail: "another payload under this seq_id" } },
      { json: { request_id: "a" } },
    ]);
    server.future("a", { json: {} });
    const lost = training.optimStep();
    const next = training.optimStep({ learningRate: 1 });
    await expect(lost).rejects.toBeInstanceOf(AuthenticationError);
    await next;
    expect(seqIds(server, OPTIM)).toEqual([1, 1, 1, 2]);
  });

  it("takes back a number it skipped when the server objected to the request instead", async () => {
    await start();
    const waiting = new AbortController();
    server.on(OPTIM, [arrivesAndIsLost(waiting), { json: { request_id: "a" } }]);
    server.on(SAVE, { status: 409, json: { detail: "the name is taken" } });
    server.future("a", { json: {} });
    const lost = training.optimStep({}, { signal: waiting.signal });
    await expect(lost).rejects.toBeInstanceOf(APIUserAbortError);
    await expect(training.saveState("taken")).rejects.toThrow(/the name is taken/);
    await training.optimStep();
    expect(seqIds(server, OPTIM, SAVE)).toEqual([1, 1, 2, 1]);
  });

  it("frees the place of a request that is aborted while it waits for its turn", async () => {
    await start();
    let release: (answer: ScriptedAnswer) => void = () => {};
    server.on(OPTIM, [
      () =>
        new Promise((resolve) => {
          release = resolve;
        }),
      { json: { request_id: "b" } },
    ]);
    server.future("a", { json: {} }).future("b", { json: {} });
    const first = training.optimStep();
    const waiting = new AbortController();
    const second = training.optimStep({}, { signal: waiting.signal });
    const third = training.optimStep();
    await expect.poll(() => server.requestsTo(OPTIM).length).toBe(1);
    waiting.abort();
    await expect(second).rejects.toBeInstanceOf(APIUserAbortError);
    release({ json: { request_id: "a" } });
    await Promise.all([first, third]);
    expect(seqIds(server, OPTIM)).toEqual([1, 2]);
  });

  it("fails the whole batch when one chunk is refused, and leaves no hole behind it", async () => {
    await start({ fwdbwd_max_chunk_len: 1 });
    server.on(FORWARD_BACKWARD, (request) => {
      const { seqId } = decodeForwardBackwardRequest(request.body);
      if (seqId === 2) return { status: 413, json: { detail: "too large" } };
      const requestId = server.newId("future");
      server.future(requestId, { status: 408, json: {} });
      return { json: { request_id: requestId } };
    });
    const batch = training.forwardBackward([datum(), datum(), datum()], "cross_entropy");
    const steps = [training.optimStep(), training.optimStep()];
    await expect(batch).rejects.toThrow(/too large/);
    await expect(steps[0]).rejects.toThrow(/went without the gradients of a forwardBackward.*too large/);
    await steps[1];
    // 3 was accepted; 1 (not sent, first goes last) and 2 (refused) go to the steps behind.
    expect(seqIds(server, OPTIM)).toEqual([1, 2]);
  });

  it("retries a submission under the same number, and tells the server it is the same request", async () => {
    await start();
    server.on(OPTIM, [
      { status: 500 },
      { drop: "before" },
      { status: 429, headers: { "retry-after": "2" } },
      { json: { request_id: "a" } },
    ]);
    server.future("a", { json: {} });
    await training.optimStep();
    expect(seqIds(server, OPTIM)).toEqual([1, 1, 1, 1]);
    expect(
      new Set(server.requestsTo(OPTIM).map((request) => request.headers["x-idempotency-key"])).size,
    ).toBe(1);
  });

  it("gives up on a submission after five minutes of trouble", async () => {
    await start();
    server.on(OPTIM, { drop: "before" });
    await expect(training.optimStep({}, { maxRetries: 0 })).rejects.toBeInstanceOf(APIConnectionError);
    expect(client.clock.now()).toBeGreaterThanOrEqual(5 * 60_000);
    expect(client.clock.now()).toBeLessThan(6 * 60_000);
  });

  it("remembers that a server takes only JSON", async () => {
    await start();
    const json = {
      loss_fn_output_type: "T",
      loss_fn_outputs: [{ logprobs: { data: [-1], dtype: "float32", shape: [1] } }],
      metrics: { "loss:sum": 2 },
    };
    const routes = ["POST /api/v1/forward_backward", "POST /api/v1/forward"];
    for (const route of routes) {
      server.on(route, (request) => {
        if (request.headers["content-type"] !== "application/json")
          return { status: 415, json: { detail: "JSON only" } };
        const requestId = server.newId("future");
        server.future(requestId, { json });
        return { json: { request_id: requestId } };
      });
    }
    expect((await training.forwardBackward([datum()], "cross_entropy")).metrics).toEqual({ "loss:sum": 2 });
    await training.forward([datum()], "cross_entropy");
    await training.forwardBackward([datum()], "cross_entropy");
    const sent = server.requests.filter((request) => routes.includes(`${request.method} ${request.path}`));
    expect(sent.map((request) => [request.path.split("/").at(-1), request.headers["content-type"]])).toEqual([
      ["forward_backward", "application/x-protobuf"],
      ["forward_backward", "application/json"],
      ["forward", "application/json"],
      ["forward_backward", "application/json"],
    ]);
    expect(sent[1]!.json()).toMatchObject({
      model_id: training.modelId,
      seq_id: 1,
      forward_backward_input: {
        loss_fn: "cross_entropy",
        data: [
          {
            model_input: { chunks: [{ type: "encoded_text", tokens: [1, 2, 3] }] },
            loss_fn_inputs: { target_tokens: { dtype: "int64", data: [1, 2, 3] } },
          },
        ],
      },
    });
    expect(sent[2]!.json()).toHaveProperty("forward_input");
  });

  it("gives JSON to a server that crashes on protobuf, and goes on with protobuf where JSON does no better", async () => {
    await start();
    const crash = { status: 500, text: "Internal Server Error" };
    const accept = () => {
      const requestId = server.newId("future");
      server.future(requestId, { json: { loss_fn_output_type: "T", loss_fn_outputs: [], metrics: {} } });
      return { json: { request_id: requestId } };
    };
    const formats = () =>
      server.requestsTo(FORWARD_BACKWARD).map((request) => request.headers["content-type"]!.split("/")[1]);
    let crashes = 0;
    server.on(FORWARD_BACKWARD, () => (crashes++ < 4 ? crash : accept()));
    await training.forwardBackward([datum()], "cross_entropy");
    await training.forwardBackward([datum()], "cross_entropy");
    expect(formats().slice(0, 4)).toEqual(["x-protobuf", "json", "json", "json"]);
    expect(formats().slice(-2)).toEqual(["x-protobuf", "x-protobuf"]);

    await using another = testClient(server);
    const fresh = await trainingClient(another);
    // The crash takes the connection with it, which the next request finds out.
    let drops = 0;
    server.on(FORWARD_BACKWARD, (request) => {
      if (request.headers["content-type"] !== "application/json") return crash;
      return drops++ === 0 ? { drop: "before" } : accept();
    });
    await fresh.forwardBackward([datum()], "cross_entropy");
    await fresh.forwardBackward([datum()], "cross_entropy");
    expect(formats().slice(-4)).toEqual(["x-protobuf", "json", "json", "json"]);
  });

  it("reports the first refusal when a protobuf server refuses the content", async () => {
    await start();
    server.on(FORWARD_BACKWARD, (request) =>
      request.headers["content-type"] === "application/json"
        ? { status: 415, json: { detail: "protobuf only" } }
        : { status: 422, json: { detail: "context too long" } },
    );
    await expect(training.forwardBackward([datum()], "cross_entropy")).rejects.toThrow(/context too long/);
  });

  it("saves, and keeps apart a name that is taken from one taken by ourselves", async () => {
    await start();
    server.accept(SAVE, { json: { path: "tinker://run/weights/step-1" } });
    expect(
      await training.saveState("step-1", { ttlSeconds: 3600, userMetadata: { note: "snake_case_kept" } }),
    ).toEqual({ path: "tinker://run/weights/step-1" });
    expect(server.requestsTo(SAVE)[0]!.json()).toEqual({
      model_id: training.modelId,
      path: "step-1",
      seq_id: 1,
      ttl_seconds: 3600,
      overwrite: false,
      user_metadata: { note: "snake_case_kept" },
      type: "save_weights",
    });
    server.on(SAVE, { status: 409, json: { detail: "exists" } });
    await expect(training.saveState("step-1")).rejects.toBeInstanceOf(ConflictError);
    server.on(SAVE, [{ drop: "before" }, { status: 409, json: { detail: "exists" } }]);
    expect(await training.saveState("step-2")).toEqual({
      path: `tinker://${training.modelId}/weights/step-2`,
    });
  });

  it("loads state with and without the optimizer", async () => {
    await start();
    server.accept(LOAD, { json: { path: "tinker://run/weights/a" } });
    await training.loadState("tinker://run/weights/a");
    await training.loadStateWithOptimizer("tinker://run/weights/a", { weightsAccessToken: "tml-other" });
    expect(server.requestsTo(LOAD).map((request) => request.json())).toEqual([
      {
        model_id: training.modelId,
        seq_id: 1,
        path: "tinker://run/weights/a",
        optimizer: false,
        type: "load_weights",
      },
      {
        model_id: training.modelId,
        seq_id: 2,
        path: "tinker://run/weights/a",
        optimizer: true,
        weights_access_token: "tml-other",
        type: "load_weights",
      },
    ]);
    expect(() => training.loadState("run/weights/a")).toThrow(/tinker:\/\//);
  });

  it("numbers sampling sessions by session, whichever client opens them", async () => {
    await start();
    server.accept(SAVE_FOR_SAMPLER, (request) => {
      const { path, sampling_session_seq_id } = request.json() as {
        path?: string;
        sampling_session_seq_id?: number;
      };
      return {
        json:
          path === undefined
            ? { sampling_session_id: `sampler-${sampling_session_seq_id}` }
            : { path: `tinker://run/sampler_weights/${path}` },
      };
    });
    const other = await trainingClient(client);
    const first = await training.saveWeightsAndGetSamplingClient();
    await client.service.createSamplingClient({ baseModel: "test/tiny" });
    const third = await other.saveWeightsAndGetSamplingClient();
    expect([first.samplingSessionId, third.samplingSessionId]).toEqual(["sampler-0", "sampler-2"]);
    expect(server.requestsTo("POST /api/v1/create_sampling_session")[0]!.json()).toMatchObject({
      sampling_session_seq_id: 1,
      base_model: "test/tiny",
    });
    expect(await training.saveWeightsForSampler("final")).toEqual({
      path: "tinker://run/sampler_weights/final",
    });
  });

  it("makes a training client from saved state, in two requests or in one", async () => {
    server.on("POST /api/v1/weights_info", {
      json: { base_model: "test/tiny", is_lora: true, lora_rank: 16, train_mlp: false },
    });
    server.accept(LOAD, { json: { path: "tinker://run/weights/a" } });
    await start();
    await client.service.createTrainingClientFromState("tinker://run/weights/a");
    expect(server.requestsTo("POST /api/v1/create_model").at(-1)!.json()).toMatchObject({
      lora_config: { rank: 16, train_mlp: false, train_attn: true },
    });
    expect(server.requestsTo(LOAD).at(-1)!.json()).toMatchObject({ optimizer: false, seq_id: 1 });
    await client.service.close();

    await start({ create_model_via_load_weights: true });
    const restored =
      await client.service.createTrainingClientFromStateWithOptimizer("tinker://run/weights/a");
    const sessionId = await client.service.getSessionId();
    expect(restored.modelId).toBe(`${sessionId}:train:1`);
    expect(server.requestsTo(LOAD).at(-1)!.json()).toEqual({
      session_id: sessionId,
      model_seq_id: 1,
      path: "tinker://run/weights/a",
      optimizer: true,
      type: "load_weights",
    });
  });

  it("asks about the model and unloads it after what came before", async () => {
    await start();
    server.on("POST /api/v1/get_info", {
      json: {
        model_id: training.modelId,
        model_data: { model_name: "test/tiny", tokenizer_id: null },
        is_lora: true,
        lora_rank: 8,
        new_field: 1,
      },
    });
    server.accept("POST /api/v1/unload_model", { json: {} });
    expect(await training.getInfo()).toMatchObject({
      modelData: { modelName: "test/tiny" },
      loraRank: 8,
      newField: 1,
    });
    const step = training.optimStep();
    await training.unloadModel();
    await step;
    const paths = server.requests.map((request) => request.path);
    expect(paths.indexOf("/api/v1/unload_model")).toBeGreaterThan(paths.indexOf("/api/v1/optim_step"));
  });

  it("takes a model that is gone for unloaded only when an earlier try may have done it", async () => {
    await start();
    const gone = { status: 410, json: { detail: "no longer loaded" } };
    server.on("POST /api/v1/unload_model", [{ drop: "before" }, gone]);
    await training.unloadModel();
    await expect(training.unloadModel()).rejects.toMatchObject({ status: 410 });
  });
});
