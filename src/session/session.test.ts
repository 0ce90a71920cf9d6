import { describe, expect, it, vi } from "vitest";
import { FakeClock } from "../../test/support/fake-clock.js";
import { HttpClient, type HttpClientOptions, jwtClaims } from "../transport/index.js";
import { DEFAULT_CLIENT_CONFIG, DEFAULT_CLIENT_DYNAMIC_CONFIG } from "../wire/index.js";
import { Session } from "./session.js";

interface Sent {
  route: string;
  key: string | null;
  json: Record<string, unknown>;
}

type Route = (request: Sent) => Response | Promise<Response>;

const answer = (status: number, json: unknown = {}) => Response.json(json, { status });

function jwtExpiringAt(wallMs: number, name: string): string {
  const encode = (value: unknown) => btoa(JSON.stringify(value)).replaceAll("=", "");
  return `${encode({ alg: "none" })}.${encode({ exp: Math.floor(wallMs / 1000), name })}.sig`;
}

/** A server as a function: what it does not script, it answers like a server with everything switched off. */
function setUp(routes: Record<string, Route> = {}, options: HttpClientOptions = {}) {
  const clock = new FakeClock();
  const sent: Sent[] = [];
  const logs: string[] = [];
  const line = (level: string) => (message: string) => void logs.push(`${level}: ${message}`);
  const fetchStub: typeof fetch = async (input, init) => {
    const url = new URL(input as string);
    const body = init?.body as Uint8Array | undefined;
    const request: Sent = {
      route: `${init?.method} ${url.pathname}`,
      key: new Headers(init?.headers).get("x-api-key"),
      json: body === undefined ? {} : JSON.parse(new TextDecoder().decode(body)),
    };
    sent.push(request);
    const route = routes[request.route];
    if (route !== undefined) return route(request);
    if (request.route === "POST /api/v1/create_session") return answer(200, { session_id: "session-1" });
    return request.route.includes("config") ? answer(404) : answer(200);
  };
  const http = new HttpClient({
    baseURL: "http://server.test",
    apiKey: "tml-key",
    fetch: fetchStub,
    clock,
    random: () => 0.5,
    logLevel: "info",
    logger: { error: line("error"), warn: line("warn"), info: line("info"), debug: line("debug") },
    ...options,
  });
  const routesSent = () => sent.map((request) => request.route);
  return { http, clock, sent, routesSent, logs };
}

const heartbeats = (routes: string[]) => routes.filter((route) => route.endsWith("session_heartbeat")).length;

