import { createServer, request as forward } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { APIConnectionError } from "../../src/errors.js";
import type { PoolName } from "../../src/transport/index.js";
import type { ScriptedAnswer } from "../support/protocol-server.js";
import { clientForTest, environment, REQUEST, ROUTE, serverForTest, turnsOfEventLoop } from "./helpers.js";

/** The fixture's certificate is its own authority, which no client trusts unasked. */
const trustTestCertificate = () => environment({ NODE_TLS_REJECT_UNAUTHORIZED: "0" });

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

describe("connections", () => {
  it("are kept alive and used again", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { json: {} });
    const client = clientForTest(server);
    for (let i = 0; i < 5; i += 1) {
      await client.exchange(REQUEST);
      await turnsOfEventLoop();
    }
    expect(server.connectionsSeen).toBe(1);
  });

  it("of one purpose do not wait for those of another", async () => {
    const server = await serverForTest();
    server.on(ROUTE, (request) =>
      request.headers["x-pool"] === "telemetry" ? { delayMs: Number.POSITIVE_INFINITY } : { json: {} },
    );
    const client = clientForTest(server);
    const send = (pool: PoolName) => client.exchange({ ...REQUEST, pool, headers: { "x-pool": pool } });
    // More than the telemetry pool has connections for: the rest waits in that pool alone.
    const stuck = Array.from({ length: 10 }, () => send("telemetry").catch(() => {}));
    await vi.waitFor(() => expect(server.requests).toHaveLength(4));
    await Promise.all((["train", "sample", "session", "retrieve"] as const).map(send));
    expect(server.requests).toHaveLength(8);
    await client.close();
    await Promise.all(stuck);
  });

  it("carry one training request each, at the same time", async () => {
    const server = await serverForTest();
    server.on(ROUTE, barrier(20));
    const client = clientForTest(server);
    await Promise.all(Array.from({ length: 20 }, () => client.exchange(REQUEST)));
    expect(new Set(server.requests.map(({ connection }) => connection)).size).toBe(20);
  });

  it("that the server dropped meanwhile are replaced", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { json: {} });
    const client = clientForTest(server);
    await client.exchange(REQUEST);
    server.dropConnections();
    await client.exchange(REQUEST);
    expect(server.connectionsSeen).toBe(2);
  });

  it("that cannot be made in time count as a timeout", async () => {
    const cause = Object.assign(new Error("Connect Timeout Error"), { code: "UND_ERR_CONNECT_TIMEOUT" });
    const client = clientForTest(
      { url: "http://nowhere" },
      { maxRetries: 0, fetch: () => Promise.reject(new TypeError("fetch failed", { cause })) },
    );
    await expect(client.exchange(REQUEST)).rejects.toMatchObject({
      name: "APITimeoutError",
      message: /Connect Timeout Error \(UND_ERR_CONNECT_TIMEOUT\)/,
    });
  });

  it("use the caller's fetch for every pool when one is given", async () => {
    const seen: string[] = [];
    const fetch = vi.fn(async (input: unknown, init?: RequestInit) => {
      seen.push(`${init?.method} ${String(input)} ${new Headers(init?.headers).get("x-api-key")}`);
      return Response.json({ ok: true });
    });
    const client = clientForTest({ url: "http://nowhere/base" }, { fetch: fetch as typeof globalThis.fetch });
    expect(client.hasCustomFetch).toBe(true);
    await client.exchange({ ...REQUEST, pool: "sample" });
    expect(await client.get("/x", { query: { a: 1 } })).toEqual({ ok: true });
    expect(seen).toEqual([
      "POST http://nowhere/base/api/v1/thing tml-test",
      "GET http://nowhere/base/x?a=1 tml-test",
    ]);
  });
});

/** Answers no request before `count` of them are waiting. */
function barrier(count: number): () => Promise<ScriptedAnswer> {
  let open: () => void = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  let waiting = 0;
  return async () => {
    waiting += 1;
    if (waiting === count) open();
    await opened;
    return { json: { ok: true } };
  };
}

