import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { APIConnectionError, APIError, APIUserAbortError, type TrainingClient } from "../../src/index.js";
import { type ProtocolServer, type ScriptedAnswer, startProtocolServer } from "../support/protocol-server.js";
import { seqIds, type TestClient, testClient, trainingClient } from "./client.js";

const OPTIM = "POST /api/v1/optim_step";
const INFO = "POST /api/v1/get_info";
const accepted: ScriptedAnswer = { json: { request_id: "a" } };

describe("handing in an operation", () => {
  let server: ProtocolServer;
  let client: TestClient;
  let training: TrainingClient;
  let slept: number;

  beforeEach(async () => {
    server = await startProtocolServer();
    server.future("a", { json: {} });
    client = testClient(server, { random: () => 0 });
    training = await trainingClient(client);
    slept = client.clock.sleeps.length;
  });
  afterEach(async () => {
    await client.service.close();
    await server.close();
  });
  const sleeps = () => client.clock.sleeps.slice(slept);
  const tries = () => server.requestsTo(OPTIM);

  it.each([408, 409, 425, 429, 500, 502, 503])("tries again after %i", async (status) => {
    server.on(OPTIM, [{ status, json: {} }, accepted]);
    await training.optimStep();
    expect(sleeps()).toEqual([500]);
    expect(seqIds(server, OPTIM)).toEqual([1, 1]);
  });

  it.each([400, 401, 403, 404, 410, 413, 422])("does not after %i", async (status) => {
    server.on(OPTIM, { status, json: { detail: "no" } });
    await expect(training.optimStep()).rejects.toMatchObject({ status });
    expect(tries()).toHaveLength(1);
  });

  it("tries maxRetries times soon, and then patiently until five minutes have passed", async () => {
    server.on(OPTIM, { status: 503, json: { detail: "down" } });
    const startedAt = client.clock.now();
    await expect(training.optimStep({}, { maxRetries: 3 })).rejects.toThrow(/503: down/);
    expect(sleeps().slice(0, 3)).toEqual([500, 1_000, 2_000]);
    expect(sleeps().slice(3, 10)).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
    expect(client.clock.now() - startedAt).toBe(5 * 60_000);
    expect(tries()).toHaveLength(sleeps().length + 1);
  });

  it("makes all the retries that were asked for, however long they take", async () => {
    server.on(OPTIM, { status: 503, json: {} });
    await expect(training.optimStep({}, { maxRetries: 40 })).rejects.toThrow(/503/);
    expect(tries()).toHaveLength(41);
    expect(() => training.optimStep({}, { maxRetries: -1 })).toThrow(/maxRetries must be/);
  });

  it("waits as long as the server says, soon or later", async () => {
    const busy = { status: 429, headers: { "retry-after": "7" }, json: {} };
    server.on(OPTIM, [busy, busy, { ...busy, headers: { "retry-after": "3600" } }, accepted]);
    await training.optimStep({}, { maxRetries: 1 });
    expect(sleeps()).toEqual([7_000, 7_000, 2_000]);
  });

  it("obeys x-should-retry over the status", async () => {
    server.on(OPTIM, [{ status: 404, headers: { "x-should-retry": "true" }, json: {} }, accepted]);
    await training.optimStep();
    server.on(OPTIM, { status: 503, headers: { "x-should-retry": "false" }, json: {} });
    await expect(training.optimStep()).rejects.toMatchObject({ status: 503 });
    expect(tries()).toHaveLength(3);
  });

  it("is one request under one key for the server, with the tries counted; the next has another key", async () => {
    server.on(OPTIM, [{ status: 500, json: {} }, { drop: "before" }, { status: 503, json: {} }, accepted]);
    await training.optimStep({}, { maxRetries: 1 });
    await training.optimStep();
    const keys = tries().map(({ headers }) => headers["x-idempotency-key"]);
    expect(keys[0]).toMatch(/^tinkerts-retry-[0-9a-f-]{36}$/);
    expect(new Set(keys.slice(0, 4)).size).toBe(1);
    expect(keys[4]).not.toBe(keys[0]);
    expect(tries().map(({ headers }) => headers["x-stainless-retry-count"])).toEqual([
      "0",
      "1",
      "2",
      "3",
      "0",
    ]);
  });

  it("asks again when the server's promise has no id", async () => {
    server.on(OPTIM, [{ json: {} }, { text: "<html>" }, { json: { request_id: "" } }, accepted]);
    await training.optimStep();
    expect(seqIds(server, OPTIM)).toEqual([1, 1, 1, 1]);
  });

  it("pauses for billing without using up its tries", async () => {
    const unpaid = { status: 402, json: { detail: "card expired" } };
    server.on(OPTIM, [...Array.from({ length: 20 }, () => unpaid), { status: 503, json: {} }, accepted]);
    await training.optimStep({}, { maxRetries: 1 });
    expect(sleeps()).toEqual([...Array.from({ length: 20 }, () => 5_000), 500]);
  });

  it("ends at once with its signal while it waits, and frees a number the server cannot have taken", async () => {
    await client.service.close();
    server.on(OPTIM, [{ status: 429, headers: { "retry-after": "1" }, json: {} }, accepted]);
    const giveUp = new AbortController();
    client = testClient(server, {
      clock: {
        now: () => 0,
        wallNow: () => 0,
        setTimer: () => () => {},
        sleep: async () => {
          giveUp.abort();
          throw new APIUserAbortError("aborted");
        },
      },
    });
    training = await trainingClient(client);
    await expect(training.optimStep({}, { signal: giveUp.signal })).rejects.toBeInstanceOf(APIUserAbortError);
    await training.optimStep();
    expect(seqIds(server, OPTIM)).toEqual([1, 1]);
  });

  it("asks again for JSON where a proxy answered with a page, three times", async () => {
    const page = { headers: { "content-type": "text/html" }, text: "<html>Please log in</html>" };
    const info = { json: { model_id: "m", model_data: { model_name: "test/tiny" } } };
    server.on(INFO, [page, { status: 503 }, page, page, info]);
    expect((await training.getInfo()).modelData.modelName).toBe("test/tiny");
    server.requests.length = 0;
    server.on(INFO, page);
    await expect(training.getInfo()).rejects.toThrow(/body that is not JSON/);
    expect(server.requestsTo(INFO)).toHaveLength(4);
  });

  it("ends after five minutes also when no server is there", async () => {
    await server.stop();
    const startedAt = client.clock.now();
    const error: unknown = await training.optimStep().catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(APIConnectionError);
    expect((error as Error).message).toMatch(/ECONNREFUSED/);
    expect(client.clock.now() - startedAt).toBeGreaterThanOrEqual(5 * 60_000);
    expect(client.clock.now() - startedAt).toBeLessThan(6 * 60_000);
    await server.listen();
  });

  it("names fields in the words of this SDK when the server refuses them", async () => {
    server.on("POST /api/v1/create_model", {
      status: 422,
      json: { detail: [{ loc: ["body", "lora_config", "rank"], msg: "must be at most 64" }] },
    });
    const error = (await trainingClient(client).catch((caught: unknown) => caught)) as APIError;
    expect(error).toBeInstanceOf(APIError);
    expect(error.message).toContain("answered 422: rank: must be at most 64");
    server.accept(OPTIM, { json: { error: "adam_params.learning_rate is too large", category: "user" } });
    await expect(training.optimStep()).rejects.toThrow(/: learningRate is too large/);
  });
});
