import { describe, expect, it, vi } from "vitest";
import { type Answer, fakeHttp } from "../../test/session/fake-http.js";
import { FakeClock } from "../../test/support/fake-clock.js";
import { APIError, RequestFailedError, ValidationError } from "../errors.js";
import { ClientMetrics } from "./metrics.js";
import { Telemetry, type TelemetryOptions, telemetryEnabled } from "./telemetry.js";
import { durationText } from "./telemetry-events.js";

interface SentBatch {
  events: Array<Record<string, unknown> & { event_data?: Record<string, unknown> }>;
  platform: string;
  sdk_version: string;
  session_id: string;
  process_uuid: string;
}

function setUp(options: { answer?: Answer; overrides?: Partial<TelemetryOptions> } = {}) {
  const clock = new FakeClock();
  const { http, requests, logs } = fakeHttp(options.answer, clock);
  const metrics = new ClientMetrics();
  const telemetry = new Telemetry({
    http,
    metrics,
    enabled: true,
    platform: "Linux",
    sessionId: "session-1",
    ownsSession: false,
    ...options.overrides,
  });
  const batches = () => requests.map((request) => request.json as SentBatch);
  return { clock, telemetry, metrics, requests, batches, logs };
}

const apiError = (status: number, body: unknown = { detail: "no" }) =>
  APIError.from(status, new Headers({ "x-api-key": "tml-header-secret" }), body, {
    method: "POST",
    path: "/x",
  });

describe("telemetry batches", () => {
  it("carry what the service expects, with ids, indices and times", async () => {
    const { telemetry, batches, requests, clock } = setUp({ overrides: { ownsSession: true } });
    await clock.advance(90_061_500);
    telemetry.log("step", { tokens: 12, nested: { keepThisKey: true } }, "DEBUG");
    await telemetry.close();
    const [first, second] = batches();
    expect(first).toMatchObject({ platform: "Linux", sdk_version: "0.36.0", session_id: "session-1" });
    expect(first?.process_uuid).toMatch(/^[0-9a-f-]{36}$/);
    expect(first?.events).toEqual([
      {
        event: "SESSION_START",
        severity: "INFO",
        event_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        event_session_index: 0,
        timestamp: "2026-01-01T00:00:00.000Z",
      },
    ]);
    expect(second?.events).toMatchObject([
      {
        event: "GENERIC_EVENT",
        event_name: "step",
        severity: "DEBUG",
        event_session_index: 1,
        event_data: { tokens: 12, nested: { keepThisKey: true } },
      },
      { event: "SESSION_END", event_session_index: 2, duration: "1 day, 1:01:01.500000" },
    ]);
    expect(second?.process_uuid).toBe(first?.process_uuid);
    expect(requests[0]).toMatchObject({
      method: "POST",
      path: "/api/v1/telemetry",
      pool: "telemetry",
      timeout: 5000,
    });
    expect(requests[0]?.maxRetries).toBeLessThanOrEqual(5);
  });

  it("hold at most 100 events and leave every 10 s", async () => {
    const { telemetry, batches, clock } = setUp();
    for (let index = 0; index < 250; index += 1) telemetry.log("tick", { index });
    await clock.advance(9_999);
    expect(batches()).toHaveLength(0);
    await clock.advance(1);
    expect(batches().map((batch) => batch.events.length)).toEqual([100, 100, 50]);
    expect(batches().flatMap((batch) => batch.events.map((event) => event.event_data?.["index"]))).toEqual(
      Array.from({ length: 250 }, (_, index) => index),
    );
    telemetry.log("later");
    await clock.advance(10_000);
    expect(batches()).toHaveLength(4);
    expect(clock.pending).toBe(0);
  });

  it("share one flush between callers, so none is sent twice", async () => {
    const { telemetry, batches } = setUp();
    for (let index = 0; index < 150; index += 1) telemetry.log("tick");
    await Promise.all([telemetry.flush(), telemetry.flush(), telemetry.flush()]);
    expect(batches().map((batch) => batch.events.length)).toEqual([100, 50]);
  });

  it("of a client without a session carry a made-up id and no session events", async () => {
    const { telemetry, batches } = setUp({ overrides: { sessionId: undefined } });
    telemetry.log("listed");
    await telemetry.close();
    expect(batches()[0]?.session_id).toMatch(/^sessionless-[0-9a-f-]{36}$/);
    expect(batches()[0]?.events.map((event) => event["event"])).toEqual(["GENERIC_EVENT"]);
  });
});

