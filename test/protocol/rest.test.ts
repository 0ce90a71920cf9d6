import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { NotFoundError, RestClient, type ServiceClient } from "../../src/index.js";
import { camelToSnake } from "../../src/wire/json-keys.js";
import { type ProtocolServer, startProtocolServer } from "../support/protocol-server.js";
import { type TestClient, testClient } from "./client.js";

const RUN = "session-1:train:0";
const PATH = `tinker://${RUN}/weights/step-1`;
const ROUTE = `/api/v1/training_runs/${RUN}/checkpoints/weights/step-1`;

describe("REST", () => {
  let server: ProtocolServer;
  let client: TestClient;
  let rest: RestClient;

  beforeEach(async () => {
    server = await startProtocolServer();
    client = testClient(server);
    rest = client.service.createRestClient();
  });
  afterEach(async () => {
    await client.service.close();
    await server.close();
  });
  const last = () => server.requests.at(-1)!;

  it("creates no session", async () => {
    await rest.getServerCapabilities();
    await client.service.getServerCapabilities();
    expect(server.requestsTo("POST /api/v1/create_session")).toEqual([]);
  });

  it("says which method asks, with the version", async () => {
    server.on("GET /api/v1/training_runs/*", {
      json: {
        training_run_id: RUN,
        base_model: "m",
        is_lora: true,
        lora_rank: 8,
        user_metadata: { my_key: "v" },
      },
    });
    expect(await rest.getTrainingRun(PATH)).toMatchObject({
      trainingRunId: RUN,
      loraRank: 8,
      userMetadata: { my_key: "v" },
    });
    expect(last().path).toBe(`/api/v1/training_runs/${RUN}`);
    expect(last().headers).toMatchObject({ "x-sdk-method": "get_training_run", "x-api-key": "tml-test" });
    expect(last().query.get("access_scope")).toBe("owned");
  });

  it.each<[string, string, (rest: RestClient) => unknown]>([
    ["GET /api/v1/get_server_capabilities", "supportedModels", (rest) => rest.getServerCapabilities()],
    ["GET /api/v1/training_runs", "trainingRuns", (rest) => rest.listTrainingRuns()],
    ["GET /api/v1/checkpoints", "checkpoints", (rest) => rest.listUserCheckpoints()],
    ["POST /api/v1/sessions/search", "sessions", (rest) => rest.searchSessions()],
    ["GET /api/v1/audit", "entries", (rest) => rest.getAuditLog()],
  ])("says that another kind of server answered %s", async (route, list, call) => {
    for (const json of [{}, [], null, { [camelToSnake(list)]: [null] }]) {
      server.on(route, { json });
      await expect(call(rest)).rejects.toThrow(
        `${route} answered without a list of ${list}. Check that TINKER_BASE_URL`,
      );
    }
  });

  it("gives lists as pages to await or to iterate over", async () => {
    const all = Array.from({ length: 5 }, (_, index) => ({ training_run_id: `run-${index}` }));
    server.on("GET /api/v1/training_runs", ({ query }) => {
      const offset = Number(query.get("offset"));
      const limit = Number(query.get("limit"));
      return {
        json: {
          training_runs: all.slice(offset, offset + limit),
          cursor: { offset, limit, total_count: all.length },
        },
      };
    });
    const page = await rest.listTrainingRuns({ limit: 2, projectId: "p-1" });
    expect(page.items.map((run) => run.trainingRunId)).toEqual(["run-0", "run-1"]);
    expect(page.totalCount).toBe(5);
    expect(page.hasNextPage()).toBe(true);
    expect((await page.nextPage()).items).toHaveLength(2);
    expect(last().query.get("project_id")).toBe("p-1");
    const seen: string[] = [];
    for await (const run of rest.listTrainingRuns({ limit: 2 })) seen.push(run.trainingRunId);
    expect(seen).toEqual(["run-0", "run-1", "run-2", "run-3", "run-4"]);
  });

  it("gives the response beside the answer, of calls and of lists", async () => {
    server.on("GET /api/v1/training_runs/*", { json: { training_run_id: RUN }, headers: { "x-a": "1" } });
    server.on("GET /api/v1/sessions", { json: { sessions: ["s-1"] }, headers: { "x-b": "2" } });
    const run = await rest.getTrainingRun(RUN).withResponse();
    expect([run.data.trainingRunId, run.response.headers.get("x-a")]).toEqual([RUN, "1"]);
    const list = await rest.listSessions().withResponse();
    expect([list.data.items, list.response.headers.get("x-b")]).toEqual([["s-1"], "2"]);
    const before = server.requests.length;
    const raw = await rest.listSessions().asResponse();
    expect(await raw.json()).toEqual({ sessions: ["s-1"] });
    expect(server.requests.length).toBe(before + 1);
    await rest.listSessions().finally(() => {});
    await expect(rest.listSessions({ limit: -1 })).rejects.toMatchObject({ field: "limit" });
  });

  it("pages through lists without a count until one is short", async () => {
    server.on("GET /api/v1/sessions", ({ query }) => ({
      json: {
        sessions: ["a", "b", "c"].slice(
          Number(query.get("offset")),
          Number(query.get("offset")) + Number(query.get("limit")),
        ),
      },
    }));
    const seen: string[] = [];
    for await (const id of rest.listSessions({ limit: 2 })) seen.push(id);
    expect(seen).toEqual(["a", "b", "c"]);
    expect(server.requestsTo("GET /api/v1/sessions")).toHaveLength(2);
  });

  it("manages checkpoints by their path", async () => {
    const routes: [string, () => Promise<unknown>, unknown?][] = [
      [`DELETE ${ROUTE}`, () => rest.deleteCheckpoint(PATH)],
      [`POST ${ROUTE}/publish`, () => rest.publishCheckpoint(PATH)],
      [`DELETE ${ROUTE}/publish`, () => rest.unpublishCheckpoint(PATH)],
      [`PUT ${ROUTE}/ttl`, () => rest.setCheckpointTtl(PATH, 7200), { ttl_seconds: 7200 }],
      [`PUT ${ROUTE}/ttl`, () => rest.setCheckpointTtl(PATH, null), { ttl_seconds: null }],
    ];
    for (const [route, call, body] of routes) {
      server.on(route, { status: 200, json: {} });
      await call();
      expect(`${last().method} ${last().path}`).toBe(route);
      if (body !== undefined) expect(last().json()).toEqual(body);
    }
    await expect(rest.setCheckpointTtl(PATH, -1)).rejects.toThrow(/ttlSeconds/);
    await expect(rest.deleteCheckpoint("tinker://bare")).rejects.toThrow(/tinker:\/\//);
  });

  it("lists checkpoints of a run and of the user", async () => {
    const checkpoint = {
      checkpoint_id: "weights/step-1",
      checkpoint_type: "training",
      time: "2026-01-01T00:00:00Z",
      tinker_path: PATH,
      public: false,
    };
    server.on(`GET /api/v1/training_runs/${RUN}/checkpoints`, { json: { checkpoints: [checkpoint] } });
    server.on("GET /api/v1/checkpoints", {
      json: { checkpoints: [checkpoint], cursor: { offset: 0, limit: 100, total_count: 1 } },
    });
    expect((await rest.listCheckpoints(RUN)).items[0]!.tinkerPath).toBe(PATH);
    expect((await rest.listUserCheckpoints()).items[0]!.checkpointType).toBe("training");
  });

  it("finds an archive in a body, behind a redirect, and after it was built", async () => {
    server.on(`GET ${ROUTE}/archive`, {
      json: { url: "https://store/a.tar.gz?sig=1", expires: "2026-01-01T01:00:00Z" },
    });
    expect(await rest.getCheckpointArchiveUrl(PATH)).toEqual({
      url: "https://store/a.tar.gz?sig=1",
      expires: "2026-01-01T01:00:00Z",
    });
    server.on(`GET ${ROUTE}/archive`, {
      status: 302,
      headers: { location: "https://store/b.tar.gz", expires: "Thu, 01 Jan 2026 02:00:00 GMT" },
    });
    expect(await rest.getCheckpointArchiveUrl(PATH)).toEqual({
      url: "https://store/b.tar.gz",
      expires: "2026-01-01T02:00:00.000Z",
    });
    const slept = client.clock.sleeps.length;
    server.on(`GET ${ROUTE}/archive`, [
      { status: 503 },
      { drop: "before" },
      { status: 503 },
      { json: { url: "u", expires: "e" } },
    ]);
    expect((await rest.getCheckpointArchiveUrl(PATH)).url).toBe("u");
    expect(client.clock.sleeps.slice(slept)).toEqual([30_000, 1_000, 30_000]);
    server.on(`GET ${ROUTE}/archive`, { status: 503 });
    await expect(rest.getCheckpointArchiveUrl(PATH)).rejects.toMatchObject({ status: 503 });
    expect(server.requestsTo(`GET ${ROUTE}/archive`)).toHaveLength(1 + 1 + 4 + 6);
  });

  it("asks about weights, samplers and sessions", async () => {
    server.on("POST /api/v1/weights_info", { json: { base_model: "m", is_lora: true, lora_rank: 4 } });
    server.on("GET /api/v1/samplers/*", { json: { sampler_id: "s", base_model: "m" } });
    server.on("GET /api/v1/sessions/*", { json: { training_run_ids: [RUN], sampler_ids: [] } });
    expect(await rest.getWeightsInfo(PATH)).toEqual({ baseModel: "m", isLora: true, loraRank: 4 });
    expect(await rest.getSampler("s:sample:0")).toMatchObject({ samplerId: "s" });
    expect(await rest.getSession("session-1", { accessScope: "accessible" })).toEqual({
      trainingRunIds: [RUN],
      samplerIds: [],
    });
    expect(last().query.get("access_scope")).toBe("accessible");
  });

  it("searches sessions by cursor", async () => {
    server.on("POST /api/v1/sessions/search", [
      {
        json: {
          sessions: [{ session_id: "a" }],
          next_cursor: { last_created_at: "2026-01-01T00:00:00Z", last_session_id: "a" },
        },
      },
      { json: { sessions: [{ session_id: "b" }], next_cursor: null } },
    ]);
    const found: string[] = [];
    for await (const session of rest.searchSessions({ displayName: "run", userMetadata: { my_key: "v" } }))
      found.push(session.sessionId);
    expect(found).toEqual(["a", "b"]);
    expect(last().json()).toMatchObject({
      display_name: "run",
      user_metadata: { my_key: "v" },
      cursor: { last_session_id: "a" },
    });
  });

  it("assigns projects, copies weights and waits for traces", async () => {
    server.on("PUT /api/v1/sessions/*/project", { json: {} });
    server.on("POST /api/v1/copy_weights", [
      { status: 500 },
      { json: { tinker_path: "tinker://new/weights/step-1" } },
    ]);
    server.on("GET /api/v1/sessions/*/trace_export", [
      { json: { status: "pending" } },
      { json: { status: "ready", url: "https://trace" } },
    ]);
    await rest.assignSessionProject("session-1", "project-1");
    expect(last().json()).toEqual({ project_id: "project-1" });
    await expect(rest.copyWeights(PATH)).rejects.toThrow(/destinationProjectId/);
    expect(await rest.copyWeights(PATH, { destinationProjectId: "p", ttlSeconds: 3600 })).toBe(
      "tinker://new/weights/step-1",
    );
    const copies = server.requestsTo("POST /api/v1/copy_weights");
    expect(copies[0]!.headers["x-idempotency-key"]).toBe(copies[1]!.headers["x-idempotency-key"]);
    expect(await rest.exportSessionTrace("session-1")).toBe("https://trace");
    server.on("GET /api/v1/sessions/*/trace_export", { json: { status: "failed", error: "too old" } });
    await expect(rest.exportSessionTrace("session-1")).rejects.toThrow(/too old/);
  });

  it("reads audit, billing and storage", async () => {
    server.on("GET /api/v1/audit", {
      json: { entries: [{ timestamp: "t", event: "checkpoint_read", event_details: { raw_key: 1 } }] },
    });
    server.on("GET /api/v1/billing/usage/events", {
      json: {
        data: [{ bucket_start: "a", bucket_end: "b", event_info: { type: "training", token_count: 5 } }],
        sessions: { session_1: { user_metadata: { raw_key: "x" } } },
      },
    });
    server.on("GET /api/v1/billing/usage/checkpoints/current", {
      json: { data: [{ checkpoint_count: 1, size_bytes: 2, size_gigabytes: 0.1 }] },
    });
    expect(
      (await rest.getAuditLog({ day: new Date("2026-02-03T10:00:00Z"), eventType: "checkpoints" }))
        .entries[0],
    ).toEqual({ timestamp: "t", event: "checkpoint_read", eventDetails: { raw_key: 1 } });
    expect(last().query.get("day")).toBe("2026-02-03");
    const usage = await rest.getBillingUsage({
      startingOn: "2026-01-01T00:00:00Z",
      endingBefore: new Date("2026-01-02T00:00:00Z"),
    });
    expect(usage.data[0]!.eventInfo).toEqual({ type: "training", tokenCount: 5 });
    expect(usage.sessions).toEqual({ session_1: { userMetadata: { raw_key: "x" } } });
    await expect(async () =>
      rest.getBillingUsage({ startingOn: "2026-01-01T00:30:00Z", endingBefore: "2026-01-02T00:00:00Z" }),
    ).rejects.toThrow(/startingOn/);
    expect((await rest.getCurrentCheckpointStorageUsage()).data[0]!.sizeBytes).toBe(2);
  });

  it("says who we are from the token", async () => {
    await expect(rest.whoami()).rejects.toThrow(/plain API keys/);
    const claims = Buffer.from(
      JSON.stringify({ sub: "tml:user:1", org_id: "o", email: "a@b.c", exp: 4e9 }),
    ).toString("base64url");
    server.on("POST /api/v1/client/config", { json: { pjwt_auth_enabled: true } });
    server.on("POST /api/v1/auth/token", { json: { jwt: `eyJhbGciOiJub25lIn0.${claims}.` } });
    await using withTokens = new RestClient({ baseURL: server.url, apiKey: "tml-test" });
    expect(await withTokens.whoami()).toEqual({
      userUrn: "tml:user:1",
      orgUrn: "tml:organization:o",
      email: "a@b.c",
    });
  });

  it("reaches endpoints it does not know, with the response itself if wanted", async () => {
    server.on("POST /api/v1/brand_new", { status: 201, json: { raw_key: 1 }, headers: { "x-extra": "yes" } });
    const service: ServiceClient = client.service;
    expect(await service.post("/api/v1/brand_new", { body: { a: 1 } })).toEqual({ raw_key: 1 });
    expect(last().json()).toEqual({ a: 1 });
    const { data, response } = await service.post("/api/v1/brand_new", { body: { a: 1 } }).withResponse();
    expect([data, response.status, response.headers.get("x-extra")]).toEqual([{ raw_key: 1 }, 201, "yes"]);
    const form = new FormData();
    form.set("file", new Blob(["hello"]), "a.txt");
    const raw = await service.post("/api/v1/brand_new", { body: form }).asResponse();
    expect(await raw.text()).toBe('{"raw_key":1}');
    expect(last().headers["content-type"]).toContain("multipart/form-data");
    await expect(service.get("/api/v1/nowhere")).rejects.toBeInstanceOf(NotFoundError);
  });

  it("cannot be used after it was closed", async () => {
    await client.service.close();
    expect(() => client.service.createRestClient()).toThrow(/closed/);
    await expect(client.service.createLoraTrainingClient({ baseModel: "m" })).rejects.toThrow(/closed/);
  });
});
