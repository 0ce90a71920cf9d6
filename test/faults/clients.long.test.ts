import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import {
  type AdamSettings,
  CancelledError,
  type Engine,
  type ForwardBackwardCall,
  type SampleCall,
} from "../../src/local/engine/index.js";
import { startEngine } from "../../src/local/engine/start-engine.node.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import type { Clock } from "../../src/transport/clock.js";
import { RawClient, silent } from "../local/raw-client.js";

const load = <T>(file: string): Promise<T> => import(new URL(file, import.meta.url).href);

/** Samples that the engine draws at once; the others of a test wait for its word, so that they cannot end too early. */
const DRAWN_AT_ONCE = 20;

/** The engine, with what it has been asked to do and has not done yet. */
class WatchedEngine {
  readonly engine: Engine;
  open = 0;
  cancelled = 0;
  #samples = 0;
  readonly #held = new Map<string, (error?: Error) => void>();
  #isHolding = true;

  constructor(engine: Engine) {
    this.engine = {
      models: () => engine.models(),
      device: () => engine.device(),
      onLost: (listener) => engine.onLost(listener),
      createAdapter: engine.createAdapter.bind(engine),
      exportAdapter: engine.exportAdapter.bind(engine),
      importAdapter: engine.importAdapter.bind(engine),
      cloneAdapter: engine.cloneAdapter.bind(engine),
      removeAdapter: engine.removeAdapter.bind(engine),
      cancelSample: (requestId: string) => {
        this.cancelled += 1;
        this.#held.get(requestId)?.(new CancelledError("The request was cancelled."));
        engine.cancelSample(requestId);
      },
      close: () => engine.close(),
      sample: this.#count(async (call: SampleCall) => {
        this.#samples += 1;
        if (this.#isHolding && this.#samples > DRAWN_AT_ONCE) await this.#hold(call.requestId);
        return engine.sample(call);
      }),
      forwardBackward: this.#count((call: ForwardBackwardCall) => engine.forwardBackward(call)),
      optimStep: this.#count((id: string, adam: AdamSettings) => engine.optimStep(id, adam)),
    };
  }

  /** From now on everything is drawn. */
  letGo(): void {
    this.#isHolding = false;
    for (const go of this.#held.values()) go();
  }

  #hold(requestId: string): Promise<void> {
    const held = new Promise<void>((resolve, reject) => {
      this.#held.set(requestId, (error) => (error ? reject(error) : resolve()));
    });
    return held.finally(() => this.#held.delete(requestId));
  }

  #count<Args extends unknown[], T>(call: (...args: Args) => Promise<T>) {
    return (...args: Args) => {
      this.open += 1;
      return call(...args).finally(() => {
        this.open -= 1;
      });
    };
  }
}

describe("a client that dies without a word", () => {
  let folder: string;
  let name: string;
  let clock: () => Clock;
  let backend: LocalBackend;
  let watched: WatchedEngine;
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

  async function serve(sessionTimeoutMs: number): Promise<void> {
    watched = new WatchedEngine(await startEngine({ models: [{ name, path: folder }], threads: 1 }));
    backend = await startLocalBackend({
      engine: watched.engine,
      clock: clock(),
      sessionTimeoutMs,
      logger: silent,
    });
  }
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
        { interval: 20 },
      );
    return { child, said };
  }

  const expectWork = () => vi.waitFor(() => expect(watched.open).toBeGreaterThan(50), { interval: 5 });

  /** What was being done is taken back, and nothing else begins. */
  async function expectRest(): Promise<void> {
    await vi.waitFor(() => expect(watched.open).toBe(0), { interval: 20 });
    await sleep(300);
    expect(watched.open).toBe(0);
    expect(watched.cancelled).toBeGreaterThan(0);
  }

  it("leaves the engine to others soon after kill -9, and everything when its session ends", async () => {
    await serve(90_000);
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
      { interval: 200 },
    );
    expect(watched.open).toBe(0);
  });

  it("gets all it asked for when it was only stopped and comes back, to the last bit", async () => {
    // Ten minutes of the fast clock: it must not end while a busy machine lets this test wait.
    await serve(600_000);
    const expected = await start(1).said("answers");
    const { child, said } = start(100);
    await expectWork();
    child.kill("SIGSTOP");
    await expectRest();
    watched.letGo();
    child.kill("SIGCONT");
    expect(await said("answers")).toBe(expected);
  });
});
