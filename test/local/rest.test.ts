import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readlinkSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { LocalBackend } from "../../src/local/index.js";
import { FakeClock } from "../support/fake-clock.js";
import { type FakeEngine, fakeModel } from "./fake-engine.js";
import { type Json, passBody, type RawClient, sampleBody, startFake, stepBody } from "./raw-client.js";

let backend: LocalBackend;
let client: RawClient;
let engine: FakeEngine;
let clock: FakeClock;
let sessionId: string;
let modelId: string;
let nextSeqId: number;

beforeEach(async () => {
  clock = new FakeClock({ startWallMs: Date.UTC(2026, 2, 1, 10, 30) });
  ({ backend, client, engine } = await startFake({ clock, sessionTimeoutMs: 100 * 3_600_000 }));
  ({ sessionId, modelId } = await client.openModel());
  nextSeqId = 1;
});
afterEach(() => backend.close());

async function save(name: string | undefined, fields: Json = {}, route = "/save_weights"): Promise<Json> {
  const body = {
    model_id: modelId,
    seq_id: nextSeqId++,
    ...(name === undefined ? {} : { path: name }),
    ...fields,
  };
  return client.result(client.ok(route, body));
}

function targetOf(link: string): string {
  try {
    return readlinkSync(link);
  } catch {
    return "";
  }
}

const names = async () =>
  ((await client.get(`/training_runs/${modelId}/checkpoints`)).body["checkpoints"] as Json[]).map(
    (checkpoint) => checkpoint["checkpoint_id"],
  );

