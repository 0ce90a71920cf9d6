import { getEventListeners } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { APIConnectionError, APITimeoutError, APIUserAbortError, TinkerError } from "../../src/errors.js";
import type { APIResponse, HttpClient } from "../../src/transport/index.js";
import { FakeClock } from "../support/fake-clock.js";
import { clientForTest, REQUEST, ROUTE, serverForTest, turnsOfEventLoop } from "./helpers.js";

const NEVER = { delayMs: Number.POSITIVE_INFINITY };
const HALF_THEN_NOTHING = { json: { some: "long enough body" }, stallMs: Number.POSITIVE_INFINITY };

const listenersOf = (signal: AbortSignal) => getEventListeners(signal, "abort").length;

describe("abort", () => {
  it("before sending: nothing goes out", async () => {
    const server = await serverForTest();
    const client = clientForTest(server);
    const signal = AbortSignal.abort("changed my mind");
    const error = await client.exchange({ ...REQUEST, signal }).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(APIUserAbortError);
    expect(error).toMatchObject({
      message: "POST /api/v1/thing was aborted by its signal.",
      cause: "changed my mind",
    });
    expect(server.connectionsSeen).toBe(0);
    expect(listenersOf(signal)).toBe(0);
    expect(client.clock.pending).toBe(0);
  });

  it("while the credential is being fetched", async () => {
    const server = await serverForTest();
    const client = clientForTest(server, { apiKey: () => new Promise<string>(() => {}) });
    const controller = new AbortController();
    const call = client.exchange({ ...REQUEST, signal: controller.signal });
    setTimeout(() => controller.abort(), 5);
    await expect(call).rejects.toBeInstanceOf(APIUserAbortError);
    expect(server.connectionsSeen).toBe(0);
    expect(listenersOf(controller.signal)).toBe(0);
  });

  it.each([
    ["while waiting for the headers", NEVER],
    ["while reading the body", HALF_THEN_NOTHING],
  ])("%s: no listener, timer or socket stays", async (_name, answer) => {
    const server = await serverForTest();
    server.on(ROUTE, answer);
    const client = clientForTest(server);
    const controller = new AbortController();
    const call = client.exchange({ ...REQUEST, signal: controller.signal });
    await vi.waitFor(() => expect(server.requests).toHaveLength(1));
    await turnsOfEventLoop();
    expect(listenersOf(controller.signal)).toBe(1);
    expect(server.openConnections()).toBe(1);
    controller.abort("stop");
    await expect(call).rejects.toMatchObject({ name: "APIUserAbortError", cause: "stop" });
    expect(listenersOf(controller.signal)).toBe(0);
    expect(client.clock.pending).toBe(0);
    await vi.waitFor(() => expect(server.openConnections()).toBe(0));
    expect(server.requests).toHaveLength(1);
  });

  it("during the back-off: the sleep ends at once", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { status: 503 });
    const clock = new FakeClock();
    const client = clientForTest(server, { clock });
    const controller = new AbortController();
    const call = client.exchange({ ...REQUEST, signal: controller.signal });
    await vi.waitFor(() => expect(clock.sleeps).toEqual([500]));
    controller.abort("stop");
    await expect(call).rejects.toMatchObject({ name: "APIUserAbortError", cause: "stop" });
    expect(listenersOf(controller.signal)).toBe(0);
    expect(clock.pending).toBe(0);
    expect(server.requests).toHaveLength(1);
  });

  it("leaves no listener after success or failure either", async () => {
    const server = await serverForTest();
    server.on(ROUTE, [{ status: 500 }, { json: {} }, { status: 404, json: {} }]);
    const client = clientForTest(server);
    const { signal } = new AbortController();
    await client.exchange({ ...REQUEST, signal });
    await expect(client.exchange({ ...REQUEST, signal })).rejects.toThrow("404");
    expect(listenersOf(signal)).toBe(0);
    expect(client.clock.pending).toBe(0);
  });

  it("does not wait for an injected fetch that ignores its signal", async () => {
    const cancelled = vi.fn();
    let respond: (response: Response) => void = () => {};
    const client = clientForTest(
      { url: "http://nowhere" },
      { fetch: () => new Promise<Response>((resolve) => (respond = resolve)) },
    );
    const controller = new AbortController();
    const call = client.exchange({ ...REQUEST, signal: controller.signal });
    setTimeout(() => controller.abort(), 5);
    await expect(call).rejects.toBeInstanceOf(APIUserAbortError);
    respond(new Response(new ReadableStream({ cancel: cancelled })));
    await vi.waitFor(() => expect(cancelled).toHaveBeenCalled());
  });
});

