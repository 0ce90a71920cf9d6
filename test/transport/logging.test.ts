import { describe, expect, it } from "vitest";
import type { APIError } from "../../src/index.js";
import type { ExchangeEvent, LogLevel } from "../../src/transport/index.js";
import { clientForTest, environment, jwtOf, REQUEST, ROUTE, serverForTest } from "./helpers.js";

function recorder() {
  const lines: { level: string; text: string }[] = [];
  const at =
    (level: string) =>
    (...parts: unknown[]) =>
      void lines.push({
        level,
        text: parts.map((part) => (typeof part === "string" ? part : JSON.stringify(part))).join(" "),
      });
  return { lines, logger: { error: at("error"), warn: at("warn"), info: at("info"), debug: at("debug") } };
}

describe("logging", () => {
  it("shows no key of a server with keys of its own, even where the server quotes it", async () => {
    const server = await serverForTest();
    const [key, token] = ["my-lab-key-0815", "proxy-pass-4711"];
    server.on(ROUTE, { status: 401, json: { detail: `${key} is unknown, Bearer ${token} too` } });
    const { lines, logger } = recorder();
    const client = clientForTest(server, {
      apiKey: key,
      defaultHeaders: { Authorization: `Bearer ${token}` },
      logger,
      logLevel: "debug",
    });
    const error = (await client.exchange(REQUEST).catch((reason: unknown) => reason)) as APIError;
    expect(error.message).toContain("[redacted] is unknown, Bearer [redacted] too");
    const shown = JSON.stringify([error.message, error.stack, error.body, lines]);
    expect(shown).not.toContain(key);
    expect(shown).not.toContain(token);
  });

  it("shows requests at debug and retries at info, and no secret anywhere", async () => {
    environment({ CLOUDFLARE_ACCESS_CLIENT_SECRET: "cloudflare-secret" });
    const server = await serverForTest();
    const jwt = jwtOf({ exp: 1 });
    server.on(ROUTE, [
      {
        status: 429,
        json: { detail: `slow down, ${jwt} and tml-mykey` },
        headers: { "set-cookie": "session=cookie-secret" },
      },
      { status: 404, json: { detail: "tml-mykey unknown", access_token: "body-secret" } },
    ]);
    const { lines, logger } = recorder();
    const client = clientForTest(server, { apiKey: "tml-mykey", logger, logLevel: "debug" });
    const headers = {
      authorization: "Bearer header-secret",
      "X-Tinker-Weights-Access-Token": "weights-secret",
    };
    const error = (await client
      .exchange({ ...REQUEST, headers })
      .catch((reason: unknown) => reason)) as Error;
    const shown = [
      ...lines.map(({ text }) => text),
      error.message,
      error.stack,
      JSON.stringify(error),
      JSON.stringify([...(error as unknown as { headers: Headers }).headers]),
      JSON.stringify((error as unknown as { body: unknown }).body),
    ].join("\n");
    for (const secret of [
      "mykey",
      jwt,
      "cloudflare-secret",
      "cookie-secret",
      "header-secret",
      "weights-secret",
      "body-secret",
    ]) {
      expect(shown).not.toContain(secret);
    }
    expect(lines.filter(({ level }) => level === "debug").map(({ text }) => text.split(" {")[0])).toEqual([
      "-> POST /api/v1/thing (attempt 1)",
      expect.stringMatching(/^<- POST \/api\/v1\/thing 429 in \d+ ms$/),
      "-> POST /api/v1/thing (attempt 2)",
      expect.stringMatching(/^<- POST \/api\/v1\/thing 404 in \d+ ms$/),
    ]);
    expect(lines.filter(({ level }) => level === "info").map(({ text }) => text)).toEqual([
      expect.stringMatching(/answered 429: slow down.*Retry 1 of 10 in 0\.5 s\.$/),
    ]);
    // The key did travel, it is only not shown.
    expect(server.requests[0]?.headers["x-api-key"]).toBe("tml-mykey");
  });

  it("keeps secrets of the network's own messages out of errors", async () => {
    const failure = new TypeError("fetch failed", {
      cause: new Error("proxy http://user:pass@proxy:1 refused tml-mykey"),
    });
    const client = clientForTest(
      { url: "http://nowhere" },
      { maxRetries: 0, fetch: () => Promise.reject(failure) },
    );
    const error = (await client.exchange(REQUEST).catch((reason: unknown) => reason)) as Error;
    expect(error.message).toContain("proxy http://[redacted]@proxy:1 refused tml-[redacted]");
  });

  it.each<[LogLevel, number]>([
    ["off", 0],
    ["warn", 0],
    ["info", 1],
  ])("at %s writes %i lines about one retry", async (logLevel, count) => {
    const server = await serverForTest();
    server.on(ROUTE, [{ status: 500 }, { json: {} }]);
    const { lines, logger } = recorder();
    await clientForTest(server, { logger, logLevel }).exchange(REQUEST);
    expect(lines).toHaveLength(count);
  });

  it("passes a deprecation notice on, once", async () => {
    const server = await serverForTest();
    const notice = { "x-deprecation-note": "asample moves" };
    server.on(ROUTE, [
      { json: {}, headers: notice },
      { json: {}, headers: notice },
      { json: {}, headers: { "x-deprecation-note": "gone soon", "x-deprecation-level": "error" } },
    ]);
    const { lines, logger } = recorder();
    const client = clientForTest(server, { logger, logLevel: "warn" });
    for (let i = 0; i < 3; i += 1) await client.exchange(REQUEST);
    expect(lines).toEqual([
      { level: "warn", text: "Deprecation notice: asample moves" },
      { level: "error", text: "Deprecation notice: gone soon" },
    ]);
  });
});

describe("hooks", () => {
  it("see every attempt, and may add headers", async () => {
    const server = await serverForTest();
    server.on(ROUTE, [{ status: 503, json: { detail: "x" } }, { drop: "before" }, { json: { ok: true } }]);
    const client = clientForTest(server);
    const events: ExchangeEvent[] = [];
    client.hooks.push({
      beforeSend: (headers, { method, path }) => headers.set("traceparent", `${method} ${path}`),
      afterExchange: (event) => events.push(event),
    });
    await client.exchange({ ...REQUEST, pool: "sample" });
    expect(server.requests[2]?.headers["traceparent"]).toBe("POST /api/v1/thing");
    expect(
      events.map(({ pool, method, path, status, attempt }) => [pool, method, path, status, attempt]),
    ).toEqual([
      ["sample", "POST", "/api/v1/thing", 503, 0],
      ["sample", "POST", "/api/v1/thing", null, 1],
      ["sample", "POST", "/api/v1/thing", 200, 2],
    ]);
    expect(events.map(({ error }) => (error as Error | undefined)?.name)).toEqual([
      "InternalServerError",
      "APIConnectionError",
      undefined,
    ]);
    expect(events.map(({ requestBytes, responseBytes }) => [requestBytes, responseBytes])).toEqual([
      [7, 14],
      [7, 0],
      [7, 11],
    ]);
    for (const { durationMs } of events) expect(durationMs).toBeGreaterThanOrEqual(0);
  });
});

describe("requestHeaders", () => {
  it("are those of every request, credential included", async () => {
    const server = await serverForTest();
    const headers = await clientForTest(server, {
      defaultHeaders: { "x-own": "1", accept: null },
    }).requestHeaders();
    expect(headers.get("x-api-key")).toBe("tml-test");
    expect(headers.get("x-own")).toBe("1");
    expect(headers.get("accept")).toBeNull();
    expect(headers.get("x-stainless-lang")).toBe("js");
  });
});
