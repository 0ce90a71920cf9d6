import { execFile } from "node:child_process";
import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { startLocalBackend } from "../../src/local/index.js";
import { FakeClock } from "../support/fake-clock.js";
import { FakeEngine, fakeModel } from "./fake-engine.js";
import { passBody, RawClient, sampleBody, silent, stepBody } from "./raw-client.js";

/** Over a real socket: `fetch` is the global one. */
function overSocket(backend: { baseURL: string }): RawClient {
  return new RawClient({ baseURL: backend.baseURL, fetch });
}

/** A step of the optimizer that the engine holds back until it is opened. */
async function heldStep(backend: { baseURL: string }, engine: FakeEngine) {
  const client = overSocket(backend);
  const { modelId } = await client.openModel();
  engine.hold();
  return { client, accepted: await client.ok("/optim_step", stepBody(modelId, 1)) };
}

/** A body of that length begins. */
function beginTelemetry({ baseURL }: { baseURL: string }, length: number) {
  const outgoing = request(`${baseURL}/api/v1/telemetry`, {
    method: "POST",
    headers: { "content-type": "application/json", "content-length": length },
  });
  const status = new Promise<number | undefined>((resolve, reject) => {
    outgoing.on("error", reject).on("response", (response) => {
      resolve(response.statusCode);
      outgoing.destroy();
    });
  });
  return { outgoing, status };
}

/** A whole body with so many letters. */
const sendTelemetry = ({ baseURL }: { baseURL: string }, letters: number) =>
  fetch(`${baseURL}/api/v1/telemetry`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ events: ["x".repeat(letters)] }),
  });

describe("a backend on a socket", () => {
  it("starts in a program given on the command line, whose flags are no flags for its threads", async () => {
    const local = new URL("../../dist/bundle/local.js", import.meta.url);
    const program = `const { startLocalBackend } = await import(${JSON.stringify(local)});
      const backend = await startLocalBackend();
      console.log((await fetch(backend.baseURL + "/api/v1/healthz")).status);
      await backend.close();`;
    const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", program]);
    expect(stdout).toBe("200\n");
  });

  it("starts at once on a free port of this machine, trains, samples and closes", async () => {
    const engine = new FakeEngine();
    const backend = await startLocalBackend({ engine });
    expect(backend.baseURL).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    const client = overSocket(backend);
    const { sessionId, modelId } = await client.openModel();
    const pass = await client.ok("/forward_backward", passBody(modelId, 1, 1));
    const step = await client.ok("/optim_step", stepBody(modelId, 2));
    expect((await client.passResult(pass)).metrics["tokens:sum"]).toBe(3);
    expect(await client.result(step)).toMatchObject({ metrics: { "step:max": 1 } });
    const sampler = await client.ok("/create_sampling_session", {
      session_id: sessionId,
      sampling_session_seq_id: 0,
      base_model: fakeModel.name,
    });
    const id = String(sampler["sampling_session_id"]);
    const samples = await Promise.all(
      Array.from({ length: 100 }, async (_, index) =>
        client.sampleResult(await client.ok("/asample", sampleBody(id, index))),
      ),
    );
    expect(samples).toHaveLength(100);
    const folder = backend.dataDir;
    await backend.close();
    expect(engine.isClosed).toBe(true);
    await expect(stat(folder)).rejects.toThrow();
    await expect(fetch(`${backend.baseURL}/healthz`)).rejects.toThrow();
  });

  it("closes while polls are open, and twice is once", async () => {
    const engine = new FakeEngine();
    await using backend = await startLocalBackend({ engine });
    const { client, accepted } = await heldStep(backend, engine);
    const polling = client
      .post("/retrieve_future", { request_id: accepted["request_id"] })
      .catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 50));
    const closing = backend.close();
    engine.open();
    await closing;
    await backend.close();
    await polling;
  });

  it("closes while an operation takes minutes", async () => {
    const engine = new FakeEngine();
    const backend = await startLocalBackend({ engine });
    await heldStep(backend, engine);
    await backend.close();
  });

  it("closes while the engine is busy, and takes no more requests meanwhile", async () => {
    const engine = new FakeEngine();
    // The real engine removes an adapter behind the pass that uses it.
    let removed = 0;
    engine.removeAdapter = () => {
      removed += 1;
      return new Promise(() => {});
    };
    const backend = await startLocalBackend({ engine });
    const client = overSocket(backend);
    const { modelId } = await client.openModel();
    engine.hold();
    await client.ok("/optim_step", stepBody(modelId, 1));
    const closing = backend.close();
    expect(await client.post("/create_session")).toMatchObject({
      status: 503,
      body: { detail: "This server is closing." },
    });
    expect((await client.post(`/sessions/${modelId.split(":")[0]}/finish`)).status).toBe(204);
    await closing;
    expect(removed).toBe(0);
  });

  it("answers 413 to a body that says it is too large, without reading it", async () => {
    await using backend = await startLocalBackend({ engine: new FakeEngine(), limits: { bodyBytes: 1000 } });
    const { outgoing, status } = beginTelemetry(backend, 100_000_000);
    outgoing.write("{");
    expect(await status).toBe(413);
    expect((await fetch(`${backend.baseURL}/healthz`)).status).toBe(200);
  });

  it("gives up a body that stops coming with a 408, and bodies that come too many at once with a 429", async () => {
    const clock = new FakeClock();
    await using backend = await startLocalBackend({
      engine: new FakeEngine(),
      clock,
      limits: { bodyIdleMs: 300, arrivingBytes: 100_000 },
    });
    /** Sends so many bytes of a larger body, and resolves to the answer when they have come. */
    const half = async (bytes: number) => {
      const { outgoing, status } = beginTelemetry(backend, 1_000_000);
      await new Promise((resolve) => outgoing.write(" ".repeat(bytes), resolve));
      for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setTimeout(resolve, 1));
      return { status };
    };
    /** Nothing more comes of them. */
    const answers = async (...sent: { status: Promise<number | undefined> }[]) => {
      const statuses = Promise.all(sent.map(({ status }) => status));
      let isOver = false;
      const over = statuses.finally(() => {
        isOver = true;
      });
      while (!isOver) await clock.advance(100);
      return await over;
    };
    expect(await answers(await half(10))).toEqual([408]);
    expect(await answers(await half(60_000), await half(60_000))).toEqual([408, 429]);
    // What was given up no longer counts.
    expect(await answers(await half(60_000))).toEqual([408]);
    const whole = await sendTelemetry(backend, 200_000);
    expect(whole.status).toBe(200);
  });

  it("refuses a body in pieces that is too large while the client still sends", async () => {
    await using backend = await startLocalBackend({
      engine: new FakeEngine(),
      limits: { bodyBytes: 100_000 },
    });
    const response = await sendTelemetry(backend, 5_000_000);
    expect(response.status).toBe(413);
  });

  it("forgets the poll of a client that hung up", async () => {
    const engine = new FakeEngine();
    await using backend = await startLocalBackend({ engine });
    const { client, accepted } = await heldStep(backend, engine);
    const abort = new AbortController();
    const polling = client.send("POST", "/api/v1/retrieve_future", {
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ request_id: accepted["request_id"] }),
      signal: abort.signal,
    });
    setTimeout(() => abort.abort(), 50);
    await expect(polling).rejects.toThrow();
    engine.open();
    expect(await client.result(accepted)).toMatchObject({ metrics: { "step:max": 1 } });
  });
});

