import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { APIConnectionError, ServiceClient, type ServiceClientOptions } from "../../src/index.js";
import { type Clock, sleepWith, systemClock } from "../../src/transport/clock.js";
import { encodeSampleResponse } from "../../src/wire/protobuf.js";
import { cases } from "../support/long.js";
import { type ProtocolServer, type ScriptedAnswer, startProtocolServer } from "../support/protocol-server.js";
import { sampleResponse } from "./client.js";

const SAMPLES = cases(2_000, 400);

const SAMPLE = "POST /api/v1/asample";
const POLL = "POST /api/v1/retrieve_future";
const HEALTH = "GET /api/v1/healthz";
const answer: ScriptedAnswer = { bytes: encodeSampleResponse(sampleResponse(4)) };

const SPEED = 20;
/** Waits between tries are shorter than they say; timeouts are not, since sockets do not go any faster. */
const fastClock: Clock = {
  now: () => performance.now() * SPEED,
  wallNow: () => Date.now(),
  setTimer: systemClock.setTimer,
  sleep: (delayMs, signal) =>
    sleepWith((callback, ms) => systemClock.setTimer(callback, ms / SPEED), delayMs, signal),
};
const pause = (clockMs: number) => new Promise((resolve) => setTimeout(resolve, clockMs / SPEED));

describe("while a server does not answer", () => {
  let server: ProtocolServer;
  let service: ServiceClient;
  const connect = (options: ServiceClientOptions = {}) =>
    new ServiceClient({
      baseURL: server.url,
      apiKey: "tml-outage",
      clock: fastClock,
      logLevel: "off",
      ...options,
    });
  let connections = 0;
  const count = () => {
    connections += 1;
  };
  const stop = async () => {
    connections = 0;
    await server.stop();
  };

  beforeEach(async () => {
    server = await startProtocolServer();
    server.on(SAMPLE, (request) => ({
      json: { request_id: `future-${(request.json() as { seq_id: number }).seq_id}` },
    }));
    service = connect();
    subscribe("undici:client:beforeConnect", count);
  });
  afterEach(async () => {
    unsubscribe("undici:client:beforeConnect", count);
    await service.close();
    await server.close();
  });

  it("thousands of samples cost a minute's outage a hundred connections at most, and none is lost", async () => {
    const sampler = await service.createSamplingClient({ baseModel: "test/tiny" });
    let held = 0;
    server.on(POLL, () => {
      held += 1;
      return { delayMs: Number.POSITIVE_INFINITY };
    });
    const samples = Array.from({ length: SAMPLES }, () => sampler.sample({ prompt: [1, 2, 3] }));
    await expect.poll(() => held).toBe(SAMPLES);
    await stop();
    server.on(POLL, answer);
    await expect.poll(() => connections).toBeGreaterThan(0);
    await pause(60_000);
    expect(connections).toBeLessThanOrEqual(100);
    const accepted = server.requestsTo(SAMPLE).length;
    await server.listen();
    const results = await Promise.all(samples);
    expect(results.every(({ sequences }) => sequences[0]!.tokens.length === 4)).toBe(true);
    // What the server had accepted was only asked for again.
    expect([accepted, server.requestsTo(SAMPLE).length]).toEqual([SAMPLES, SAMPLES]);
  });

  it("those that come during the outage are not even tried, and go out after it", async () => {
    const sampler = await service.createSamplingClient({ baseModel: "test/tiny" });
    server.on(POLL, answer);
    await stop();
    const samples = Array.from({ length: SAMPLES }, () => sampler.sample({ prompt: [1] }));
    await pause(60_000);
    // At most 64 of a pool may be connecting at once: those were under way when the first of them failed.
    expect(connections).toBeLessThanOrEqual(100);
    await server.listen();
    expect(await Promise.all(samples)).toHaveLength(SAMPLES);
    const numbers = server.requestsTo(SAMPLE).map((request) => (request.json() as { seq_id: number }).seq_id);
    expect(new Set(numbers).size).toBe(SAMPLES);
  });

  it("a call without retries fails at once, and an answer to any call ends the wait of all", async () => {
    const sampler = await service.createSamplingClient({ baseModel: "test/tiny" });
    server.on(POLL, answer);
    await using impatient = connect();
    const list = () => impatient.createRestClient().getServerCapabilities({ maxRetries: 0 });
    await list();
    await stop();
    const samples = Array.from({ length: 10 }, () => sampler.sample({ prompt: [1] }));
    await pause(30_000);
    await expect(list()).rejects.toBeInstanceOf(APIConnectionError);
    server.on(HEALTH, { drop: "before" });
    await server.listen();
    await list();
    expect(await Promise.all(samples)).toHaveLength(10);
  });

  it("a request that waits can be given up, also the one that asks for the others", async () => {
    const sampler = await service.createSamplingClient({ baseModel: "test/tiny" });
    server.on(POLL, answer);
    await stop();
    const controllers = Array.from({ length: 5 }, () => new AbortController());
    const samples = controllers.map(({ signal }) => sampler.sample({ prompt: [1] }, { signal }));
    await pause(20_000);
    for (const [index, controller] of controllers.slice(0, 4).entries()) {
      controller.abort();
      await expect(samples[index]).rejects.toThrow(/aborted/);
    }
    await server.listen();
    expect((await samples[4]!).sequences).toHaveLength(1);
  });
});
