import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  APITimeoutError,
  APIUserAbortError,
  type QueueStateEvent,
  RequestFailedError,
  type TrainingClient,
} from "../../src/index.js";
import { type ProtocolServer, type ScriptedAnswer, startProtocolServer } from "../support/protocol-server.js";
import { seqIds, type TestClient, testClient, trainingClient } from "./client.js";

const OPTIM = "POST /api/v1/optim_step";
const POLL = "POST /api/v1/retrieve_future";
const done: ScriptedAnswer = { json: { metrics: { "grad_norm:mean": 0.5 } } };

describe("polling a future", () => {
  let server: ProtocolServer;
  let client: TestClient;
  let training: TrainingClient;
  let queueStates: QueueStateEvent[];

  beforeEach(async () => {
    server = await startProtocolServer();
    queueStates = [];
    client = testClient(server, { onQueueState: (event) => queueStates.push(event) });
    training = await trainingClient(client);
    server.requests.length = 0;
  });
  afterEach(async () => {
    await client.service.close();
    await server.close();
  });

  /** Without those about steps that have no pass before them, as all steps here. */
  const warnings = () =>
    client.log.filter((line) => line.startsWith("warn") && !line.includes("no gradients to apply"));
  const polls = () => server.requestsTo(POLL);
  const step = (...answers: ScriptedAnswer[]) => {
    server.accept(OPTIM, answers);
    return training.optimStep();
  };

  it("returns the result and keeps it", async () => {
    const future = step(done);
    expect(await future).toEqual({ metrics: { "grad_norm:mean": 0.5 } });
    expect(await future.result()).toEqual({ metrics: { "grad_norm:mean": 0.5 } });
    expect(future.requestId).toMatch(/^future-/);
    expect(polls()).toHaveLength(1);
  });

  it("tells the server how it polls", async () => {
    await step({ json: { type: "try_again", queue_state: "active" } }, done);
    const [first, second] = polls();
    expect(first!.headers["x-tinker-request-iteration"]).toBe("0");
    expect(first!.headers["x-tinker-request-type"]).toBe("OptimStep");
    expect(Number(first!.headers["x-tinker-create-promise-roundtrip-time"])).toBeGreaterThanOrEqual(0);
    expect(first!.json()).toMatchObject({ allow_metadata_only: true });
    expect(second!.headers["x-tinker-request-iteration"]).toBe("1");
    expect(second!.headers["x-tinker-create-promise-roundtrip-time"]).toBeUndefined();
  });

  it("polls again at once on try_again and tells the observer", async () => {
    const slept = client.clock.sleeps.length;
    await step(
      { json: { type: "try_again", queue_state: "paused_capacity", queue_state_reason: "busy" } },
      done,
    );
    expect(client.clock.sleeps.length).toBe(slept);
    expect(queueStates).toEqual([
      expect.objectContaining({ state: "paused_capacity", reason: "busy", target: training.modelId }),
    ]);
  });

  it("takes an unknown queue state as it comes", async () => {
    await step({ json: { type: "try_again", queue_state: "on_holiday" } }, done);
    expect(queueStates[0]).toMatchObject({ state: "unknown" });
  });

  it("waits a little when the server answers try_again without holding the poll", async () => {
    const again = { json: { type: "try_again", queue_state: "active" } };
    await step(...Array.from({ length: 20 }, () => again), done);
    expect(client.clock.sleeps.at(-1)).toBe(2_000);
  });

  it("logs a paused queue once a minute and never an active one", async () => {
    const paused = { status: 408, json: { queue_state: "paused_rate_limit" } };
    const active = { status: 408, json: { queue_state: "active" } };
    await step(active, paused, paused, active, done);
    expect(warnings()).toHaveLength(1);
    expect(queueStates.map(({ state }) => state)).toEqual([
      "active",
      "paused_rate_limit",
      "paused_rate_limit",
      "active",
    ]);
  });

  it("takes a 408 without a body as try again", async () => {
    expect(await step({ status: 408 }, done)).toBeDefined();
    expect(queueStates).toEqual([]);
  });

  it("asks for a large result again once its size fits the budget", async () => {
    await step({ json: { status: "complete_metadata", response_payload_size: 1_000_000 } }, done);
    expect(
      polls().map((poll) => (poll.json() as { allow_metadata_only: boolean }).allow_metadata_only),
    ).toEqual([true, false]);
  });

  it("turns a failure body into a RequestFailedError with its category", async () => {
    const error = await step({ json: { error: "bad adapter", category: "user" } }).catch(
      (caught: unknown) => caught,
    );
    expect(error).toBeInstanceOf(RequestFailedError);
    expect(error).toMatchObject({ category: "user", requestId: expect.stringMatching(/^future-/) });
    expect((error as Error).message).toContain("bad adapter");
    await expect(step({ json: { error: "?", category: "cosmic" } })).rejects.toMatchObject({
      category: "unknown",
    });
  });

  it("comes back soon, but not in a tight loop, after a 5xx or a 425", async () => {
    await step({ status: 503 }, { status: 425 }, { status: 502, text: "<html>bad gateway</html>" }, done);
    expect(client.clock.sleeps.slice(-3)).toEqual([50, 100, 200]);
  });

  it("says once a minute that its polls keep failing, so that an outage does not look like a hang", async () => {
    const failing: ScriptedAnswer = { status: 503, json: { detail: "down for repair" } };
    await step(failing, failing, done);
    expect(warnings()).toEqual([]);
    // Two seconds between polls at the most: some 35 of them fill a minute.
    await step(...Array.from({ length: 45 }, () => failing), done);
    expect(warnings()).toHaveLength(2);
    expect(warnings()[0]).toMatch(/retrieve_future answered 503: down for repair.*failed 3 times in a row/);
  });

  it("backs off exponentially on 429 and lost connections, and forgets that after any other answer", async () => {
    await step({ status: 429 }, { drop: "before" }, { status: 429 }, { status: 408 }, { status: 429 }, done);
    expect(client.clock.sleeps.slice(-4)).toEqual([1_000, 2_000, 4_000, 1_000]);
  });

  it("never backs off for more than 30 s", async () => {
    await step(...Array.from({ length: 8 }, () => ({ status: 429 })), done);
    expect(Math.max(...client.clock.sleeps)).toBe(30_000);
  });

  it("tries a 400 three times more before it gives up", async () => {
    expect(
      await step(
        { status: 400, json: { detail: "proxy" } },
        { status: 400, json: {} },
        { status: 400, json: {} },
        done,
      ),
    ).toBeDefined();
    await expect(step({ status: 400, json: { detail: "operation failed" } })).rejects.toThrow(
      /operation failed/,
    );
    expect(polls()).toHaveLength(4 + 4);
  });

  it("waits while billing is paused, logs it, and gives up after the allowed time", async () => {
    server.on("POST /api/v1/client/config", { json: { billing_exception_max_pause_duration_sec: 90 } });
    await using paused = testClient(server);
    training = await trainingClient(paused);
    await step({ status: 402, json: { detail: "card expired" } }, { status: 402 }, done);
    expect(paused.clock.sleeps.slice(-2)).toEqual([5_000, 5_000]);
    expect(paused.log.filter((line) => line.includes("billing"))).toHaveLength(1);
    await expect(step({ status: 402, json: { detail: "card expired" } })).rejects.toMatchObject({
      status: 402,
    });
    expect(paused.clock.now()).toBeGreaterThan(90_000);
    expect(paused.log.filter((line) => line.startsWith("warn") && line.includes("billing"))).toHaveLength(2);
  });

  it("sends the same request again when the promise is gone", async () => {
    server.accept(OPTIM, done);
    server.on(POLL, [{ status: 410 }, done]);
    expect(await training.optimStep({ learningRate: 0.25 })).toEqual({ metrics: { "grad_norm:mean": 0.5 } });
    const [first, second] = server.requestsTo(OPTIM);
    expect(second!.json()).toEqual(first!.json());
    expect(seqIds(server, OPTIM)).toEqual([1, 1]);
  });

  it("stops sending again when the promise is always gone", async () => {
    server.accept(OPTIM, { status: 410, json: { detail: "expired" } });
    await expect(training.optimStep()).rejects.toMatchObject({ status: 410 });
    expect(server.requestsTo(OPTIM)).toHaveLength(4);
  });

  it("gives up at once on any other 4xx", async () => {
    await expect(step({ status: 403, json: { detail: "not yours" } })).rejects.toThrow(/not yours/);
    await expect(step({ status: 422, json: { detail: "terminal" } })).rejects.toThrow(/terminal/);
    expect(polls()).toHaveLength(2);
  });

  it("asks again for an answer that cannot be read, a few times", async () => {
    const page = { text: "<html>hello</html>", headers: { "content-type": "text/html" } };
    expect(await step(page, { bytes: new Uint8Array([255, 255]) }, { json: [] }, done)).toBeDefined();
    await expect(step(page)).rejects.toThrow(/could not be read.*proxy/s);
  });

  it("survives a connection that breaks in the middle of the answer", async () => {
    expect(await step({ ...done, drop: "mid-body" }, done)).toBeDefined();
  });

  it("numbers of request ids are fine", async () => {
    server.on(OPTIM, { json: { request_id: 17 } });
    server.future("17", done);
    expect(await training.optimStep()).toBeDefined();
  });

  it("lets a wait time out without ending the operation", async () => {
    let release: (answer: ScriptedAnswer) => void = () => {};
    server.accept(
      OPTIM,
      () =>
        new Promise((resolve) => {
          release = resolve;
        }),
    );
    const future = training.optimStep();
    await future.submitted;
    await expect(future.result({ timeout: 5 })).rejects.toBeInstanceOf(APITimeoutError);
    await expect.poll(() => polls().length).toBe(1);
    release(done);
    expect(await future).toEqual({ metrics: { "grad_norm:mean": 0.5 } });
  });

  it("ends a wait with its signal and the operation with the call's", async () => {
    server.accept(OPTIM, { delayMs: Number.POSITIVE_INFINITY });
    const waiting = new AbortController();
    const operation = new AbortController();
    const future = training.optimStep({}, { signal: operation.signal });
    await future.submitted;
    const wait = future.result({ signal: waiting.signal });
    waiting.abort();
    await expect(wait).rejects.toBeInstanceOf(APIUserAbortError);
    operation.abort();
    await expect(future).rejects.toBeInstanceOf(APIUserAbortError);
  });

  it("does not crash the process when a failed future is never awaited", async () => {
    const unhandled: unknown[] = [];
    const listener = (reason: unknown) => unhandled.push(reason);
    process.on("unhandledRejection", listener);
    server.accept(OPTIM, { json: { error: "no", category: "user" } });
    training.optimStep();
    const last = training.optimStep();
    await last.catch(() => {});
    await new Promise((resolve) => setTimeout(resolve, 20));
    process.off("unhandledRejection", listener);
    expect(unhandled).toEqual([]);
  });

  it("ends what is in flight when the client is closed", async () => {
    server.accept(OPTIM, { delayMs: Number.POSITIVE_INFINITY });
    const future = training.optimStep();
    await future.submitted;
    await client.service.close();
    await expect(future).rejects.toThrow(/closed/);
  });
});

describe("telemetry", () => {
  it("reports failed operations, as user errors if the user can fix them, and never contains keys", async () => {
    process.env["TINKER_TELEMETRY"] = "1";
    const server = await startProtocolServer();
    try {
      const client = testClient(server, { apiKey: "tml-very-secret" });
      const training = await trainingClient(client);
      server.accept(OPTIM, [{ json: { error: "bad adapter", category: "user" } }]);
      await training.optimStep().catch(() => {});
      await client.service.close();
      const batches = server.requestsTo("POST /api/v1/telemetry");
      const events = batches.flatMap(
        (request) => (request.json() as { events: Record<string, unknown>[] }).events,
      );
      expect(events.map(({ event }) => event)).toEqual(["SESSION_START", "GENERIC_EVENT", "SESSION_END"]);
      expect(events[1]).toMatchObject({ event_name: "user_error", severity: "WARNING" });
      expect(batches.map((request) => Buffer.from(request.body).toString()).join()).not.toContain(
        "very-secret",
      );
    } finally {
      process.env["TINKER_TELEMETRY"] = "0";
      await server.close();
    }
  });
});