describe("polls that the server holds open", () => {
  it.each([undefined, "http2"] as const)("do not wait for one another (%s)", async (tls) => {
    trustTestCertificate();
    const server = await serverForTest(tls === undefined ? {} : { tls });
    server.on("GET /api/v1/healthz", { json: {} }).on(ROUTE, barrier(400));
    const client = clientForTest(server);
    await client.exchange({ method: "GET", path: "/api/v1/healthz", pool: "session" });
    await Promise.all(Array.from({ length: 400 }, () => client.exchange({ ...REQUEST, pool: "retrieve" })));
    expect(client.clock.sleeps).toEqual([]);
    if (tls === "http2") expect(server.connectionsSeen).toBeLessThanOrEqual(42);
  });
});

describe("bodies", () => {
  const text = JSON.stringify({ value: "compressible ".repeat(50_000) });

  it.each([
    ["gzip", gzipSync],
    ["deflate", deflateSync],
    ["br", brotliCompressSync],
  ] as const)("in %s are decompressed", async (encoding, compress) => {
    const server = await serverForTest();
    const headers = { "content-encoding": encoding, "content-type": "application/json" };
    server.on(ROUTE, { bytes: compress(text), headers });
    const client = clientForTest(server);
    expect((await client.exchange(REQUEST)).json()).toEqual(JSON.parse(text));
    expect(await (await client.post(REQUEST.path).asResponse()).text()).toBe(text);
    expect(server.requests[0]?.headers["accept-encoding"]).toContain(encoding);
  });

  it("that end too early or are no gzip are a broken connection, and retried", async () => {
    const server = await serverForTest();
    const compressed = gzipSync(text);
    const headers = { "content-encoding": "gzip" };
    server.on(ROUTE, [
      { bytes: compressed.subarray(0, 500), headers },
      { bytes: new Uint8Array(100), headers },
      { bytes: compressed, headers, drop: "mid-body" },
      { bytes: compressed, headers },
    ]);
    const client = clientForTest(server);
    expect((await client.exchange(REQUEST)).json()).toEqual(JSON.parse(text));
    expect(client.clock.sleeps).toHaveLength(3);
  });

  it("that are read slowly hold the server back and come whole", async () => {
    const server = await serverForTest();
    const bytes = Uint8Array.from({ length: 12_000_000 }, (_, i) => (i * 13) % 256);
    server.on(ROUTE, { bytes });
    const response = await clientForTest(server).post(REQUEST.path).asResponse();
    const reader = response.body!.getReader();
    await pause(200);
    // Of 12 MB, what is not in our megabyte or the system's buffers still waits at the server.
    expect(server.unsentBytes()).toBeGreaterThan(0);
    const pieces: Uint8Array[] = [];
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      pieces.push(value);
    }
    expect(Buffer.compare(Buffer.concat(pieces), bytes)).toBe(0);
  });
});

describe("2,000 requests at once", () => {
  it("all arrive; no socket, timer, listener or warning stays, nor does memory grow", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { json: { ok: true }, delayMs: 5 });
    const warnings: string[] = [];
    const onWarning = (warning: Error) => void warnings.push(warning.message);
    process.on("warning", onWarning);
    onTestFinished(() => void process.off("warning", onWarning));
    const client = clientForTest(server);
    const { signal } = new AbortController();
    const heapAfter: number[] = [];
    for (let round = 0; round < 3; round += 1) {
      const responses = await Promise.all(
        Array.from({ length: 2000 }, () => client.exchange({ ...REQUEST, pool: "retrieve", signal })),
      );
      expect(responses.every(({ status }) => status === 200)).toBe(true);
      server.requests.length = 0;
      collectGarbage();
      heapAfter.push(process.memoryUsage().heapUsed);
    }
    expect(client.clock.pending).toBe(0);
    await client.close();
    await vi.waitFor(() => expect(server.openConnections()).toBe(0));
    expect(warnings).toEqual([]);
    expect(heapAfter[2]! - heapAfter[1]!).toBeLessThan(10e6);
  });
});