describe("opening a session", () => {
  it("waits out a billing pause, and a page that some proxy answers in the server's place", async () => {
    const page = () => new Response("<html></html>", { headers: { "content-type": "text/html" } });
    const unpaid = () => answer(402, { detail: "no credit" });
    const scripts: Record<string, (() => Response)[]> = {
      "POST /api/v1/client/config": [unpaid, page, () => answer(404)],
      "POST /api/v1/create_session": [page, unpaid, () => answer(200, { session_id: "paid" })],
    };
    const routes = Object.fromEntries(
      Object.entries(scripts).map(([route, script]) => [route, () => script.shift()!()]),
    );
    const { http, logs } = setUp(routes, { clock: new FakeClock({ auto: true }) });
    const session = await Session.open(http);
    expect(session.id).toBe("paid");
    expect(logs.filter((line) => line.startsWith("warn: Paused because"))).toHaveLength(2);
    await session.close();
  });

  it("asks for settings, gets a JWT, asks for changeable settings, creates the session, then beats", async () => {
    const jwt = jwtExpiringAt(Date.UTC(2026, 0, 2), "first");
    const { http, clock, sent, routesSent } = setUp({
      "POST /api/v1/client/config": () => answer(200, { pjwt_auth_enabled: true }),
      "POST /api/v1/auth/token": () => answer(200, { jwt }),
      "POST /api/v1/client/dynamic_config": () => answer(200, { sample_cancel_enabled: true }),
    });
    const session = await Session.open(http);
    await clock.advance(10_000);
    expect(routesSent()).toEqual([
      "POST /api/v1/client/config",
      "POST /api/v1/auth/token",
      "POST /api/v1/client/dynamic_config",
      "POST /api/v1/create_session",
      "POST /api/v1/session_heartbeat",
    ]);
    expect(sent.map((request) => request.key)).toEqual(["tml-key", "tml-key", jwt, jwt, jwt]);
    expect(sent[0]?.json).toEqual({ sdk_version: "0.36.0" });
    expect(sent[2]?.json).toEqual({ sdk_version: "0.36.0" });
    expect(sent[3]?.json).toMatchObject({ sdk_version: "0.36.0", type: "create_session" });
    expect(session.id).toBe("session-1");
    expect(session.config.pjwtAuthEnabled).toBe(true);
    expect(session.dynamicConfig.sampleCancelEnabled).toBe(true);
    await session.close();
  });

  it("works at a server that has neither kind of settings", async () => {
    const { http, routesSent } = setUp();
    const session = await Session.open(http);
    expect(session.config).toEqual(DEFAULT_CLIENT_CONFIG);
    expect(session.dynamicConfig).toEqual(DEFAULT_CLIENT_DYNAMIC_CONFIG);
    expect(routesSent()).not.toContain("POST /api/v1/auth/token");
    await session.close();
  });

  it("sends tags, metadata, project and name, given or from the environment, and the metadata untouched", async () => {
    vi.stubEnv("TINKER_TAGS", "nightly, rl,,nightly");
    vi.stubEnv("TINKER_PROJECT_ID", "project-from-env");
    try {
      const { http, sent } = setUp();
      const userMetadata = { runName: "a", nested_thing: { camelKey: 1 } };
      const session = await Session.open(http, { tags: ["rl", "mine"], userMetadata, displayName: "Try 3" });
      expect(sent.at(-1)?.json).toEqual({
        tags: ["nightly", "rl", "mine"],
        user_metadata: userMetadata,
        sdk_version: "0.36.0",
        project_id: "project-from-env",
        display_name: "Try 3",
        type: "create_session",
      });
      await session.close();

      const other = setUp();
      await (await Session.open(other.http, { projectId: "given" })).close();
      const created = other.sent.find((request) => request.route.endsWith("create_session"));
      expect(created?.json["project_id"]).toBe("given");
    } finally {
      vi.unstubAllEnvs();
    }
  });

  it("logs what the server says, each at its level", async () => {
    const { http, logs } = setUp({
      "POST /api/v1/create_session": () =>
        answer(200, {
          session_id: "session-1",
          info_message: "welcome",
          warning_message: "upgrade soon",
          error_message: "billing is late",
        }),
    });
    const session = await Session.open(http);
    expect(logs).toEqual(["info: welcome", "warn: upgrade soon", "error: billing is late"]);
    await session.close();
  });

  it("says what to check when the answer has no session id", async () => {
    const { http } = setUp({ "POST /api/v1/create_session": () => answer(200, { hello: 1 }) });
    await expect(Session.open(http)).rejects.toThrow(/id of a session.*baseURL/);
  });

  it("leaves nothing behind when it fails, wherever it fails", async () => {
    const jwt = jwtExpiringAt(Date.UTC(2026, 0, 2), "first");
    const working: Record<string, Route> = {
      "POST /api/v1/client/config": () => answer(200, { pjwt_auth_enabled: true }),
      "POST /api/v1/auth/token": () => answer(200, { jwt }),
      "POST /api/v1/client/dynamic_config": () => answer(200, {}),
      "POST /api/v1/create_session": () => answer(200, { session_id: "session-1" }),
    };
    for (const route of Object.keys(working)) {
      const { http, clock } = setUp({ ...working, [route]: () => answer(403, { detail: "no" }) });
      const credential = http.auth;
      await expect(Session.open(http)).rejects.toMatchObject({ status: 403 });
      expect(http.hooks).toHaveLength(0);
      expect(http.auth).toBe(credential);
      expect(clock.pending).toBe(0);
    }
  });

  it("uses the credential command when the server asks for it, in place of a plain key", async () => {
    vi.stubEnv("TINKER_CREDENTIAL_CMD", "echo credential-from-command");
    try {
      const jwt = jwtExpiringAt(Date.UTC(2026, 0, 2), "first");
      const { http, sent } = setUp({
        "POST /api/v1/client/config": () =>
          answer(200, { pjwt_auth_enabled: true, credential_default_source: "credential_cmd" }),
        "POST /api/v1/auth/token": () => answer(200, { jwt }),
      });
      const session = await Session.open(http);
      expect(sent.slice(0, 3).map((request) => request.key)).toEqual([
        "tml-key",
        "credential-from-command",
        jwt,
      ]);
      await session.close();
    } finally {
      vi.unstubAllEnvs();
    }
  });
});