describe("checkpoints", () => {
  it("are saved in three kinds and listed newest first", async () => {
    expect(await save("a", { user_metadata: { note: "x" } })).toEqual({
      type: "save_weights",
      path: `tinker://${modelId}/weights/a`,
    });
    await clock.advance(1000);
    expect(await save("a", {}, "/save_weights_for_sampler")).toMatchObject({
      path: `tinker://${modelId}/sampler_weights/a`,
    });
    await clock.advance(1000);
    const external = await save("a", {}, "/save_weights_external");
    expect(external).toMatchObject({ path: `tinker://${modelId}/external_weights/a` });
    const { checkpoints } = (await client.get(`/training_runs/${modelId}/checkpoints`)).body as {
      checkpoints: Json[];
    };
    expect(checkpoints).toMatchObject([
      {
        checkpoint_id: "external_weights/a",
        checkpoint_type: "external",
        size_bytes: external["size_bytes"],
      },
      { checkpoint_id: "sampler_weights/a", checkpoint_type: "sampler" },
      {
        checkpoint_id: "weights/a",
        checkpoint_type: "training",
        time: "2026-03-01T10:30:00.000Z",
        public: false,
        expires_at: null,
        user_metadata: { note: "x" },
      },
    ]);
    const { body } = await client.get("/checkpoints?limit=2&offset=1");
    expect(body["checkpoints"]).toHaveLength(2);
    expect(body["cursor"]).toEqual({ offset: 1, limit: 2, total_count: 3 });
  });

  it("without a name get one", async () => {
    expect(await save(undefined)).toMatchObject({ path: expect.stringMatching(/weights\/step-000001$/) });
  });

  it("under a name that is taken are a 409, the number free again; overwrite replaces", async () => {
    await save("a");
    const taken = await client.post("/save_weights", { model_id: modelId, seq_id: nextSeqId, path: "a" });
    expect([taken.status, taken.headers.get("x-should-retry")]).toEqual([409, "false"]);
    const [first] = (await client.get("/checkpoints")).body["checkpoints"] as Json[];
    await clock.advance(1000);
    await save("a", { overwrite: true });
    const [second] = (await client.get("/checkpoints")).body["checkpoints"] as Json[];
    expect(second?.["time"]).not.toBe(first?.["time"]);
  });

  it("saved twice under one name while the first still waits fail as the user's error", async () => {
    const one = await client.ok("/save_weights", { model_id: modelId, seq_id: 2, path: "a" });
    const two = await client.ok("/save_weights", { model_id: modelId, seq_id: 3, path: "a" });
    await client.ok("/optim_step", stepBody(modelId, 1));
    expect(await client.result(one)).toMatchObject({ type: "save_weights" });
    expect(await client.result(two)).toMatchObject({
      category: "user",
      error: expect.stringContaining("exists already"),
    });
  });

  it("are deleted, and only by their typed id", async () => {
    await save("a");
    const bare = await client.call("DELETE", `/training_runs/${modelId}/checkpoints/a`);
    expect([bare.status, bare.body["detail"]]).toEqual([400, expect.stringContaining("weights/<name>")]);
    expect((await client.call("DELETE", `/training_runs/${modelId}/checkpoints/nope/a`)).status).toBe(400);
    const remove = () =>
      client.call("DELETE", `/training_runs/${encodeURIComponent(modelId)}/checkpoints/weights/a`);
    expect((await remove()).status).toBe(204);
    expect((await remove()).status).toBe(404);
    expect(await names()).toEqual([]);
  });

  it("end when their time is over, and can be given more or for ever", async () => {
    await save("short", { ttl_seconds: 3600 });
    await save("longer", { ttl_seconds: 3600 });
    await save("kept", { ttl_seconds: 3600 });
    const ttl = (name: string, seconds: number | null) =>
      client.call("PUT", `/training_runs/${modelId}/checkpoints/weights/${name}/ttl`, {
        ttl_seconds: seconds,
      });
    expect((await ttl("longer", 7200)).status).toBe(204);
    expect((await ttl("kept", null)).status).toBe(204);
    expect((await ttl("kept", -1)).status).toBe(422);
    await clock.advance(3_600_001);
    expect((await names()).sort()).toEqual(["weights/kept", "weights/longer"]);
    expect(
      (await client.post("/weights_info", { tinker_path: `tinker://${modelId}/weights/short` })).status,
    ).toBe(404);
    await clock.advance(3_600_000);
    expect(await names()).toEqual(["weights/kept"]);
    await vi.waitFor(async () => {
      await clock.advance(5_000);
      const { entries } = (await client.get("/audit?event_type=checkpoints")).body as { entries: Json[] };
      expect(entries.filter((entry) => entry["event"] === "checkpoints.expired")).toHaveLength(2);
    });
    await save("short");
    expect(await names()).toContain("weights/short");
  });

  it("come as an archive that tar opens, by link or by redirect", async () => {
    await save("a");
    const route = `/training_runs/${modelId}/checkpoints/weights/a/archive`;
    const redirect = await client.send("GET", `/api/v1${route}`);
    expect(redirect.status).toBe(302);
    expect(Date.parse(redirect.headers.get("expires")!)).toBe(clock.wallNow() + 15 * 60_000);
    const old = await client.send("GET", `/api/v1${route}`, {
      headers: { accept: "application/json, application/gzip" },
    });
    expect(old.status).toBe(302);
    const archive = await client.send("GET", redirect.headers.get("location")!);
    expect(archive.headers.get("content-type")).toBe("application/gzip");
    const folder = await mkdtemp(join(tmpdir(), "tinkerts-test-"));
    try {
      await writeFile(join(folder, "a.tar.gz"), new Uint8Array(await archive.arrayBuffer()));
      execFileSync("tar", ["xzf", "a.tar.gz"], { cwd: folder });
      const listed = execFileSync("tar", ["tzf", "a.tar.gz"], { cwd: folder, encoding: "utf8" });
      expect(listed.trim().split("\n")).toEqual([
        "adapter_config.json",
        "adapter_model.safetensors",
        "optimizer.safetensors",
      ]);
      const config = JSON.parse(
        execFileSync("cat", ["adapter_config.json"], { cwd: folder, encoding: "utf8" }),
      ) as Json;
      expect(config).toMatchObject({
        peft_type: "LORA",
        r: 4,
        lora_alpha: 32,
        base_model_name_or_path: fakeModel.name,
      });
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it("being downloaded when they are deleted still arrive whole; a download that is not read leaves no open files", async () => {
    await save("a");
    const route = `/training_runs/${modelId}/checkpoints/weights/a`;
    const { url } = (await client.get(`${route}/archive`, { accept: "application/json" })).body;
    const started = await client.send("GET", String(url));
    const abandoned = await client.send("GET", String(url));
    expect((await client.call("DELETE", route)).status).toBe(204);
    expect((await started.arrayBuffer()).byteLength).toBeGreaterThan(500);
    await abandoned.body?.cancel();
    if (existsSync("/proc/self/fd")) {
      const open = () => readdirSync("/proc/self/fd").map((name) => targetOf(join("/proc/self/fd", name)));
      await vi.waitFor(() => expect(open().filter((path) => path.includes(".safetensors"))).toEqual([]));
    }
    expect((await client.send("GET", String(url))).status).toBe(404);
  });

  it("exported for other tools have a link for each file", async () => {
    await save("a", {}, "/save_weights_external");
    const { urls } = (
      await client.get(`/training_runs/${modelId}/checkpoints/external_weights/a/external_weights_urls`)
    ).body as { urls: Record<string, string> };
    expect(Object.keys(urls)).toEqual(["adapter_config.json", "adapter_model.safetensors"]);
    const file = await client.send("GET", urls["adapter_config.json"]!);
    expect(await file.json()).toMatchObject({ peft_type: "LORA" });
    const other = urls["adapter_config.json"]!.replace("adapter_config.json", "checkpoint.json");
    expect((await client.send("GET", other)).status).toBe(403);
  });

  it("are copied into a run of their own, once for one idempotency key", async () => {
    const { path } = await save("a");
    const copy = () =>
      client.post(
        "/copy_weights",
        { source_path: path, destination_project_id: "p2", ttl_seconds: 3600 },
        { "x-idempotency-key": "k" },
      );
    const [one, two] = await Promise.all([copy(), copy()]);
    expect(one.body).toEqual(two.body);
    const copied = String(one.body["tinker_path"]);
    expect(copied).toMatch(/^tinker:\/\/.*\/weights\/a$/);
    expect(copied).not.toBe(path);
    expect(await client.ok("/weights_info", { tinker_path: copied })).toMatchObject({ lora_rank: 4 });
    const listed = (await client.get("/training_runs?project_id=p2")).body["training_runs"] as Json[];
    expect(listed.map((run) => run["training_run_id"])).toEqual([copied.split("/")[2]]);
    const loaded = { session_id: sessionId, model_seq_id: 9, path: copied, optimizer: true };
    expect(await client.result(client.ok("/load_weights", loaded))).toMatchObject({
      model_id: `${sessionId}:train:9`,
    });
  });
});

describe("loading", () => {
  const forwardLoss = async (model: string, seqId: number) =>
    (await client.passResult(await client.ok("/forward_backward", passBody(model, seqId, 1)))).metrics[
      "loss:sum"
    ];

  it("brings back weights, and the optimizer when asked for", async () => {
    for (let step = 0; step < 3; step += 1) {
      await client.ok("/forward_backward", passBody(modelId, nextSeqId++, 1));
      await client.ok("/optim_step", stepBody(modelId, nextSeqId++, 1));
    }
    const { path } = await save("a");
    const expected = await forwardLoss(modelId, nextSeqId++);
    for (const [modelSeqId, optimizer, step] of [
      [1, true, 4],
      [2, false, 1],
    ] as const) {
      const loaded = await client.createModel(sessionId, modelSeqId);
      await client.result(client.ok("/load_weights", { model_id: loaded, seq_id: 1, path, optimizer }));
      expect(await forwardLoss(loaded, 2)).toBe(expected);
      expect(await client.result(client.ok("/optim_step", stepBody(loaded, 3)))).toMatchObject({
        metrics: { "step:max": step },
      });
    }
  });

  it("is only allowed as a model's first request", async () => {
    const { path } = await save("a");
    const late = await client.post("/load_weights", {
      model_id: modelId,
      seq_id: nextSeqId++,
      path,
      optimizer: false,
    });
    expect([late.status, late.body["detail"]]).toEqual([400, expect.stringContaining("first request")]);
    expect(await client.result(client.ok("/optim_step", stepBody(modelId, nextSeqId++)))).toMatchObject({
      type: "optim_step",
    });
  });

  it("is not allowed late either, under a number that was refused, once the model has been trained", async () => {
    const { path } = await save("a");
    const other = await client.createModel(sessionId, 9);
    const load = { model_id: other, seq_id: 1, path, optimizer: false };
    expect((await client.post("/load_weights", { ...load, path: `${path}-missing` })).status).toBe(404);
    await client.result(client.ok("/forward_backward", passBody(other, 2, 1)));
    expect((await client.post("/load_weights", load)).status).toBe(400);
    const untrained = await client.createModel(sessionId, 10);
    expect((await client.post("/load_weights", { ...load, model_id: untrained, path: "x" })).status).toBe(
      422,
    );
    expect(await client.result(client.ok("/load_weights", { ...load, model_id: untrained }))).toMatchObject({
      path,
    });
  });

  it("of a checkpoint that is deleted before its turn fails with the reason, without the server's paths", async () => {
    const { path } = await save("a");
    engine.hold();
    const created = await client.ok("/create_model", {
      session_id: sessionId,
      model_seq_id: 3,
      base_model: fakeModel.name,
      lora_config: { rank: 4 },
    });
    const load = { model_id: created["model_id"], seq_id: 1, path, optimizer: true };
    const loading = await client.ok("/load_weights", load);
    await client.call("DELETE", `/training_runs/${modelId}/checkpoints/weights/a`);
    engine.open();
    expect(await client.result(loading)).toEqual({
      category: "user",
      error: `Checkpoint ${String(path)} was deleted or replaced.`,
    });
  });

  it("says what does not fit", async () => {
    const { path } = await save("a");
    const { path: samplerPath } = await save("s", {}, "/save_weights_for_sampler");
    const without = { session_id: sessionId, model_seq_id: 5, path: samplerPath, optimizer: true };
    expect((await client.post("/load_weights", without)).status).toBe(422);
    const accepted = await client.ok("/create_model", {
      session_id: sessionId,
      model_seq_id: 6,
      base_model: fakeModel.name,
      lora_config: { rank: 8 },
    });
    const { model_id: other } = await client.result(accepted);
    const load = { model_id: other, seq_id: 1, path, optimizer: false };
    expect(await client.result(client.ok("/load_weights", load))).toMatchObject({
      category: "user",
      error: expect.stringMatching(/^lora_config.rank is 4 .* 8 for the model/),
    });
  });
});

describe("runs and sessions", () => {
  it("are listed page by page and found by id", async () => {
    for (let index = 1; index < 4; index += 1) await client.createModel(sessionId, index);
    await save("a");
    const { body } = await client.get("/training_runs?limit=2&offset=1");
    expect(body["cursor"]).toEqual({ offset: 1, limit: 2, total_count: 4 });
    expect(body["training_runs"]).toHaveLength(2);
    const run = await client.get(`/training_runs/${modelId}`);
    expect(run.body).toMatchObject({
      training_run_id: modelId,
      base_model: fakeModel.name,
      is_lora: true,
      lora_rank: 4,
      last_checkpoint: { checkpoint_id: "weights/a" },
      last_sampler_checkpoint: null,
    });
    expect((await client.get("/training_runs?limit=0")).status).toBe(422);
    expect((await client.get("/training_runs/nope")).status).toBe(404);
  });

  it("belong to projects", async () => {
    const inDefault = async () =>
      (await client.get("/training_runs?project_id=default")).body["training_runs"];
    expect(await inDefault()).toHaveLength(1);
    expect((await client.call("PUT", `/sessions/${sessionId}/project`, { project_id: "p1" })).status).toBe(
      204,
    );
    expect((await client.get("/training_runs?project_id=p1")).body["training_runs"]).toHaveLength(1);
    expect((await client.get("/training_runs?project_id=p9")).body["training_runs"]).toHaveLength(0);
    expect(await inDefault()).toHaveLength(0);
    const { entries } = (await client.get("/audit?event_type=projects")).body as { entries: Json[] };
    expect(entries).toMatchObject([
      { event: "projects.session_assigned", event_details: { project_id: "p1" } },
    ]);
  });

  it("are searched by name, metadata, status and project, page by page", async () => {
    const open = async (name: string, metadata: Json) => {
      await clock.advance(1000);
      return client.openSession({ display_name: name, user_metadata: metadata });
    };
    const first = await open("Pig Latin run", { team: "a" });
    const second = await open("pig farm", { team: "b" });
    const third = await open("Latin pig", { team: "a" });
    const find = async (search: Json) =>
      ((await client.ok("/sessions/search", search))["sessions"] as Json[]).map(
        (session) => session["session_id"],
      );
    expect(await find({ display_name: "latin PIG" })).toEqual([third, first]);
    expect(await find({ user_metadata: { team: "b" } })).toEqual([second]);
    expect(await find({ session_id: second, display_name: "Latin" })).toEqual([third, second, first]);
    await client.post(`/sessions/${second}/finish`, { reason: { type: "success" } });
    expect(await find({ statuses: [{ type: "client_finished", reasons: ["success"] }] })).toEqual([second]);
    expect(await find({ statuses: [{ type: "client_finished", reasons: ["errored"] }] })).toEqual([]);
    const page = await client.ok("/sessions/search", { limit: 2 });
    expect(page["next_cursor"]).not.toBeNull();
    expect(await find({ limit: 2, cursor: page["next_cursor"] })).toEqual([first, sessionId]);
  });

  it("show their models and samplers", async () => {
    const sampler = await client.ok("/create_sampling_session", {
      session_id: sessionId,
      sampling_session_seq_id: 3,
      base_model: fakeModel.name,
    });
    const id = String(sampler["sampling_session_id"]);
    expect(id).toBe(`${sessionId}:sample:3`);
    expect((await client.get(`/sessions/${sessionId}`)).body).toMatchObject({
      training_run_ids: [modelId],
      sampler_ids: [id],
    });
    expect((await client.get(`/samplers/${id}`)).body).toEqual({
      sampler_id: id,
      base_model: fakeModel.name,
      model_path: null,
      takes_constraints: true,
    });
  });

  it("export a trace that Perfetto reads: balanced events in microseconds", async () => {
    await client.result(client.ok("/forward_backward", passBody(modelId, nextSeqId++, 1)));
    await client.result(client.ok("/optim_step", stepBody(modelId, nextSeqId++)));
    await client.ok("/create_sampling_session", {
      session_id: sessionId,
      sampling_session_seq_id: 0,
      base_model: fakeModel.name,
    });
    await client.result(client.ok("/asample", sampleBody(`${sessionId}:sample:0`, 1)));
    const { status, url } = (await client.get(`/sessions/${sessionId}/trace_export`)).body;
    expect(status).toBe("ready");
    const trace = (await (await client.send("GET", String(url))).json()) as { traceEvents: Json[] };
    const begins = trace.traceEvents.filter((event) => event["ph"] === "b");
    const ends = trace.traceEvents.filter((event) => event["ph"] === "e");
    expect(begins.map((event) => event["name"])).toEqual([
      "create_model",
      "forward_backward",
      "optim_step",
      "sample",
    ]);
    expect(ends.map((event) => event["id"])).toEqual(begins.map((event) => event["id"]));
    expect(begins[0]?.["ts"]).toBe(clock.wallNow() * 1000);
    for (const event of trace.traceEvents) {
      expect(event).toMatchObject({
        ts: expect.any(Number),
        pid: expect.any(Number),
        tid: expect.any(Number),
      });
    }
    // Each model and sampler is a process of its own: under one, Perfetto would draw all their requests as one's.
    const processes = trace.traceEvents.filter((event) => event["name"] === "process_name");
    expect(processes.map((event) => event["args"])).toEqual([
      { name: modelId },
      { name: `${sessionId}:sample:0` },
    ]);
    expect(new Set(trace.traceEvents.map((event) => event["pid"]))).toEqual(new Set([1, 2]));
    await client.post(`/sessions/${sessionId}/finish`, {});
    const later = await vi.waitFor(async () => {
      const { body } = await client.get(`/sessions/${sessionId}/trace_export`);
      expect(body["status"]).toBe("ready");
      return body;
    });
    expect((await client.send("GET", String(later["url"]))).status).toBe(200);
  });
});

describe("usage", () => {
  it("reads times without a zone as UTC, wherever the server is", async () => {
    vi.stubEnv("TZ", "Asia/Kolkata");
    expect(new Date("2026-03-01T10:00").getUTCHours()).toBe(4);
    await client.result(client.ok("/forward_backward", passBody(modelId, nextSeqId++, 1)));
    const hours = (from: string, to: string) =>
      client.get(`/billing/usage/events?starting_on=${from}&ending_before=${to}`);
    const naive = await hours("2026-03-01T10:00:00", "2026-03-01T11:00:00");
    vi.unstubAllEnvs();
    expect(naive.body["data"]).toMatchObject([{ bucket_start: "2026-03-01T10:00:00.000Z" }]);
    expect(naive.body).toEqual((await hours("2026-03-01T10:00:00Z", "2026-03-01T16:30:00%2B05:30")).body);
  });

  it("counts the tokens really processed, by UTC hour and kind", async () => {
    const { sampling_session_id: samplerId } = await client.ok("/create_sampling_session", {
      session_id: sessionId,
      sampling_session_seq_id: 0,
      base_model: fakeModel.name,
    });
    await client.result(client.ok("/forward_backward", passBody(modelId, nextSeqId++, 1)));
    await clock.advance(3_600_000);
    await client.result(client.ok("/forward_backward", passBody(modelId, nextSeqId++, 1)));
    await client.sampleResult(
      await client.ok("/asample", sampleBody(String(samplerId), 0, { num_samples: 2 })),
    );
    await save("a");
    const { body } = await client.get(
      "/billing/usage/events?starting_on=2026-03-01T10:00:00Z&ending_before=2026-03-01T12:00:00Z",
    );
    const data = body["data"] as { bucket_start: string; event_info: Json; estimated_cost_usd: null }[];
    expect(data.map((event) => [event.bucket_start.slice(11, 13), event.event_info])).toEqual([
      ["10", { type: "training", token_count: 3 }],
      ["11", { type: "training", token_count: 3 }],
      ["11", { type: "sampling_prefill", cached: false, token_count: 1 }],
      ["11", { type: "sampling_prefill", cached: true, token_count: 3 }],
      ["11", { type: "sampling_sample", token_count: 6 }],
      ["11", { type: "checkpoint", count: 1 }],
    ]);
    expect(data[0]).toMatchObject({
      session_id: sessionId,
      base_model: fakeModel.name,
      estimated_cost_usd: null,
    });
    expect(body["sessions"]).toEqual({ [sessionId]: { user_metadata: null } });
    const storage = (await client.get("/billing/usage/checkpoints/current")).body["data"] as Json[];
    expect(storage).toMatchObject([{ checkpoint_count: 1, estimated_monthly_cost_usd: null }]);
  });

  it.each([
    ["starting_on=2026-03-01T10:30:00Z&ending_before=2026-03-01T12:00:00Z", "starting_on"],
    ["starting_on=2026-03-01T10:00:00Z&ending_before=2026-03-01T10:00:00Z", "ending_before"],
    ["starting_on=2026-03-01T10:00:00Z&ending_before=2026-03-16T10:00:00Z", "ending_before"],
    ["starting_on=yesterday&ending_before=2026-03-16T10:00:00Z", "starting_on"],
  ])("refuses the range %s", async (query, field) => {
    const answer = await client.get(`/billing/usage/events?${query}`);
    expect([answer.status, answer.body["detail"]]).toMatchObject([422, [{ loc: ["query", field] }]]);
  });
});

describe("the rest", () => {
  it("is answered as clients expect", async () => {
    expect((await client.get("/healthz")).body).toEqual({ status: "ok" });
    expect(await client.ok("/telemetry", { events: [{ event: "x" }], platform: "test" })).toEqual({
      status: "accepted",
    });
    expect(await client.ok("/client/config", { sdk_version: "0.36.0" })).toMatchObject({
      pjwt_auth_enabled: false,
    });
    expect(await client.ok("/client/dynamic_config", { sdk_version: "0.36.0" })).toMatchObject({
      refresh_interval_sec: 300,
    });
    const nowhere = await client.get("/nowhere");
    expect([nowhere.status, nowhere.body["detail"]]).toEqual([
      404,
      "There is no GET /api/v1/nowhere on this server.",
    ]);
    expect((await client.get("/audit?day=tomorrow")).status).toBe(422);
  });
});
