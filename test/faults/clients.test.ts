import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import type { Engine } from "../../src/local/engine/engine.js";
import { startEngine } from "../../src/local/engine/index.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import type { Clock } from "../../src/transport/clock.js";
import { RawClient, silent } from "../local/raw-client.js";

const load = <T>(file: string): Promise<T> => import(new URL(file, import.meta.url).href);

/** The engine, with what it has been asked to do and has not done yet. */
function counted(engine: Engine): { engine: Engine; open: () => number; cancelled: () => number } {
  let open = 0;
  let cancelled = 0;
  const count =
    <Args extends unknown[], T>(call: (...args: Args) => Promise<T>) =>
    (...args: Args) => {
      open += 1;
      return call.apply(engine, args).finally(() => {
        open -= 1;
      });
    };
  const counting = Object.assign(Object.create(engine) as Engine, {
    models: () => engine.models(),
    createAdapter: engine.createAdapter.bind(engine),
    exportAdapter: engine.exportAdapter.bind(engine),
    importAdapter: engine.importAdapter.bind(engine),
    cloneAdapter: engine.cloneAdapter.bind(engine),
    removeAdapter: engine.removeAdapter.bind(engine),
    cancelSample: (requestId: string) => {
      cancelled += 1;
      engine.cancelSample(requestId);
    },
    close: () => engine.close(),
    sample: count(engine.sample),
    forwardBackward: count(engine.forwardBackward),
    optimStep: count(engine.optimStep),
  });
  return { engine: counting, open: () => open, cancelled: () => cancelled };
}

// Real processes and real time: on a machine that is busy enough, the backend has done all the work before it could pause.
describe("a client that dies without a word", { retry: 2 }, () => {
  let folder: string;
  let name: string;
  let clock: () => Clock;
  let backend: LocalBackend;
  let open: () => number;
  let cancelled: () => number;
  const children: ChildProcess[] = [];

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "tinkerts-clients-"));
    const tiny = await load<{ TINY_MODEL: string; writeTinyModel(folder: string): Promise<void> }>(
      "./shared/tiny-model.mjs",
    );
    name = tiny.TINY_MODEL;
    await tiny.writeTinyModel(folder);
    ({ scaledClock: clock } = await load<{ scaledClock: () => Clock }>("./shared/scaled-clock.mjs"));
  });
  afterAll(() => rm(folder, { recursive: true }));

  beforeEach(async () => {
    const counting = counted(await startEngine({ models: [{ name, path: folder }], threads: 1 }));
    ({ open, cancelled } = counting);
    backend = await startLocalBackend({
      engine: counting.engine,
      clock: clock(),
      sessionTimeoutMs: 90_000,
      logger: silent,
    });
  });
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill("SIGKILL");
    await backend.close();
  });

  function start(requests: number): { child: ChildProcess; said: (what: string) => Promise<string> } {
    const script = fileURLToPath(new URL("./clients/client.mjs", import.meta.url));
    const child = spawn(process.execPath, [script, backend.baseURL, String(requests)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    children.push(child);
    let output = "";
    child.stdout!.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
    const said = (what: string) =>
      vi.waitFor(
        () => {
          const found = new RegExp(`^${what} (\\S+)\\n`, "m").exec(output);
          if (found === null) throw new Error(`not yet: ${output}`);
          return found[1]!;
        },
        { timeout: 100_000, interval: 20 },
      );
    return { child, said };
  }

  const expectWork = () =>
    vi.waitFor(() => expect(open()).toBeGreaterThan(80), { timeout: 10_000, interval: 5 });

  /** What was being done is taken back, and nothing else begins. */
  async function expectRest(): Promise<void> {
    await vi.waitFor(() => expect(open()).toBe(0), { timeout: 8_000, interval: 20 });
    await sleep(300);
    expect(open()).toBe(0);
    expect(cancelled()).toBeGreaterThan(0);
  }

  it("leaves the engine to others soon after kill -9, and everything when its session ends", async () => {
    const { child, said } = start(200);
    const sessionId = await said("session");
    await expectWork();
    child.kill("SIGKILL");
    await expectRest();
    const client = new RawClient(backend);
    await vi.waitFor(
      async () => {
        const found = await client.ok("/sessions/search", { session_id: sessionId });
        expect(found).toMatchObject({ sessions: [{ status: null }] });
      },
      { timeout: 12_000, interval: 200 },
    );
    expect(open()).toBe(0);
  }, 200_000);

  it("gets all it asked for when it was only stopped and comes back, to the last bit", async () => {
    const expected = await start(1).said("answers");
    const { child, said } = start(100);
    await expectWork();
    child.kill("SIGSTOP");
    await expectRest();
    child.kill("SIGCONT");
    expect(await said("answers")).toBe(expected);
  }, 200_000);
});