describe("a data folder", () => {
  const startOn = (dataDir: string) =>
    startLocalBackend({ engine: new FakeEngine(), dataDir, listen: false, logger: silent });

  it("lists all runs and checkpoints after a restart, and training goes on from them", async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "tinkerts-data-"));
    try {
      const first = await startOn(dataDir);
      const before = new RawClient(first);
      const { sessionId, modelId } = await before.openModel();
      await before.result(before.ok("/forward_backward", passBody(modelId, 1, 1)));
      await before.result(before.ok("/optim_step", stepBody(modelId, 2, 1)));
      const { path } = await before.result(
        before.ok("/save_weights", { model_id: modelId, seq_id: 3, path: "a" }),
      );
      const expected = await before.passResult(await before.ok("/forward_backward", passBody(modelId, 4, 1)));
      await first.close();
      expect(await readdir(dataDir)).not.toContain(".lock");

      const second = await startOn(dataDir);
      const after = new RawClient(second);
      expect((await after.get("/training_runs")).body["training_runs"]).toMatchObject([
        { training_run_id: modelId },
      ]);
      expect((await after.get("/checkpoints")).body["checkpoints"]).toMatchObject([{ tinker_path: path }]);
      expect((await after.get("/sessions")).body["sessions"]).toEqual([sessionId]);
      expect((await after.post("/session_heartbeat", { session_id: sessionId })).status).toBe(410);
      expect((await after.post("/retrieve_future", { request_id: `${modelId}:3` })).status).toBe(410);
      expect((await after.get(`/sessions/${sessionId}/trace_export`)).body["status"]).toBe("ready");
      const newSession = await after.openSession();
      const load = { session_id: newSession, model_seq_id: 0, path, optimizer: true };
      const { model_id: loaded } = await after.result(after.ok("/load_weights", load));
      const output = await after.passResult(
        await after.ok("/forward_backward", passBody(String(loaded), 1, 1)),
      );
      expect(output.metrics).toEqual(expected.metrics);
      await second.close();
    } finally {
      await rm(dataDir, { recursive: true, force: true });
    }
  });
});