describe("HTTP/2", () => {
  it("is spoken where the server does, many requests over few connections", async () => {
    trustTestCertificate();
    const server = await serverForTest({ tls: "http2" });
    server.on(ROUTE, (request) => ({ json: { echo: request.json() }, delayMs: 20 }));
    const client = clientForTest(server);
    await client.exchange({ ...REQUEST, pool: "session" });
    const answers = await Promise.all(
      Array.from({ length: 200 }, async (_, i) => {
        const response = await client.exchange({ ...REQUEST, json: { i }, pool: "sample" });
        return response.json();
      }),
    );
    expect(answers).toEqual(Array.from({ length: 200 }, (_, i) => ({ echo: { i } })));
    expect(server.requests.every(({ httpVersion }) => httpVersion === "2.0")).toBe(true);
    expect(server.connectionsSeen).toBeLessThanOrEqual(12);
    await client.close();
    await vi.waitFor(() => expect(server.openConnections()).toBe(0));
  });

  it("retries, aborts and times out as ever", async () => {
    trustTestCertificate();
    const server = await serverForTest({ tls: "http2" });
    server.on(ROUTE, [
      { status: 503 },
      { drop: "before" },
      { json: { ok: true } },
      { delayMs: Number.POSITIVE_INFINITY },
    ]);
    const client = clientForTest(server);
    const response = await client.exchange(REQUEST);
    expect(response.json()).toEqual({ ok: true });
    const controller = new AbortController();
    const call = client.exchange({ ...REQUEST, signal: controller.signal });
    await vi.waitFor(() => expect(server.requests).toHaveLength(4));
    controller.abort();
    await expect(call).rejects.toMatchObject({ name: "APIUserAbortError" });
    server.on(ROUTE, { json: { again: true } });
    expect((await client.exchange(REQUEST)).json()).toEqual({ again: true });
  });

  it("sends and reads large bodies whole", async () => {
    trustTestCertificate();
    const server = await serverForTest({ tls: "http2" });
    server.on(ROUTE, (request) => ({ bytes: request.body }));
    const body = Uint8Array.from({ length: 3_000_000 }, (_, i) => (i * 31) % 256);
    const client = clientForTest(server);
    const responses = await Promise.all(
      Array.from({ length: 4 }, () =>
        client.exchange({ method: "POST", path: REQUEST.path, body, pool: "sample" }),
      ),
    );
    for (const response of responses) expect(Buffer.compare(response.bytes, body)).toBe(0);
  });

  it("is not needed: TLS with HTTP/1.1 works the same", async () => {
    trustTestCertificate();
    const server = await serverForTest({ tls: "http1" });
    server.on(ROUTE, { json: { ok: true } });
    expect((await clientForTest(server).exchange(REQUEST)).json()).toEqual({ ok: true });
    expect(server.requests[0]?.httpVersion).toBe("1.1");
  });

  it("does not retry an unsigned certificate", async () => {
    const server = await serverForTest({ tls: "http2" });
    const client = clientForTest(server, { maxRetries: 0 });
    await expect(client.exchange(REQUEST)).rejects.toBeInstanceOf(APIConnectionError);
    await expect(client.exchange(REQUEST)).rejects.toThrow(/certificate|DEPTH_ZERO/);
  });
});