describe("an open session", () => {
  it("beats every 10 s and carries each new JWT", async () => {
    const { http, clock, sent } = setUp({
      "POST /api/v1/client/config": () => answer(200, { pjwt_auth_enabled: true }),
      "POST /api/v1/auth/token": () =>
        answer(200, { jwt: jwtExpiringAt(clock.wallNow() + 900_000, `at ${clock.now()}`) }),
    });
    const session = await Session.open(http);
    await clock.advance(620_000);
    const beats = sent.filter((request) => request.route.endsWith("session_heartbeat"));
    expect(beats).toHaveLength(62);
    expect(jwtClaims(beats[0]?.key ?? "")["name"]).toBe("at 0");
    expect(jwtClaims(beats.at(-1)?.key ?? "")["name"]).toBe("at 600000");
    await session.close();
  });

  it("warns once when the heartbeat has failed for 120 s, and again only after it has worked in between", async () => {
    let healthy = false;
    const { http, clock, logs } = setUp({
      "POST /api/v1/session_heartbeat": () => (healthy ? answer(200) : answer(503, { detail: "down" })),
    });
    const session = await Session.open(http);
    await clock.advance(119_999);
    expect(logs).toEqual([]);
    await clock.advance(1);
    expect(logs).toEqual([
      expect.stringMatching(/^warn: the heartbeat of session session-1 has failed for 120 s.*503/),
    ]);
    await clock.advance(600_000);
    expect(logs).toHaveLength(1);
    healthy = true;
    await clock.advance(10_000);
    healthy = false;
    await clock.advance(110_000);
    expect(logs).toHaveLength(1);
    await clock.advance(10_000);
    expect(logs).toHaveLength(2);
    await session.close();
  });

  it("stops beating at 410, logs it once, calls its observer, and does not finish a finished session", async () => {
    const { http, clock, logs, routesSent } = setUp({
      "POST /api/v1/session_heartbeat": () => answer(410, { detail: "gone" }),
    });
    const session = await Session.open(http);
    const lost = vi.fn();
    const unsubscribed = vi.fn();
    session.onLost(lost);
    session.onLost(unsubscribed)();
    expect(session.finished).toBe(false);
    await clock.advance(100_000);
    expect(heartbeats(routesSent())).toBe(1);
    expect(session.finished).toBe(true);
    expect(lost).toHaveBeenCalledTimes(1);
    expect(unsubscribed).not.toHaveBeenCalled();
    expect(logs).toEqual([expect.stringMatching(/^warn: session session-1 has finished/)]);
    await session.close();
    expect(routesSent().some((route) => route.endsWith("/finish"))).toBe(false);
  });

  it("picks up changed settings in the background", async () => {
    let batchSize = 1;
    const { http, clock } = setUp({
      "POST /api/v1/client/dynamic_config": () =>
        answer(200, { refresh_interval_sec: 30, sample_cancel_max_batch_size: batchSize }),
    });
    const session = await Session.open(http);
    batchSize = 2;
    expect(session.dynamicConfig.sampleCancelMaxBatchSize).toBe(1);
    await clock.advance(30_000);
    expect(session.dynamicConfig.sampleCancelMaxBatchSize).toBe(2);
    await session.close();
  });

  it("counts its own sequence numbers from 0, models and samplers apart", async () => {
    const { http } = setUp();
    const session = await Session.open(http);
    expect([session.nextModelSeqId(), session.nextModelSeqId(), session.nextSamplingSessionSeqId()]).toEqual([
      0, 1, 0,
    ]);
    await session.close();
  });

  it("measures every attempt of every request, the first one included", async () => {
    let failures = 2;
    const { http, clock } = setUp({
      "POST /api/v1/weights_info": () => (failures-- > 0 ? answer(503) : answer(200, { ok: true })),
    });
    const session = await Session.open(http);
    const pending = http.post("/api/v1/weights_info", { body: {} });
    await clock.advance(10_000);
    await pending;
    const { counters, histograms } = session.metrics.snapshot();
    expect(counters).toMatchObject({
      "requests.status.503": 2,
      "requests.retries": 2,
      "requests.status.404": 2,
      "requests.pool.session": 4,
    });
    expect(histograms["durationMs.POST /api/v1/client/config"]?.count).toBe(1);
    expect(histograms["durationMs.POST /api/v1/weights_info"]?.count).toBe(3);
    await session.close();
  });
});

