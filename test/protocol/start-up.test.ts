import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  APIConnectionError,
  APIUserAbortError,
  RestClient,
  ServiceClient,
  TinkerError,
  ValidationError,
} from "../../src/index.js";
import { FakeClock } from "../support/fake-clock.js";
import { type ProtocolServer, startProtocolServer } from "../support/protocol-server.js";
import { testClient } from "./client.js";

const CONFIG = "POST /api/v1/client/config";
const CREATE_SESSION = "POST /api/v1/create_session";
const CREATE_SAMPLER = "POST /api/v1/create_sampling_session";
const FINISH = "POST /api/v1/sessions/*/finish";
const CAPABILITIES = "GET /api/v1/get_server_capabilities";

let server: ProtocolServer;
beforeEach(async () => {
  server = await startProtocolServer();
});
afterEach(() => server.close());

/** A route that answers only on request. */
function held(route: string, json: unknown): () => void {
  let answer: () => void = () => {};
  const told = new Promise<void>((resolve) => {
    answer = resolve;
  });
  server.on(route, async () => {
    await told;
    return { json };
  });
  return () => answer();
}

describe("a server that does not answer while a client starts", () => {
  const model = { baseModel: "test/tiny" };

  it("does not hold a call whose signal aborts, nor the calls beside it", async () => {
    await using client = testClient(server);
    const answer = held(CONFIG, {});
    const waiting = new AbortController();
    const given = client.service.createLoraTrainingClient({ ...model, signal: waiting.signal });
    const sampling = client.service.createSamplingClient({ ...model, signal: waiting.signal });
    const other = client.service.createLoraTrainingClient(model);
    await expect.poll(() => server.requestsTo(CONFIG).length).toBe(1);
    waiting.abort();
    await expect(given).rejects.toBeInstanceOf(APIUserAbortError);
    await expect(sampling).rejects.toBeInstanceOf(APIUserAbortError);
    answer();
    expect((await other).modelId).toMatch(/:train:0$/);
    expect(server.requestsTo(CREATE_SESSION)).toHaveLength(1);
  });

  it("does not hold a REST call whose signal aborts", async () => {
    await using rest = new RestClient({ baseURL: server.url, apiKey: "tml-test" });
    const answer = held(CONFIG, {});
    const waiting = new AbortController();
    const { signal } = waiting;
    const calls = [
      rest.getServerCapabilities({ signal }),
      rest.get("/api/v1/healthz", { signal }),
      rest.get("/api/v1/healthz", { signal }).asResponse(),
    ];
    await expect.poll(() => server.requestsTo(CONFIG).length).toBe(1);
    waiting.abort();
    for (const call of calls) await expect(call).rejects.toBeInstanceOf(APIUserAbortError);
    answer();
    expect((await rest.getServerCapabilities()).supportedModels).toHaveLength(1);
    expect(server.requestsTo(CAPABILITIES)).toHaveLength(1);
  });

  it.each([CONFIG, CREATE_SESSION])("does not hold close() at %s", async (route) => {
    server.on(route, { delayMs: Number.POSITIVE_INFINITY });
    const service = new ServiceClient({ baseURL: server.url, apiKey: "tml-test" });
    const starting = service.createLoraTrainingClient(model);
    const failure = expect(starting).rejects.toBeInstanceOf(APIConnectionError);
    await expect.poll(() => server.requestsTo(route).length).toBe(1);
    await service.close();
    await failure;
    await expect.poll(() => server.openConnections()).toBe(0);
  });

  it("does not hold close() of a REST client", async () => {
    server.on(CONFIG, { delayMs: Number.POSITIVE_INFINITY });
    const rest = new RestClient({ baseURL: server.url, apiKey: "tml-test" });
    const failure = expect(rest.getServerCapabilities()).rejects.toBeInstanceOf(APIConnectionError);
    await expect.poll(() => server.requestsTo(CONFIG).length).toBe(1);
    await rest.close();
    await failure;
  });
});