describe("telemetry bounds", () => {
  it("drops and counts what does not fit the queue", () => {
    const { telemetry, metrics } = setUp();
    for (let index = 0; index < 10_000; index += 1) expect(telemetry.log("tick")).toBe(true);
    expect(telemetry.log("one too many")).toBe(false);
    expect(telemetry.log("and another")).toBe(false);
    expect(telemetry.queuedEvents).toBe(10_000);
    expect(telemetry.droppedEvents).toBe(2);
    expect(metrics.snapshot().counters["telemetry.dropped"]).toBe(2);
  });

  it("drops and counts a batch the server does not take, and goes on with the next", async () => {
    const statuses = [500, 200];
    const { telemetry, batches } = setUp({ answer: () => ({ status: statuses.shift() ?? 200 }) });
    for (let index = 0; index < 130; index += 1) telemetry.log("tick");
    await telemetry.flush();
    expect(batches()).toHaveLength(2);
    expect(telemetry.droppedEvents).toBe(100);
  });

  it("goes quiet for good at a server without the endpoint", async () => {
    const { telemetry, requests, clock } = setUp({ answer: () => ({ status: 404 }) });
    for (let index = 0; index < 300; index += 1) telemetry.log("tick");
    await telemetry.flush();
    expect(requests).toHaveLength(1);
    expect(telemetry.log("tick")).toBe(false);
    await telemetry.close();
    expect(requests).toHaveLength(1);
    expect(clock.pending).toBe(0);
  });

  it("cuts long texts and leaves out oversized data", async () => {
    const { telemetry, batches } = setUp();
    telemetry.log("long", { text: "x".repeat(100_000) });
    telemetry.log("wide", { list: Array.from({ length: 50_000 }, (_, index) => index) });
    await telemetry.flush();
    expect(JSON.stringify(batches()).length).toBeLessThan(20_000);
  });
});

describe("closing telemetry", () => {
  it("sends what is queued, leaves no timer, and takes nothing more", async () => {
    const { telemetry, batches, clock } = setUp();
    telemetry.log("last words");
    await telemetry.close();
    await telemetry.close();
    expect(batches()).toHaveLength(1);
    expect(clock.pending).toBe(0);
    expect(telemetry.log("too late")).toBe(false);
    expect(clock.pending).toBe(0);
  });

  it("gives up after 30 s when the server hangs", async () => {
    const clock = new FakeClock();
    const { http, requests } = fakeHttp(
      (request) =>
        new Promise((resolve) => {
          request.signal?.addEventListener("abort", () => resolve({ drop: true }), { once: true });
        }),
      clock,
    );
    const metrics = new ClientMetrics();
    const telemetry = new Telemetry({ http, metrics, enabled: true, platform: "Linux", ownsSession: false });
    for (let index = 0; index < 250; index += 1) telemetry.log("tick");
    const closed = vi.fn();
    const closing = telemetry.close().then(closed);
    await clock.advance(29_999);
    expect(closed).not.toHaveBeenCalled();
    await clock.advance(1);
    await closing;
    expect(requests).toHaveLength(1);
    expect(telemetry.droppedEvents).toBe(250);
    expect(clock.pending).toBe(0);
  });
});