describe("closing a session", () => {
  it("reports the reason, and leaves no timer and no hook", async () => {
    const { http, clock, sent } = setUp();
    const session = await Session.open(http);
    const credential = http.auth;
    await Promise.all([session.close("errored", "the loss is NaN"), session.close()]);
    const finishes = sent.filter((request) => request.route === "POST /api/v1/sessions/session-1/finish");
    expect(finishes.map((request) => request.json)).toEqual([
      { reason: { type: "errored" }, detail: "the loss is NaN" },
    ]);
    expect(session.finished).toBe(true);
    expect(clock.pending).toBe(0);
    expect(http.hooks).toHaveLength(0);
    expect(http.auth).toBe(credential);
    const count = sent.length;
    await clock.advance(1_000_000);
    expect(sent).toHaveLength(count);
    await expect(http.get("/api/v1/healthz")).rejects.toThrow("closed");
  });

  it("is what `await using` does", async () => {
    const { http, sent } = setUp();
    {
      await using session = await Session.open(http);
      expect(session.id).toBe("session-1");
    }
    expect(sent.at(-1)?.json).toEqual({ reason: { type: "success" } });
  });

  it.each([404, 409, 410])("takes a %d to the finish for no trouble", async (status) => {
    const { http, logs } = setUp(
      { "POST /api/v1/sessions/session-1/finish": () => answer(status) },
      { maxRetries: 0 },
    );
    const session = await Session.open(http);
    const closing = session.close();
    await drive(http, closing);
    expect(logs.filter((entry) => entry.startsWith("warn"))).toEqual([]);
  });

  it("does not fail, hang or stay silent when the server is gone", async () => {
    const { http, clock, logs } = setUp({
      "POST /api/v1/sessions/session-1/finish": () => Promise.reject(new TypeError("fetch failed")),
    });
    const session = await Session.open(http);
    await drive(http, session.close());
    expect(
      logs.some((entry) => entry.startsWith("warn: telling the server that session session-1 ended")),
    ).toBe(true);
    expect(clock.now()).toBeLessThan(60_000);
    expect(clock.pending).toBe(0);
  });

  it("sends the telemetry that is left, session start and end included", async () => {
    vi.stubEnv("TINKER_TELEMETRY", "1");
    try {
      const { http, sent } = setUp();
      const session = await Session.open(http);
      session.telemetry.log("step", { config: { apiKey: "tml-key" } });
      await session.close();
      const batches = sent.filter((request) => request.route === "POST /api/v1/telemetry");
      expect(batches).toHaveLength(1);
      const batch = batches[0]?.json as { session_id: string; events: Array<{ event: string }> };
      expect(batch.session_id).toBe("session-1");
      expect(batch.events.map((event) => event.event)).toEqual([
        "SESSION_START",
        "GENERIC_EVENT",
        "SESSION_END",
      ]);
      expect(JSON.stringify(batch)).not.toContain("tml-key");
    } finally {
      vi.unstubAllEnvs();
    }
  });

  it("sends no telemetry where TINKER_TELEMETRY is off", async () => {
    vi.stubEnv("TINKER_TELEMETRY", "off");
    try {
      const { http, routesSent } = setUp();
      const session = await Session.open(http);
      session.telemetry.logException(new Error("x"));
      await session.close();
      expect(routesSent()).not.toContain("POST /api/v1/telemetry");
    } finally {
      vi.unstubAllEnvs();
    }
  });
});