describe("a server that cannot be reached", () => {
  it("is named in a warning long before the client gives up", async () => {
    const client = testClient(server);
    await server.close();
    await expect(client.service.getSessionId()).rejects.toBeInstanceOf(APIConnectionError);
    const warnings = client.log.filter((line) => line.startsWith("warn"));
    expect(warnings[0]).toMatch(/ECONNREFUSED.*Check the base URL.*failed 3 times in a row/);
    expect(warnings).toHaveLength(1);
    server = await startProtocolServer();
  });

  it("is named after the first connection that timed out, and again in the error and its cause", async () => {
    const clock = new FakeClock({ auto: true });
    const warnings: string[] = [];
    const warn = (message: string) => void warnings.push(`${clock.now() / 1000} s: ${message}`);
    const nothing = () => {};
    const timedOut = Object.assign(new Error("no route to tinker.example"), { code: "ETIMEDOUT" });
    const service = new ServiceClient({
      baseURL: "https://tinker.example",
      apiKey: "tml-bogus",
      clock,
      logger: { error: nothing, warn, info: nothing, debug: nothing },
      fetch: async () => {
        clock.stop(5_000);
        throw new TypeError("fetch failed", { cause: timedOut });
      },
    });
    const failure = await service.getSessionId().catch((error: unknown) => error as Error);
    expect(warnings[0]).toMatch(
      /^5 s: .*no route to tinker\.example.* It failed once and is still being tried/,
    );
    expect(failure).toMatchObject({ message: expect.stringContaining("no route to tinker.example") });
    expect((failure as Error).cause).toMatchObject({ cause: timedOut });
    await service.close();
  });
});

describe("closing a ServiceClient", () => {
  it("twice waits twice for the same end", async () => {
    const { service } = testClient(server);
    await service.getSessionId();
    const answer = held(FINISH, {});
    const ended: string[] = [];
    const first = service.close().then(() => ended.push("first"));
    const second = service.close().then(() => ended.push("second"));
    await expect.poll(() => server.requestsTo(FINISH).length).toBe(1);
    expect(ended).toEqual([]);
    answer();
    await Promise.all([first, second]);
    expect(server.requestsTo(FINISH)).toHaveLength(1);
  });

  it("ends the pause before a request is sent again", async () => {
    server.on(CREATE_SAMPLER, { status: 503 });
    // On the real clock, where the pause takes its time.
    const service = new ServiceClient({ baseURL: server.url, apiKey: "tml-test", maxRetries: 0 });
    const failure = expect(service.createSamplingClient({ baseModel: "test/tiny" })).rejects.toThrow(
      /was closed before the request was finished/,
    );
    await expect.poll(() => server.requestsTo(CREATE_SAMPLER).length).toBe(1);
    await service.close();
    await failure;
  });

  it("makes later calls reject, and none throw", async () => {
    const { service } = testClient(server);
    await service.close();
    const calls = [
      () => service.getServerCapabilities(),
      () => service.copyWeights("tinker://run/weights/a"),
      () => service.createSamplingClient({ baseModel: "test/tiny" }),
    ];
    for (const call of calls) await expect(call()).rejects.toThrow(/closed; make a new one/);
  });
});

describe("createSamplingClient", () => {
  it("names what is wrong with its argument", async () => {
    await using client = testClient(server);
    const create = client.service.createSamplingClient.bind(client.service) as (
      source?: unknown,
    ) => Promise<unknown>;
    await expect(create()).rejects.toBeInstanceOf(ValidationError);
    await expect(create({ basemodel: "test/tiny" })).rejects.toThrow(/basemodel.*baseModel/);
    expect(server.requests).toHaveLength(0);
  });
});

describe("a header that is no text", () => {
  it("is refused by name, not by accident", async () => {
    await using client = testClient(server, { defaultHeaders: { "x-team": 5 as unknown as string } });
    const failure = client.service.getSessionId();
    await expect(failure).rejects.toBeInstanceOf(TinkerError);
    await expect(failure).rejects.toThrow(/"x-team"/);
  });
});
