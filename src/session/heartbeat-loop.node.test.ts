import { createServer, request as forward } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type ProtocolServer, startProtocolServer } from "../../test/support/protocol-server.js";
import { HttpClient, type HttpClientOptions } from "../transport/index.js";
import type { Beat, HeartbeatLoop } from "./heartbeat-loop.js";
import { startHeartbeat } from "./heartbeat-loop.node.js";

/** With time enough for a busy machine. */
const eventually = (check: () => unknown) => vi.waitFor(check);
const ROUTE = "POST /api/v1/session_heartbeat";

let server: ProtocolServer;
let http: HttpClient;
let loop: HeartbeatLoop | undefined;
let beats: Beat[];

beforeEach(async () => {
  server = await startProtocolServer();
  beats = [];
});

afterEach(async () => {
  await loop?.stop();
  loop = undefined;
  await http.close();
  await server.close();
  vi.unstubAllEnvs();
});

async function start(options: HttpClientOptions & { timeoutMs?: number } = {}): Promise<void> {
  const { timeoutMs, ...httpOptions } = options;
  http = new HttpClient({ baseURL: server.url, apiKey: "tml-key", logLevel: "off", ...httpOptions });
  loop = await startHeartbeat({
    http,
    sessionId: "session-1",
    onBeat: (beat) => beats.push(beat),
    intervalMs: 20,
    ...(timeoutMs !== undefined && { timeoutMs }),
  });
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const received = () => server.requestsTo(ROUTE);
// Lists of active resources leave out what is unref'ed; the process report does not.
const workerCount = () => (process.report.getReport() as unknown as { workers: unknown[] }).workers.length;

describe("heartbeat from a thread", () => {
  it("sends what the main thread would send, each beat with its own idempotency key", async () => {
    await start({ defaultHeaders: { "X-Mine": "yes" } });
    await eventually(() => expect(beats.length).toBeGreaterThanOrEqual(3));
    const requests = received();
    expect(requests[0]?.json()).toEqual({ session_id: "session-1", type: "session_heartbeat" });
    expect(requests[0]?.headers).toMatchObject({
      "x-api-key": "tml-key",
      "x-mine": "yes",
      "content-type": "application/json",
      "x-stainless-lang": "js",
    });
    expect(new Set(requests.map((request) => request.headers["x-idempotency-key"])).size).toBe(
      requests.length,
    );
    expect(beats[0]).toMatchObject({ status: 200, failedForMs: 0 });
  });

  it("carries a renewed credential from the beat after the next", async () => {
    await start();
    let token = "eyJfirst";
    http.auth = { token: async () => token };
    await eventually(() => expect(received().at(-1)?.headers["x-api-key"]).toBe("eyJfirst"));
    token = "eyJsecond";
    const before = received().length;
    await eventually(() => expect(received().at(-1)?.headers["x-api-key"]).toBe("eyJsecond"));
    expect(
      received()
        .slice(before)
        .filter((request) => request.headers["x-api-key"] === "eyJfirst").length,
    ).toBeLessThanOrEqual(2);
  });

  it("keeps the last credential while a new one cannot be had", async () => {
    await start();
    http.auth = { token: () => Promise.reject(new Error("the credential command failed")) };
    const before = received().length;
    await eventually(() => expect(received().length).toBeGreaterThan(before + 3));
    expect(received().every((request) => request.headers["x-api-key"] === "tml-key")).toBe(true);
  });

  it("reports requests to their observer", async () => {
    await start();
    const events: Array<{ path: string; status: number | null; pool: string }> = [];
    http.hooks.push({ afterExchange: ({ path, status, pool }) => events.push({ path, status, pool }) });
    await eventually(() =>
      expect(events[0]).toEqual({ path: "/api/v1/session_heartbeat", status: 200, pool: "session" }),
    );
  });

  it("reports failures of each kind and for how long, and recovers", async () => {
    server.on(ROUTE, [{ status: 503, text: "down" }, { drop: "before" }, { json: {} }]);
    await start();
    await eventually(() => expect(beats.length).toBeGreaterThanOrEqual(3));
    expect(beats.slice(0, 3).map((beat) => beat.status)).toEqual([503, null, 200]);
    expect(beats[0]?.reason).toBe("status 503: down");
    const failed = beats.slice(0, 3).map((beat) => beat.failedForMs);
    expect(failed[0]).toBeGreaterThan(0);
    expect(failed[1]).toBeGreaterThan(failed[0]!);
    expect(failed[2]).toBe(0);
  });

  it("gives up a beat without an answer, and recovers", async () => {
    server.on(ROUTE, [{ delayMs: Number.POSITIVE_INFINITY }, { json: {} }]);
    await start({ timeoutMs: 500 });
    await eventually(() => expect(beats[0]).toMatchObject({ status: null }));
    expect(beats[0]?.reason).toMatch(/timeout/i);
    expect(beats[0]?.failedForMs).toBeGreaterThan(450);
    await eventually(() => expect(beats.at(-1)).toMatchObject({ status: 200, failedForMs: 0 }));
  });

  it("ends at 410, thread included", async () => {
    const before = workerCount();
    let end: (answer: { status: number }) => void = () => {};
    server.on(ROUTE, () => new Promise((resolve) => (end = resolve)));
    await start();
    await eventually(() => expect(received()).toHaveLength(1));
    expect(workerCount()).toBe(before + 1);
    end({ status: 410 });
    await eventually(() => expect(beats.map((beat) => beat.status)).toEqual([410]));
    await eventually(() => expect(workerCount()).toBe(before));
    await pause(100);
    expect(received()).toHaveLength(1);
  });

  it("leaves no thread when stopped, also in the middle of a beat", async () => {
    const before = workerCount();
    server.on(ROUTE, { delayMs: Number.POSITIVE_INFINITY });
    await start();
    await eventually(() => expect(received()).toHaveLength(1));
    expect(workerCount()).toBe(before + 1);
    await loop?.stop();
    expect(workerCount()).toBe(before);
    await pause(60);
    expect(received()).toHaveLength(1);
    expect(beats).toHaveLength(0);
    await eventually(() => expect(server.openConnections()).toBe(0));
  });

  it("leaves redirects to the HttpClient, which keeps the key from other hosts", async () => {
    const elsewhere = await startProtocolServer();
    try {
      const keys: unknown[] = [];
      elsewhere.on("POST /moved", ({ headers }) => {
        keys.push(headers["x-api-key"]);
        return { json: {} };
      });
      server.on(ROUTE, { status: 308, headers: { location: `${elsewhere.url}/moved` } });
      await start();
      await eventually(() => expect(beats[0]?.status).toBe(200));
      expect(new Set(keys)).toEqual(new Set([undefined]));
    } finally {
      await loop?.stop();
      await elsewhere.close();
    }
  });

  it("goes through the proxy of the environment", async () => {
    const seen: string[] = [];
    const proxy = createServer((incoming, outgoing) => {
      seen.push(`${incoming.method} ${incoming.url}`);
      const { method, headers } = incoming;
      incoming.pipe(
        forward(incoming.url ?? "", { method, headers }, (answer) => {
          outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
          answer.pipe(outgoing);
        }),
      );
    });
    await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
    vi.stubEnv("HTTP_PROXY", `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`);
    try {
      await start();
      await eventually(() => expect(beats[0]?.status).toBe(200));
      expect(seen[0]).toBe(`POST ${server.url}/api/v1/session_heartbeat`);
    } finally {
      await loop?.stop();
      proxy.closeAllConnections();
      await new Promise((resolve) => proxy.close(resolve));
    }
  });
});

describe("heartbeat without a thread", () => {
  it("sends through an injected fetch, which must see every request", async () => {
    const customFetch = vi.fn<typeof fetch>(async () => Response.json({}));
    const before = workerCount();
    await start({ fetch: customFetch });
    await eventually(() => expect(customFetch.mock.calls.length).toBeGreaterThanOrEqual(2));
    expect(workerCount()).toBe(before);
    expect(received()).toHaveLength(0);
  });

  it.each(["cannot be started", "dies"])("goes on from a timer when the thread %s", async (how) => {
    vi.resetModules();
    vi.doMock("node:worker_threads", async () => {
      const { EventEmitter } = await import("node:events");
      class BrokenWorker extends EventEmitter {
        constructor() {
          super();
          if (how === "cannot be started") throw new Error("no threads here");
          setTimeout(() => {
            this.emit("error", new Error("out of memory"));
            this.emit("exit", 1);
          }, 5);
        }
        unref() {}
        async terminate() {}
      }
      return { Worker: BrokenWorker };
    });
    try {
      const transport = await import("../transport/index.js");
      const broken = await import("./heartbeat-loop.node.js");
      http = new transport.HttpClient({ baseURL: server.url, apiKey: "tml-key", logLevel: "off" });
      loop = await broken.startHeartbeat({
        http,
        sessionId: "session-1",
        onBeat: (beat) => beats.push(beat),
        intervalMs: 20,
      });
      await eventually(() => expect(beats.length).toBeGreaterThanOrEqual(2));
      expect(beats[0]?.status).toBe(200);
      await loop.stop();
      await pause(60);
      const count = received().length;
      await pause(60);
      expect(received().length).toBe(count);
    } finally {
      vi.doUnmock("node:worker_threads");
      vi.resetModules();
    }
  });
});