describe("telemetry of errors", () => {
  it("reports what the user has to fix as user_error, through causes as well", async () => {
    const { telemetry, batches } = setUp();
    telemetry.logException(apiError(422, { detail: "bad loss" }));
    telemetry.logException(new Error("outer", { cause: new ValidationError("data[0]", "data[0] is empty") }));
    telemetry.logException(new RequestFailedError("nan", { requestId: "r", category: "user" }));
    await telemetry.flush();
    const events = batches().flatMap((batch) => batch.events);
    expect(events.map((event) => [event["event_name"], event["severity"]])).toEqual([
      ["user_error", "WARNING"],
      ["user_error", "WARNING"],
      ["user_error", "WARNING"],
    ]);
    expect(events[0]?.event_data).toMatchObject({
      error_type: "UnprocessableEntityError",
      status_code: 422,
      body: { detail: "bad loss" },
    });
    expect(events[1]?.event_data).toMatchObject({ error_type: "Error", message: "outer" });
  });

  it("reports everything else as an unhandled exception, sent without waiting for the interval", async () => {
    const { telemetry, batches } = setUp();
    telemetry.logException(new TypeError("undefined is not a function"));
    telemetry.logException(apiError(408));
    telemetry.logException(apiError(500), "CRITICAL");
    telemetry.logException("a thrown string");
    await vi.waitFor(() => expect(batches().flatMap((batch) => batch.events)).toHaveLength(4));
    const events = batches().flatMap((batch) => batch.events);
    expect(events).toMatchObject([
      {
        event: "UNHANDLED_EXCEPTION",
        severity: "ERROR",
        error_type: "TypeError",
        error_message: "undefined is not a function",
      },
      { event: "UNHANDLED_EXCEPTION", error_type: "RequestTimeoutError" },
      { event: "UNHANDLED_EXCEPTION", error_type: "InternalServerError", severity: "CRITICAL" },
      { event: "UNHANDLED_EXCEPTION", error_type: "string", error_message: "a thrown string" },
    ]);
    expect(events[0]?.["traceback"]).toContain("telemetry.test.ts");
  });

  it("captureExceptions reports and rethrows, for functions of both kinds", async () => {
    const { telemetry, batches } = setUp();
    const syncError = new Error("sync");
    const asyncError = new Error("async");
    expect(() =>
      telemetry.captureExceptions(() => {
        throw syncError;
      }),
    ).toThrow(syncError);
    await expect(telemetry.captureExceptions(() => Promise.reject(asyncError))).rejects.toBe(asyncError);
    expect(telemetry.captureExceptions(() => 7)).toBe(7);
    expect(await telemetry.captureExceptions(async () => 8)).toBe(8);
    await telemetry.flush();
    expect(batches().flatMap((batch) => batch.events.map((event) => event["error_message"]))).toEqual([
      "sync",
      "async",
    ]);
  });

  it("captureExceptions hands a future back as it is, and reports its failure", async () => {
    const { telemetry, batches } = setUp();
    const failure = new Error("future");
    const promise = Promise.reject(failure);
    // biome-ignore lint/suspicious/noThenProperty: stands for an APIFuture
    const future = { requestId: "r", then: promise.then.bind(promise) };
    expect(telemetry.captureExceptions(() => future)).toBe(future);
    await expect(future).rejects.toBe(failure);
    await telemetry.flush();
    expect(batches()[0]?.events[0]).toMatchObject({ error_message: "future" });
  });

  it("never sends keys, tokens or headers", async () => {
    const { telemetry, batches } = setUp();
    const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl";
    const deep = { a: { b: { c: { d: { e: { f: { g: { h: { i: { j: "tml-deep-secret" } } } } } } } } } };
    telemetry.log("custom tml-name-secret", {
      headers: { "x-other": "header-secret" },
      requestHeaders: [["a", "header-secret"]],
      live: new Headers({ a: "header-secret" }),
      authorization: "Bearer opaque-secret",
      "X-API-Key": "opaque-secret",
      accessToken: "opaque-secret",
      note: `key tml-note-secret and ${jwt}`,
      deep,
      error: new Error("tml-error-secret"),
      num_tokens: 5,
    });
    telemetry.logException(new Error(`failed with tml-message-secret and ${jwt}`));
    telemetry.logException(
      apiError(400, { detail: "tml-body-secret is not valid", api_key: "opaque-secret" }),
    );
    await telemetry.flush();
    const sent = JSON.stringify(batches());
    expect(sent).not.toContain("secret");
    expect(sent).not.toContain(jwt.slice(0, 20));
    expect(sent).toContain('"num_tokens":5');
  });

  it("survives data that cannot be written as JSON", async () => {
    const { telemetry, batches } = setUp();
    const circular: Record<string, unknown> = {};
    circular["self"] = circular;
    telemetry.log("circular", circular);
    telemetry.log("odd", { big: 5n, nan: Number.NaN, fn: () => 1, missing: undefined });
    await telemetry.flush();
    expect(batches()[0]?.events.map((event) => event.event_data)).toEqual([
      { unserializable: true },
      { big: "5", nan: "NaN" },
    ]);
  });
});

describe("opting out", () => {
  it("sends nothing, keeps nothing and starts no timer, and errors still reach the caller", async () => {
    const { telemetry, requests, clock } = setUp({ overrides: { enabled: false, ownsSession: true } });
    expect(telemetry.log("tick")).toBe(false);
    expect(telemetry.logException(new Error("x"))).toBe(false);
    await expect(telemetry.captureExceptions(() => Promise.reject(new Error("y")))).rejects.toThrow("y");
    expect(clock.pending).toBe(0);
    await telemetry.close();
    expect(requests).toHaveLength(0);
    expect(telemetry.droppedEvents).toBe(0);
  });

  it.each([
    [undefined, true],
    ["", true],
    ["1", true],
    ["on", true],
    ["0", false],
    ["false", false],
    ["FALSE", false],
    [" no ", false],
    ["off", false],
  ])("TINKER_TELEMETRY=%s", (setting, enabled) => {
    expect(telemetryEnabled(setting)).toBe(enabled);
  });
});

describe("durationText", () => {
  it.each([
    [0, "0:00:00"],
    [1_500, "0:00:01.500000"],
    [3_599_999, "0:59:59.999000"],
    [36_000_000, "10:00:00"],
    [2 * 86_400_000 + 1, "2 days, 0:00:00.001000"],
  ])("%d ms", (durationMs, text) => {
    expect(durationText(durationMs)).toBe(text);
  });
});
