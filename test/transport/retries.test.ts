import { describe, expect, it } from "vitest";
import {
  APIConnectionError,
  BadRequestError,
  ConflictError,
  InternalServerError,
  NotFoundError,
  TinkerError,
  ValidationError,
} from "../../src/errors.js";
import { HttpClient } from "../../src/transport/index.js";
import { clientForTest, REQUEST, ROUTE, serverForTest, turnsOfEventLoop } from "./helpers.js";

const OK = { json: { ok: true } };

describe("retries", () => {
  it.each([408, 409, 425, 429, 500, 502, 503])("sends again after %i", async (status) => {
    const server = await serverForTest();
    server.on(ROUTE, [{ status, json: { detail: "later" } }, OK]);
    const client = clientForTest(server);
    const response = await client.exchange(REQUEST);
    expect(response.json()).toEqual({ ok: true });
    expect(server.requests).toHaveLength(2);
    expect(client.clock.sleeps).toEqual([500]);
  });

  it.each([400, 401, 402, 403, 404, 410, 422])("does not send again after %i", async (status) => {
    const server = await serverForTest();
    server.on(ROUTE, [{ status, json: { detail: "no" } }, OK]);
    await expect(clientForTest(server).exchange(REQUEST)).rejects.toMatchObject({ status });
    expect(server.requests).toHaveLength(1);
  });

  it("obeys x-should-retry over the status", async () => {
    const server = await serverForTest();
    server.on(ROUTE, [{ status: 404, headers: { "x-should-retry": "true" }, json: {} }, OK]);
    server.on("POST /api/v1/other", [{ status: 503, headers: { "x-should-retry": "false" }, json: {} }, OK]);
    const client = clientForTest(server);
    await client.exchange(REQUEST);
    await expect(client.exchange({ ...REQUEST, path: "/api/v1/other" })).rejects.toBeInstanceOf(
      InternalServerError,
    );
    expect(server.requests.map(({ path }) => path)).toEqual([
      "/api/v1/thing",
      "/api/v1/thing",
      "/api/v1/other",
    ]);
  });

  it("waits as long as the server says: milliseconds, seconds, HTTP date", async () => {
    const server = await serverForTest();
    const client = clientForTest(server);
    server.on(ROUTE, [
      { status: 429, headers: { "retry-after-ms": "1500" } },
      { status: 429, headers: { "retry-after": "2.5" } },
      () => ({
        status: 429,
        headers: { "retry-after": new Date(client.clock.wallNow() + 40_000).toUTCString() },
      }),
      { status: 429, headers: { "retry-after": "3600" } },
      OK,
    ]);
    await client.exchange(REQUEST);
    expect(client.clock.sleeps).toEqual([1500, 2500, 40_000, 4000]);
  });

  it("asks again for JSON where a proxy answered with a page of its own, three times", async () => {
    const page = { headers: { "content-type": "text/html" }, text: "<html>Please log in</html>" };
    const server = await serverForTest();
    const client = clientForTest(server);
    server.on(ROUTE, [{ status: 503 }, page, page, { json: "cut", text: '{"ok":' }, { status: 503 }, OK]);
    expect((await client.exchange({ ...REQUEST, expect: "json" })).json()).toEqual({ ok: true });
    server.requests.length = 0;
    server.on(ROUTE, page);
    await expect(client.exchange({ ...REQUEST, expect: "json" })).rejects.toThrow(
      /answered 200 with a body that is not JSON \(text\/html\). Is the base URL/,
    );
    expect(server.requests).toHaveLength(4);
  });

  it("gives up after maxRetries with the last error", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { status: 503, json: { detail: "down" } });
    const client = clientForTest(server);
    await expect(client.exchange(REQUEST)).rejects.toThrow(
      "POST /api/v1/thing answered 503: down. The server failed; try again later.",
    );
    expect(server.requests).toHaveLength(11);
    expect(client.clock.sleeps).toEqual([
      500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000, 10_000, 10_000,
    ]);
    await expect(client.exchange({ ...REQUEST, maxRetries: 0 })).rejects.toBeInstanceOf(InternalServerError);
    expect(server.requests).toHaveLength(12);
  });

  it("takes maxRetries from the client's options", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { status: 409, json: {} });
    await expect(clientForTest(server, { maxRetries: 2 }).exchange(REQUEST)).rejects.toBeInstanceOf(
      ConflictError,
    );
    expect(server.requests).toHaveLength(3);
  });

  it.each(["before", "mid-body"] as const)("sends again when the connection breaks (%s)", async (drop) => {
    const server = await serverForTest();
    server.on(ROUTE, [{ drop, json: { some: "body" } }, OK]);
    const response = await clientForTest(server).exchange(REQUEST);
    expect(response.json()).toEqual({ ok: true });
    expect(server.requests).toHaveLength(2);
  });

  it("reports a connection that cannot be made, with its cause", async () => {
    const server = await serverForTest();
    const client = clientForTest(server, { maxRetries: 1 });
    await server.close();
    const error = await client.exchange(REQUEST).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(APIConnectionError);
    expect((error as Error).message).toMatch(/^POST \/api\/v1\/thing failed: .*ECONNREFUSED/);
    expect((error as Error).cause).toBeInstanceOf(Error);
    expect(client.clock.sleeps).toEqual([500]);
  });

  it("keeps one idempotency key over all attempts of a call, and a new one for each call", async () => {
    const server = await serverForTest();
    server.on(ROUTE, [{ status: 500 }, { status: 500 }, OK]);
    const client = clientForTest(server);
    await client.exchange(REQUEST);
    await client.exchange(REQUEST);
    const keys = server.requests.map(({ headers }) => headers["x-idempotency-key"]);
    expect(keys[0]).toMatch(/^tinkerts-retry-[0-9a-f-]{36}$/);
    expect(new Set(keys.slice(0, 3)).size).toBe(1);
    expect(keys[3]).not.toBe(keys[0]);
    expect(server.requests.map(({ headers }) => headers["x-stainless-retry-count"])).toEqual([
      "0",
      "1",
      "2",
      "0",
    ]);
  });

  it("uses the caller's idempotency key, and none for GET", async () => {
    const server = await serverForTest();
    server.on(ROUTE, OK).on("GET /api/v1/thing", OK);
    const client = clientForTest(server);
    await client.exchange({ ...REQUEST, idempotencyKey: "mine" });
    await client.exchange({ method: "GET", path: "/api/v1/thing" });
    expect(server.requests.map(({ headers }) => headers["x-idempotency-key"])).toEqual(["mine", undefined]);
  });

  it("sends the same bytes again", async () => {
    const server = await serverForTest();
    server.on(ROUTE, [{ status: 500 }, OK]);
    const body = Uint8Array.from({ length: 100_000 }, (_, i) => i % 251);
    await clientForTest(server).exchange({
      method: "POST",
      path: REQUEST.path,
      body,
      contentType: "application/x-protobuf",
    });
    for (const request of server.requests) {
      expect(Buffer.compare(request.body, body)).toBe(0);
      expect(request.headers["content-type"]).toBe("application/x-protobuf");
      expect(request.headers["content-length"]).toBe("100000");
    }
  });
});

