import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { RunList, SampleList } from "../../src/dashboard/api.js";
import { createDashboard, startDashboard, type TinkerServer } from "../../src/dashboard/index.js";
import { TinkerError } from "../../src/errors.js";

const ORIGIN = "http://127.0.0.1:8643";

describe("a dashboard", () => {
  let home: string;
  let runs: string;
  beforeEach(() => {
    home = mkdtempSync(join(tmpdir(), "tinkerts-dashboard-"));
    runs = join(home, "runs");
    mkdirSync(join(runs, "one"), { recursive: true });
    writeFileSync(join(runs, "one/metrics.jsonl"), '{"step":0,"loss":1}\n');
  });
  afterEach(() => rmSync(home, { recursive: true, force: true }));

  function opened(options: Partial<Parameters<typeof createDashboard>[0]> = {}) {
    const dashboard = createDashboard({ folders: [runs], ...options });
    const ask = (path: string, { headers = {}, ...init }: RequestInit = {}) =>
      Promise.resolve(
        dashboard.fetch(
          new Request(`${ORIGIN}${path}`, {
            ...init,
            headers: { authorization: `Bearer ${dashboard.token}`, ...(headers as Record<string, string>) },
          }),
        ),
      );
    const post = (path: string, body: string, headers: Record<string, string> = {}) =>
      ask(path, {
        method: "POST",
        body,
        headers: { "content-type": "application/json", "content-length": String(body.length), ...headers },
      });
    return { dashboard, ask, post };
  }

  it("gives no data without the token of this start", async () => {
    const { dashboard, ask } = opened();
    expect((await ask("/api/runs")).status).toBe(200);
    for (const authorization of [
      "",
      "Bearer ",
      "Bearer wrong",
      `Basic ${dashboard.token}`,
      dashboard.token,
    ]) {
      const answer = await ask("/api/runs", { headers: { authorization } });
      expect({ authorization, status: answer.status }).toEqual({ authorization, status: 401 });
    }
    const other = await ask("/api/runs", {
      headers: { authorization: `Bearer ${opened().dashboard.token}` },
    });
    expect(other.status).toBe(401);
    expect((await ask(`/api/runs?token=${dashboard.token}`, { headers: { authorization: "" } })).status).toBe(
      401,
    );
  });

  it("answers its own origin alone, under the names of this machine, whatever the token", async () => {
    const { dashboard, ask } = opened();
    for (const origin of ["https://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8643"])
      expect((await ask("/api/runs", { headers: { origin } })).status).toBe(403);
    expect((await ask("/api/runs", { headers: { origin: ORIGIN } })).status).toBe(200);
    for (const site of ["cross-site", "same-site"])
      expect((await ask("/api/runs", { headers: { "sec-fetch-site": site } })).status).toBe(403);
    const foreign = new Request("http://rebound.example/", { headers: {} });
    expect((await dashboard.fetch(foreign)).status).toBe(403);
  });

  it("refuses a foreign Host header over its socket, and listens on this machine alone", async () => {
    await using dashboard = await startDashboard({ folders: [runs] });
    const { hostname, port, hash } = new URL(dashboard.address);
    expect(hostname).toBe("127.0.0.1");
    const statusAs = (host: string) =>
      new Promise<number | undefined>((resolve, reject) => {
        const headers = { host, authorization: `Bearer ${hash.slice("#token=".length)}` };
        httpRequest({ host: hostname, port, path: "/api/runs", headers }, (response) => {
          response.resume();
          resolve(response.statusCode);
        })
          .on("error", reject)
          .end();
      });
    expect(await statusAs(`127.0.0.1:${port}`)).toBe(200);
    expect(await statusAs("rebound.example")).toBe(403);
    expect(await statusAs(`127.0.0.1.rebound.example:${port}`)).toBe(403);
  });

  it("holds its page tight: no scripts but its own, no frames, no HTML from texts", async () => {
    const { ask } = opened();
    for (const path of ["/", "/api/runs", "/api/nothing", "/nothing"]) {
      const { headers } = await ask(path);
      const policy = headers.get("content-security-policy") ?? "";
      for (const rule of [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
      ])
        expect(policy).toContain(rule);
      expect(policy).toContain("require-trusted-types-for 'script'");
      expect(policy).not.toContain("unsafe");
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.get("cache-control")).toBe("no-store");
      expect(headers.get("access-control-allow-origin")).toBeNull();
    }
  });

  it("reads nothing outside the folders it was given", async () => {
    const secret = join(home, "secret");
    mkdirSync(join(secret, "iteration_000000"), { recursive: true });
    writeFileSync(join(secret, "metrics.jsonl"), '{"step":0,"secret":1}\n');
    writeFileSync(join(secret, "iteration_000000/train_rollout_summaries.jsonl"), '{"total_reward":1}\n');
    symlinkSync(secret, join(runs, "linked-folder"));
    mkdirSync(join(runs, "linked-file"));
    symlinkSync(join(secret, "metrics.jsonl"), join(runs, "linked-file/metrics.jsonl"));
    writeFileSync(join(runs, "linked-file/checkpoints.jsonl"), '{"name":"a"}\n');
    symlinkSync(join(secret, "iteration_000000"), join(runs, "one/iteration_000000"));
    const { ask } = opened();
    const list = (await (await ask("/api/runs")).json()) as RunList;
    expect(list.runs.map(({ name }) => name).sort()).toEqual(["linked-file", "one"]);
    for (const { id } of list.runs) {
      const metrics = (await (await ask(`/api/runs/${id}/metrics`)).json()) as { series: object };
      expect(Object.keys(metrics.series)).not.toContain("secret");
      expect((await ask(`/api/runs/${id}/samples?step=0`)).status).toBe(404);
    }
    for (const id of ["..", "..%2Fsecret", "%2e%2e", encodeURIComponent(secret)])
      expect((await ask(`/api/runs/${id}/metrics`)).status).toBe(404);
    const [{ id }] = list.runs as [RunList["runs"][number]];
    for (const split of ["../../secret/x", "..", "train/../../x", "eval_../../secret"])
      expect((await ask(`/api/runs/${id}/samples?step=0&split=${encodeURIComponent(split)}`)).status).toBe(
        404,
      );
    expect((await ask(`/api/runs/${id}/reports/..%2f..%2fsecret?step=0`)).status).toBe(404);
    for (const step of ["-1", "1e9", "NaN", "0.5", "../1"])
      expect([400, 404]).toContain((await ask(`/api/runs/${id}/samples?step=${step}`)).status);
  });

  it("says what a folder must be", () => {
    expect(() => createDashboard({ folders: [runs, join(home, "missing")] })).toThrow(
      /missing is not a folder that can be read/,
    );
  });

  it("changes nothing where it is only to look", async () => {
    const called: string[] = [];
    const server: TinkerServer = {
      address: "https://tinker.example",
      rest: () => Promise.reject(called.push("rest")),
      service: () => Promise.reject(called.push("service")),
    };
    const { post } = opened({ server, readOnly: true });
    const path = "tinker://run/weights/final";
    for (const [action, body] of [
      ["/api/checkpoints/delete", { path, name: "final" }],
      ["/api/checkpoints/expiry", { path, ttlSeconds: 60 }],
      ["/api/chat", { model: "m", messages: [{ role: "user", content: "hi" }], temperature: 1 }],
    ] as const)
      expect((await post(action, JSON.stringify(body))).status).toBe(403);
    expect(called).toEqual([]);
  });

  it("takes only what its page would send", async () => {
    const server = { address: "https://tinker.example" } as TinkerServer;
    const { post } = opened({ server });
    const path = "tinker://run/weights/final";
    const expiry = "/api/checkpoints/expiry";
    expect((await post(expiry, "{}", { "content-type": "text/plain" })).status).toBe(415);
    expect((await post(expiry, "{", {})).status).toBe(400);
    expect((await post(expiry, JSON.stringify({ path: "/etc/passwd", ttlSeconds: 1 }))).status).toBe(400);
    expect((await post(expiry, JSON.stringify({ path, ttlSeconds: -1 }))).status).toBe(400);
    expect((await post(expiry, "x".repeat(2 << 20))).status).toBe(413);
    const wrong = await post("/api/checkpoints/delete", JSON.stringify({ path, name: "fina" }));
    expect({ status: wrong.status, body: await wrong.json() }).toEqual({
      status: 400,
      body: { error: "Type final to delete it." },
    });
  });

  it("hands out an archive once, by an address without a token, and says in the page what went wrong", async () => {
    let isThere = true;
    const server = {
      address: "https://tinker.example",
      rest: async () => ({
        getCheckpointArchiveUrl: async () => {
          if (isThere) return { url: "https://tinker.example/signed" };
          throw new TinkerError("There is no such checkpoint.");
        },
      }),
      fetch: async () =>
        new Response("archive", { headers: { "content-length": "3", "content-encoding": "gzip" } }),
    } as unknown as TinkerServer;
    const { ask, post } = opened({ server, readOnly: true });
    const body = JSON.stringify({ path: "tinker://run/weights/final" });
    const { address } = (await (await post("/api/checkpoints/download", body)).json()) as { address: string };
    const path = address.slice(1);
    const headers = { authorization: "" };
    const refused = await ask(path, { headers: { ...headers, origin: "https://evil.example" } });
    expect(refused.status).toBe(403);
    const archive = await ask(path, { headers });
    expect(archive.headers.get("content-disposition")).toBe('attachment; filename="run-final.tar"');
    expect(archive.headers.get("content-length")).toBeNull();
    expect(archive.headers.get("content-security-policy")).toContain("default-src 'none'");
    expect(await archive.text()).toBe("archive");
    expect((await ask(path, { headers })).status).toBe(404);
    isThere = false;
    const missing = await post("/api/checkpoints/download", body);
    expect({ status: missing.status, body: await missing.json() }).toEqual({
      status: 502,
      body: { error: "There is no such checkpoint." },
    });
  });

  it("shows the Python cookbook's episodes, and says what it cannot read", async () => {
    const folder = join(runs, "one/iteration_000012");
    mkdirSync(folder);
    const line = (group: number, reward: number) =>
      JSON.stringify({
        ...{
          schema_version: 1,
          split: "train",
          iteration: 12,
          group_idx: group,
          traj_idx: 0,
          tags: ["sums"],
        },
        ...{ total_reward: reward, final_reward: 0, trajectory_metrics: { correct: 1 }, final_ob_len: 9 },
        steps: [
          { step_idx: 0, ob_len: 5, ac_len: 4, reward, episode_done: true, metrics: {}, logs: { said: "4" } },
        ],
      });
    writeFileSync(
      join(folder, "train_rollout_summaries.jsonl"),
      `${line(0, 1)}\nhalf a li\n${line(1, 0.5).replace("0.5", "NaN")}\n${line(2, 3).slice(0, 30)}`,
    );
    const { ask } = opened();
    const { runs: listed } = (await (await ask("/api/runs")).json()) as RunList;
    const id = listed[0]!.id;
    expect(await (await ask(`/api/runs/${id}/samples`)).json()).toEqual({
      run: id,
      steps: [{ step: 12, splits: ["train"], reports: [] }],
    });
    const samples = (await (await ask(`/api/runs/${id}/samples?step=12`)).json()) as SampleList;
    expect(samples).toMatchObject({ badLines: 2, isCut: false });
    expect(samples.samples.map(({ place, group, reward }) => ({ place, group, reward }))).toEqual([
      { place: 0, group: 0, reward: 1 },
      { place: 2, group: 1, reward: null },
    ]);
    expect(await (await ask(`/api/runs/${id}/samples/0?step=12`)).json()).toMatchObject({
      metrics: { correct: 1 },
      turns: [{ observationLength: 5, actionLength: 4, reward: 1, logs: { said: "4" } }],
    });
    expect((await ask(`/api/runs/${id}/samples/1?step=12`)).status).toBe(404);
  });
});