describe("clients without a session of their own", () => {
  it("connect: settings and credential, nothing else, and nothing to finish", async () => {
    const jwt = jwtExpiringAt(Date.UTC(2026, 0, 2), "first");
    const { http, clock, routesSent } = setUp({
      "POST /api/v1/client/config": () => answer(200, { pjwt_auth_enabled: true }),
      "POST /api/v1/auth/token": () => answer(200, { jwt }),
    });
    const session = await Session.connect(http);
    expect(session.id).toBeUndefined();
    expect(() => session.nextModelSeqId()).toThrow("no session");
    await clock.advance(100_000);
    await session.close();
    expect(routesSent()).toEqual(["POST /api/v1/client/config", "POST /api/v1/auth/token"]);
    expect(clock.pending).toBe(0);
  });

  it("attach: sends nothing of its own but refreshed settings, neither beats nor finishes", async () => {
    const { http, clock, routesSent } = setUp();
    const session = await Session.attach(http, {
      sessionId: "session-9",
      config: { ...DEFAULT_CLIENT_CONFIG, fwdbwdMaxChunkLen: 3 },
      dynamicConfig: DEFAULT_CLIENT_DYNAMIC_CONFIG,
    });
    expect(routesSent()).toEqual([]);
    expect(session.id).toBe("session-9");
    expect(session.config.fwdbwdMaxChunkLen).toBe(3);
    expect(() => session.nextSamplingSessionSeqId()).toThrow("session-9");
    await clock.advance(300_000);
    await session.close();
    expect(routesSent()).toEqual(["POST /api/v1/client/dynamic_config"]);
    expect(clock.pending).toBe(0);
  });

  it("attach: exchanges its own credential with the first request", async () => {
    const jwt = jwtExpiringAt(Date.UTC(2026, 0, 2), "first");
    const { http, sent } = setUp({ "POST /api/v1/auth/token": () => answer(200, { jwt }) });
    const session = await Session.attach(http, {
      sessionId: "session-9",
      config: { ...DEFAULT_CLIENT_CONFIG, pjwtAuthEnabled: true },
      dynamicConfig: DEFAULT_CLIENT_DYNAMIC_CONFIG,
    });
    await http.get("/api/v1/healthz");
    expect(sent.map((request) => [request.route, request.key])).toEqual([
      ["POST /api/v1/auth/token", "tml-key"],
      ["GET /api/v1/healthz", jwt],
    ]);
    await session.close();
  });
});

/** Lets the fake clock run until the promise settles. */
async function drive(http: HttpClient, promise: Promise<unknown>): Promise<void> {
  let settled = false;
  void promise.finally(() => {
    settled = true;
  });
  const clock = http.clock as FakeClock;
  while (!settled && (await clock.advanceToNext()));
  await promise;
}