describe("a 400 with an empty body", () => {
  it("opens a new connection and sends again", async () => {
    const server = await serverForTest();
    server.on("GET /api/v1/warm", OK);
    server.on(ROUTE, [{ status: 400 }, OK]);
    const client = clientForTest(server);
    await client.exchange({ method: "GET", path: "/api/v1/warm" });
    await turnsOfEventLoop();
    await client.exchange(REQUEST);
    expect(server.requests.map(({ connection }) => connection)).toEqual([1, 1, 2]);
    expect(client.clock.sleeps).toEqual([500]);
  });

  it("is a lost connection to a caller without retries", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { status: 400 });
    await expect(clientForTest(server).exchange({ ...REQUEST, maxRetries: 0 })).rejects.toBeInstanceOf(
      APIConnectionError,
    );
  });

  it("is believed after sixteen in a row in one pool; every success gives one back", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { status: 400 });
    const client = clientForTest(server, { maxRetries: 100 });
    await expect(client.exchange(REQUEST)).rejects.toBeInstanceOf(BadRequestError);
    expect(server.requests).toHaveLength(17);
    await expect(client.exchange({ ...REQUEST, pool: "sample", maxRetries: 0 })).rejects.toBeInstanceOf(
      APIConnectionError,
    );
    server.on("GET /api/v1/fine", OK);
    await client.exchange({ method: "GET", path: "/api/v1/fine" });
    server.on(ROUTE, [{ status: 400 }, OK]);
    await client.exchange(REQUEST);
  });

  it("does not apply to a 400 that says something", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { status: 400, json: { detail: "bad" } });
    await expect(clientForTest(server).exchange(REQUEST)).rejects.toBeInstanceOf(BadRequestError);
    expect(server.requests).toHaveLength(1);
  });
});