describe("timeout", () => {
  it.each([
    ["no headers", NEVER],
    ["no more body", HALF_THEN_NOTHING],
  ])("gives up when there are %s for that long", async (_name, answer) => {
    const server = await serverForTest();
    server.on(ROUTE, answer);
    const clock = new FakeClock();
    const client = clientForTest(server, { clock, maxRetries: 0, timeout: 5000 });
    const call = client.exchange(REQUEST).catch((reason: unknown) => reason);
    await vi.waitFor(() => expect(server.requests).toHaveLength(1));
    await turnsOfEventLoop();
    await clock.advance(4999);
    expect(clock.pending).toBe(1);
    await clock.advance(1);
    const error = await call;
    expect(error).toBeInstanceOf(APITimeoutError);
    expect((error as Error).message).toMatch(/^POST \/api\/v1\/thing got no answer within 5 s/);
    expect(clock.pending).toBe(0);
    await vi.waitFor(() => expect(server.openConnections()).toBe(0));
  });

  it("starts again with every piece of the body", async () => {
    let body: ReadableStreamDefaultController<Uint8Array> | undefined;
    const fetch = async () =>
      new Response(
        new ReadableStream<Uint8Array>({
          start: (controller) => {
            body = controller;
          },
        }),
      );
    const clock = new FakeClock();
    const client = clientForTest({ url: "http://nowhere" }, { clock, fetch, maxRetries: 0, timeout: 5000 });
    const call = client.exchange(REQUEST).catch((reason: unknown) => reason);
    for (const piece of ["[1", ",2", ",3]"]) {
      await clock.advance(4000);
      body?.enqueue(new TextEncoder().encode(piece));
    }
    await clock.advance(4999);
    expect(clock.pending).toBe(1);
    body?.close();
    expect(((await call) as APIResponse).json()).toEqual([1, 2, 3]);
    expect(clock.pending).toBe(0);
  });

  it("is retried like a lost connection", async () => {
    const server = await serverForTest();
    server.on(ROUTE, [NEVER, { json: { ok: true } }]);
    const clock = new FakeClock();
    const client = clientForTest(server, { clock });
    const call = client.exchange({ ...REQUEST, timeout: 1000 });
    await vi.waitFor(() => expect(server.requests).toHaveLength(1));
    await clock.advance(1000);
    await vi.waitFor(() => expect(clock.sleeps).toEqual([500]));
    await clock.advance(500);
    expect((await call).json()).toEqual({ ok: true });
  });

  it("can be switched off", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { json: {} });
    const clock = new FakeClock();
    const setTimer = vi.spyOn(clock, "setTimer");
    await clientForTest(server, { clock, timeout: Number.POSITIVE_INFINITY }).exchange(REQUEST);
    expect(setTimer).not.toHaveBeenCalled();
    expect(server.requests[0]?.headers["x-stainless-read-timeout"]).toBeUndefined();
  });

  it("works on the real clock", async () => {
    const server = await serverForTest();
    server.on(ROUTE, NEVER);
    const { systemClock } = await import("../../src/transport/index.js");
    const client: HttpClient = clientForTest(server, { clock: systemClock, maxRetries: 0, timeout: 40 });
    await expect(client.exchange(REQUEST)).rejects.toBeInstanceOf(APITimeoutError);
  });
});

describe("close", () => {
  it("ends what is under way, without retries, and every connection", async () => {
    const server = await serverForTest();
    server.on(ROUTE, NEVER);
    const client = clientForTest(server);
    const { signal } = new AbortController();
    const calls = [1, 2, 3].map(() =>
      client.exchange({ ...REQUEST, signal }).catch((reason: unknown) => reason),
    );
    await vi.waitFor(() => expect(server.requests).toHaveLength(3));
    await client.close();
    for (const error of await Promise.all(calls)) {
      expect(error).toBeInstanceOf(APIConnectionError);
      expect((error as Error).message).toBe(
        "POST /api/v1/thing was cancelled because the client was closed.",
      );
    }
    expect(listenersOf(signal)).toBe(0);
    expect(client.clock.pending).toBe(0);
    await vi.waitFor(() => expect(server.openConnections()).toBe(0));
  });

  it("ends a back-off", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { status: 503 });
    const clock = new FakeClock();
    const client = clientForTest(server, { clock });
    const call = client.exchange(REQUEST).catch((reason: unknown) => reason);
    await vi.waitFor(() => expect(clock.sleeps).toEqual([500]));
    await client.close();
    expect(await call).toMatchObject({ name: "APIConnectionError", message: /client was closed/ });
    expect(clock.pending).toBe(0);
  });

  it("may be called twice, and nothing can be sent afterwards", async () => {
    const server = await serverForTest();
    const client = clientForTest(server);
    await client.close();
    await client.close();
    await expect(client.exchange(REQUEST)).rejects.toThrow(
      "POST /api/v1/thing was not sent: the client is closed.",
    );
    await expect(client.exchange(REQUEST)).rejects.toBeInstanceOf(TinkerError);
  });

  it("comes with the end of an `await using` block", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { json: {} });
    const client = clientForTest(server);
    await client.exchange(REQUEST);
    expect(server.openConnections()).toBe(1);
    await client[Symbol.asyncDispose]();
    await vi.waitFor(() => expect(server.openConnections()).toBe(0));
  });
});
