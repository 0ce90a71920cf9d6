import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { isUserError, RequestFailedError, type TrainingClient } from "../../src/index.js";
import { type ProtocolServer, startProtocolServer } from "../support/protocol-server.js";
import { datum, type TestClient, testClient, trainingClient } from "./client.js";

const FORWARD_BACKWARD = "POST /api/v1/forward_backward";
const OPTIM = "POST /api/v1/optim_step";
const done = { json: { loss_fn_output_type: "T", loss_fn_outputs: [], metrics: { "loss:sum": 1 } } };
const failure = { json: { error: "the loss is NaN", category: "user" } };

describe("a pass that fails", () => {
  let server: ProtocolServer;
  let client: TestClient;
  let training: TrainingClient;
  const logged = (level: string) => client.log.filter((line) => line.startsWith(level));
  const pass = () => training.forwardBackward([datum()], "cross_entropy");

  beforeEach(async () => {
    server = await startProtocolServer();
    server.accept(OPTIM, { json: {} });
    server.accept(FORWARD_BACKWARD, done);
    client = testClient(server);
    training = await trainingClient(client);
  });
  afterEach(async () => {
    await client.service.close();
    await server.close();
  });

  it("is logged at once if it is not awaited, and fails the step that covers it, by name", async () => {
    server.accept(FORWARD_BACKWARD, failure);
    pass();
    const error: unknown = await training.optimStep().catch((caught: unknown) => caught);
    expect((error as Error).message).toMatch(
      /^optimStep went without the gradients of a forwardBackward of 1 datum with cross_entropy, which failed: .*the loss is NaN/,
    );
    expect((error as Error).cause).toBeInstanceOf(RequestFailedError);
    expect(isUserError(error)).toBe(true);
    expect(logged("error")).toEqual([
      expect.stringMatching(/forwardBackward of 1 datum with cross_entropy failed, and nothing waits.*NaN/),
    ]);
    // The step went out right behind the pass all the same.
    expect(server.requestsTo(OPTIM)[0]!.json()).toMatchObject({ seq_id: 2 });
  });

  it("is not logged if it is awaited, but still fails a step that was called before it was known", async () => {
    server.accept(FORWARD_BACKWARD, failure);
    const [passed, stepped] = await Promise.allSettled([pass(), training.optimStep()]);
    expect(passed).toMatchObject({ status: "rejected", reason: { category: "user" } });
    expect(stepped).toMatchObject({ status: "rejected", reason: { cause: { category: "user" } } });
    expect(logged("error")).toEqual([]);
  });

  it("counts as awaited through map, and not through submitted", async () => {
    server.accept(FORWARD_BACKWARD, failure);
    await expect(pass().map(({ metrics }) => metrics)).rejects.toThrow(/NaN/);
    expect(logged("error")).toEqual([]);
    await pass().submitted;
    await expect.poll(() => logged("error")).toHaveLength(1);
  });

  it("does not fail a step that is called after the failure was seen", async () => {
    server.accept(FORWARD_BACKWARD, failure);
    await pass().catch(() => {});
    server.accept(FORWARD_BACKWARD, done);
    pass();
    expect(await training.optimStep()).toEqual({});
    expect(logged("warn")).toEqual([]);
  });

  it("fails the step that covers it and no other", async () => {
    server.on(FORWARD_BACKWARD, [{ status: 403, json: { detail: "no" } }, { json: { request_id: "a" } }]);
    server.future("a", done);
    pass();
    const first = training.optimStep();
    pass();
    const second = training.optimStep();
    await expect(first).rejects.toThrow(/gradients/);
    expect(await second).toEqual({});
  });

  it("is named also when the step fails for it", async () => {
    server.accept(FORWARD_BACKWARD, failure);
    server.accept(OPTIM, { json: { error: "no gradients", category: "user" } });
    const failed = pass();
    const step = training.optimStep();
    await failed.catch(() => {});
    await expect(step).rejects.toThrow(/gradients of a forwardBackward.*NaN/);
  });

  it("says nothing when it was given up on purpose", async () => {
    const giveUp = new AbortController();
    giveUp.abort();
    training.forwardBackward([datum()], "cross_entropy", { signal: giveUp.signal });
    server.accept(FORWARD_BACKWARD, { delayMs: Number.POSITIVE_INFINITY });
    const waiting = pass();
    await waiting.submitted;
    await client.service.close();
    expect(logged("error")).toEqual([]);
  });

  it("of a custom loss is no different", async () => {
    training.forwardBackwardCustom([datum()], () => {
      throw new RangeError("my own mistake");
    });
    server.accept(FORWARD_BACKWARD, {
      json: {
        ...done.json,
        loss_fn_outputs: [{ logprobs: { data: [-1, -1, -1], dtype: "float32", shape: [3] } }],
      },
    });
    await expect(training.optimStep()).rejects.toThrow(/forwardBackwardCustom of 1 datum.*my own mistake/);
    expect(logged("error")).toEqual([expect.stringContaining("my own mistake")]);
  });
});

describe("an optimizer step without gradients", () => {
  it("says so, after creation, after another step, after a load", async () => {
    await using server = await startProtocolServer();
    server.accept(OPTIM, { json: {} }).accept(FORWARD_BACKWARD, done);
    server.accept("POST /api/v1/load_weights", { json: {} });
    await using client = testClient(server);
    const training = await trainingClient(client);
    const warnings = () =>
      client.log.filter((line) => line.includes("there are no gradients to apply")).length;
    await training.optimStep();
    expect(warnings()).toBe(1);
    await training.forwardBackward([datum()], "cross_entropy");
    await training.optimStep();
    expect(warnings()).toBe(1);
    await training.optimStep();
    expect(warnings()).toBe(2);
    await training.forwardBackward([datum()], "cross_entropy");
    await training.loadState("tinker://run/weights/a");
    await training.optimStep();
    expect(warnings()).toBe(3);
    // `forward` computes none.
    await training.forward([datum()], "cross_entropy");
    await training.optimStep();
    expect(warnings()).toBe(4);
  });

  it("is not one that follows a step which was refused", async () => {
    await using server = await startProtocolServer();
    server.accept(FORWARD_BACKWARD, done);
    server.on(OPTIM, [{ status: 422, json: { detail: "no" } }, { json: { request_id: "a" } }]);
    server.future("a", { json: {} });
    await using client = testClient(server);
    const training = await trainingClient(client);
    await training.forwardBackward([datum()], "cross_entropy");
    await expect(training.optimStep()).rejects.toThrow(/422/);
    await training.optimStep();
    expect(client.log.filter((line) => line.includes("no gradients"))).toEqual([]);
  });
});