describe("requests", () => {
  it("carry key, platform, type and timeout", async () => {
    const server = await serverForTest();
    server.on(ROUTE, OK);
    await clientForTest(server).exchange(REQUEST);
    const { headers } = server.requests[0]!;
    expect(headers).toMatchObject({
      accept: "application/json",
      "content-type": "application/json",
      "x-api-key": "tml-test",
      "x-stainless-lang": "js",
      "x-stainless-runtime": "node",
      "x-stainless-runtime-version": process.version,
      "x-stainless-retry-count": "0",
      "x-stainless-read-timeout": "60",
    });
    expect(headers["user-agent"]).toMatch(/^tinkerts\/\d/);
    expect(headers["x-stainless-os"]).toBeTruthy();
    expect(headers["x-stainless-arch"]).toBeTruthy();
    expect(headers["x-stainless-package-version"]).toMatch(/^\d+\.\d+\.\d+/);
  });

  it("let the caller's headers win, per client and per call, and null remove", async () => {
    const server = await serverForTest();
    server.on(ROUTE, OK);
    const client = clientForTest(server, { defaultHeaders: { "X-API-Key": "mine", "x-a": "1", "x-b": "1" } });
    await client.exchange({
      ...REQUEST,
      headers: { "x-b": "2", "user-agent": null, "X-Idempotency-Key": "k" },
    });
    const { headers } = server.requests[0]!;
    expect(headers).toMatchObject({ "x-api-key": "mine", "x-a": "1", "x-b": "2", "x-idempotency-key": "k" });
    expect(headers["user-agent"]).toBeUndefined();
  });

  it("put the query behind the path", async () => {
    const server = await serverForTest();
    server.on("GET /api/v1/list", OK);
    await clientForTest(server).exchange({
      method: "GET",
      path: "/api/v1/list",
      query: { limit: 5, all: false, scope: undefined, none: null, ids: ["a", "b"], text: "ä &" },
    });
    expect(Object.fromEntries(server.requests[0]!.query)).toEqual({
      limit: "5",
      all: "false",
      ids: "a,b",
      text: "ä &",
    });
  });

  it("keep the path of the base URL and stand a slash at its end", async () => {
    const server = await serverForTest();
    server.on("GET /services/tinker/api/v1/x", OK);
    await clientForTest({ url: `${server.url}/services/tinker/` }).exchange({
      method: "GET",
      path: "/api/v1/x",
    });
    expect(server.requests[0]?.path).toBe("/services/tinker/api/v1/x");
  });

  it("answer with status, headers, type and bytes", async () => {
    const server = await serverForTest();
    server.on(ROUTE, {
      status: 201,
      bytes: new Uint8Array([1, 2, 3]),
      headers: { "content-type": "Application/X-Protobuf; v=1", "x-k": "v" },
    });
    const response = await clientForTest(server).exchange(REQUEST);
    expect(response).toMatchObject({ status: 201, contentType: "application/x-protobuf" });
    expect([...response.bytes]).toEqual([1, 2, 3]);
    expect(response.headers.get("x-k")).toBe("v");
    expect(() => response.json()).toThrow(
      /answered 201 with a body that is not JSON \(application\/x-protobuf\)/,
    );
  });

  it("read a large answer whole", async () => {
    const server = await serverForTest();
    const bytes = Uint8Array.from({ length: 5_000_000 }, (_, i) => (i * 7) % 256);
    server.on(ROUTE, { bytes });
    const response = await clientForTest(server).exchange(REQUEST);
    expect(Buffer.compare(response.bytes, bytes)).toBe(0);
  });

  it("turn error bodies into what they are: JSON, text, nothing", async () => {
    const server = await serverForTest();
    server.on(ROUTE, [
      { status: 404, json: { detail: "x" } },
      { status: 404, text: "<html>" },
      { status: 404, bytes: new Uint8Array([8, 1]) },
      { status: 404 },
    ]);
    const client = clientForTest(server);
    const bodies: unknown[] = [];
    for (let i = 0; i < 4; i += 1) {
      const error = await client.exchange(REQUEST).catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(NotFoundError);
      bodies.push((error as NotFoundError).body);
    }
    expect(bodies).toEqual([{ detail: "x" }, "<html>", undefined, undefined]);
  });

  it.each([
    ["baseURL", () => new HttpClient({ baseURL: "gpu-box:1" }), /such as "https:\/\/gpu-box:1"/],
    ["baseURL", () => new HttpClient({ baseURL: "ftp://host" }), /begin with http/],
    ["baseURL", () => new HttpClient({ baseURL: "nonsense" }), /absolute URL/],
    ["baseURL", () => new HttpClient({ baseURL: "http://u:p@host" }), /user name or password/],
    ["baseURL", () => new HttpClient({ baseURL: "http://host/?a=1" }), /query/],
    ["timeout", () => new HttpClient({ baseURL: "http://host", timeout: 0 }), /positive.*got 0/],
    ["maxRetries", () => new HttpClient({ baseURL: "http://host", maxRetries: 1.5 }), /integer.*got 1.5/],
    [
      "logLevel",
      () => new HttpClient({ baseURL: "http://host", logLevel: "loud" as never }),
      /"off", "error"/,
    ],
  ])("refuse a wrong %s", (field, construct, message) => {
    expect(construct).toThrow(ValidationError);
    expect(construct).toThrow(message);
    expect(construct).toThrow(expect.objectContaining({ field }));
  });

  it("refuse a path that is not below the base URL, and two bodies", async () => {
    const server = await serverForTest();
    const client = clientForTest(server);
    await expect(client.exchange({ ...REQUEST, path: "https://elsewhere/" })).rejects.toThrow(
      /path must begin with/,
    );
    await expect(client.exchange({ ...REQUEST, body: "twice" })).rejects.toThrow(/either json or body/);
    expect(server.requests).toHaveLength(0);
  });

  it("do not show a header value that HTTP does not allow", async () => {
    const server = await serverForTest();
    const error = await clientForTest(server, { apiKey: "opaque\nsecret" })
      .exchange(REQUEST)
      .catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(TinkerError);
    expect(String(error)).toContain('"X-API-Key"');
    expect(String(error)).not.toContain("secret");
  });
});