/** A proxy that forwards plain HTTP and tunnels the rest, and remembers what it was asked. */
async function startProxy() {
  const asked: string[] = [];
  const credentials: unknown[] = [];
  const clients = new Set<Socket>();
  const sockets = new Set<Socket>();
  const proxy = createServer((incoming, outgoing) => {
    asked.push(`${incoming.method} ${incoming.url}`);
    credentials.push(incoming.headers["proxy-authorization"]);
    const { method, headers } = incoming;
    const onward = forward(String(incoming.url), { method: method ?? "GET", headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    });
    incoming.pipe(onward);
  });
  proxy.on("connect", (incoming, socket: Socket) => {
    asked.push(`CONNECT ${incoming.url}`);
    credentials.push(incoming.headers["proxy-authorization"]);
    const [host, port] = String(incoming.url).split(":");
    const onward = connect(Number(port), host, () => {
      socket.write("HTTP/1.1 200 Connection Established\r\n\r\n");
      socket.pipe(onward).pipe(socket);
    });
    for (const end of [socket, onward]) end.on("error", () => {});
    sockets.add(onward);
  });
  proxy.on("connection", (socket) => {
    clients.add(socket);
    socket.once("close", () => clients.delete(socket));
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  onTestFinished(async () => {
    for (const socket of [...clients, ...sockets]) socket.destroy();
    await new Promise((resolve) => proxy.close(resolve));
  });
  return {
    asked,
    credentials,
    openConnections: () => clients.size,
    port: (proxy.address() as AddressInfo).port,
  };
}

const NO_PROXIES = {
  http_proxy: undefined,
  HTTP_PROXY: undefined,
  https_proxy: undefined,
  HTTPS_PROXY: undefined,
  no_proxy: undefined,
  NO_PROXY: undefined,
};

describe("proxies from the environment", () => {
  it("forward plain HTTP, with the proxy's own credentials", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { json: { ok: true } });
    const proxy = await startProxy();
    environment({ ...NO_PROXIES, HTTP_PROXY: `http://user:p%40ss@127.0.0.1:${proxy.port}` });
    const client = clientForTest(server);
    for (let i = 0; i < 2; i += 1) expect((await client.exchange(REQUEST)).json()).toEqual({ ok: true });
    expect(proxy.asked).toEqual([`POST ${server.url}/api/v1/thing`, `POST ${server.url}/api/v1/thing`]);
    expect(proxy.credentials[0]).toBe(`Basic ${Buffer.from("user:p@ss").toString("base64")}`);
    expect(server.requests[0]?.headers["x-api-key"]).toBe("tml-test");
    await client.close();
    await vi.waitFor(() => expect(proxy.openConnections()).toBe(0));
  });

  it("tunnel HTTPS, HTTP/2 included", async () => {
    trustTestCertificate();
    const server = await serverForTest({ tls: "http2" });
    server.on(ROUTE, { json: { ok: true } });
    const proxy = await startProxy();
    environment({ ...NO_PROXIES, https_proxy: `http://127.0.0.1:${proxy.port}` });
    const client = clientForTest(server);
    expect((await client.exchange(REQUEST)).json()).toEqual({ ok: true });
    expect(proxy.asked).toEqual([`CONNECT ${new URL(server.url).host}`]);
    expect(server.requests[0]?.httpVersion).toBe("2.0");
    await client.close();
    await vi.waitFor(() => expect(server.openConnections()).toBe(0));
  });

  it("are left aside for the hosts of NO_PROXY", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { json: { ok: true } });
    const proxy = await startProxy();
    environment({
      ...NO_PROXIES,
      HTTP_PROXY: `http://127.0.0.1:${proxy.port}`,
      NO_PROXY: "example.com,127.0.0.1",
    });
    expect((await clientForTest(server).exchange(REQUEST)).json()).toEqual({ ok: true });
    expect(proxy.asked).toEqual([]);
  });

  it("that are down are a connection error that does not show their password", async () => {
    const server = await serverForTest();
    environment({ ...NO_PROXIES, HTTP_PROXY: "http://user:proxypassword@127.0.0.1:9" });
    const error = await clientForTest(server, { maxRetries: 0 })
      .exchange(REQUEST)
      .catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(APIConnectionError);
    expect(String(error)).not.toContain("proxypassword");
    expect(server.requests).toHaveLength(0);
  });
});
