import { existsSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Worker } from "node:worker_threads";
import { afterEach, describe, expect, it } from "vitest";
import {
  type Engine,
  EngineLostError,
  type OnLost,
  type ReplaceableEngine,
} from "../../src/local/engine/engine.js";
import { LastingEngine } from "../../src/local/engine/lasting-engine.js";
import { createEngineCore, startWorker } from "../../src/local/engine/start-engine.node.js";
import { systemClock } from "../../src/transport/clock.js";
import { FakeClock } from "../support/fake-clock.js";
import { adam, crossEntropy, lora, randomTokens, sampleCall, trainingData } from "./engines.js";
import { fixture } from "./golden.js";

const options = { models: [{ name: "qwen3", path: fixture("qwen3") }], threads: 1 };
const isCompiled = existsSync(new URL("../../dist/local/engine/engine-worker.node.js", import.meta.url));
const MEBIBYTE = 2 ** 20;

describe.each([
  ["in this thread", true],
  ["in a worker", false],
])("an engine %s that rests", { skip: !isCompiled }, (_, inThread) => {
  const startOne = async () => (inThread ? createEngineCore(options) : startWorker(options));
  const closers: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const close of closers.splice(0)) await close();
  });

  /** With every engine that it ran on, the last of which is the one that it runs on. */
  async function restingEngine() {
    const clock = new FakeClock();
    const started: ReplaceableEngine[] = [];
    let fails = false;
    const engine = await LastingEngine.start(async () => {
      if (fails) throw new Error("no memory");
      started.push(await startOne());
      return started.at(-1)!;
    }, clock);
    closers.push(() => engine.close());
    const reserved = async () => (await started.at(-1)!.memory()).reservedBytes;
    const failToStart = (value: boolean) => {
      fails = value;
    };
    return { engine, clock, started, reserved, failToStart };
  }

  /** Takes more than a hundred mebibytes, for a while. */
  async function work(engine: Engine): Promise<void> {
    await engine.sample(sampleCall(randomTokens(100, 1), { numSamples: 128, maxTokens: 29 }));
    const large = Array.from({ length: 12 }, (_unused, index) => `large ${index}`);
    for (const id of large) {
      await engine.createAdapter(id, "qwen3", { ...lora, rank: 1024 });
      await engine.forwardBackward(crossEntropy(id, trainingData(1, 1)));
    }
    for (const id of large) await engine.removeAdapter(id);
  }

  /** An adapter with moments and gradients, a sampler's copy of it, and one that was never trained. */
  async function prepare(engine: Engine): Promise<void> {
    await engine.createAdapter("a", "qwen3", lora);
    await engine.forwardBackward(crossEntropy("a", trainingData(3, 1)));
    await engine.optimStep("a", adam);
    await engine.cloneAdapter("a", "sampler");
    await engine.createAdapter("new", "qwen3", { ...lora, seed: 9 });
    await engine.forwardBackward(crossEntropy("a", trainingData(2, 2)));
  }

  async function results(engine: Engine): Promise<unknown[]> {
    const out: unknown[] = [];
    for (const adapterId of ["a", "sampler", "new"])
      out.push(
        (await engine.sample(sampleCall(randomTokens(20, 1), { adapterId, numSamples: 2 }))).sequences,
      );
    // The gradients from before count in this step.
    out.push(await engine.optimStep("a", adam));
    for (const adapterId of ["a", "new"]) {
      out.push(await engine.forwardBackward(crossEntropy(adapterId, trainingData(3, 3))));
      out.push(await engine.optimStep(adapterId, adam));
      out.push(await engine.exportAdapter(adapterId, { optimizer: true }));
    }
    return out;
  }

  const waitFor = async (isTrue: () => boolean) => {
    while (!isTrue()) await new Promise((resolve) => setTimeout(resolve, 5));
  };

  it("gives memory back, and goes on to the same bits as one that never rested", async () => {
    const undisturbed = await startOne();
    closers.push(() => undisturbed.close());
    await prepare(undisturbed);
    const expected = await results(undisturbed);

    const { engine, clock, started, reserved } = await restingEngine();
    const atStart = await reserved();
    await prepare(engine);
    await work(engine);
    const afterWork = await reserved();
    expect(afterWork).toBeGreaterThan(atStart + 100 * MEBIBYTE);
    await clock.advance(59_000);
    expect(started).toHaveLength(1);
    await clock.advance(2_000);
    await waitFor(() => started.length === 2);
    // Asked for while the adapters move: served in order, behind the move.
    expect(await results(engine)).toEqual(expected);
    expect(await reserved()).toBeLessThan(atStart + 20 * MEBIBYTE);
    await expect(started[0]!.sample(sampleCall(randomTokens(5, 1)))).rejects.toThrow("the engine was closed");
    // It has nothing more to give.
    await clock.advance(120_000);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(started).toHaveLength(2);
  });

  it("stays as it is while something runs, and where no new one starts", async () => {
    const { engine, clock, started, reserved, failToStart } = await restingEngine();
    await prepare(engine);
    await work(engine);
    const afterWork = await reserved();
    const endless = sampleCall(randomTokens(10, 1), { numSamples: 5000, maxTokens: 100 });
    const running = engine.sample(endless);
    await clock.advance(200_000);
    engine.cancelSample(endless.requestId);
    await expect(running).rejects.toThrow("was cancelled");
    expect(started).toHaveLength(1);
    failToStart(true);
    await clock.advance(200_000);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(await reserved()).toBe(afterWork);
    failToStart(false);
    await engine.models();
    await clock.advance(61_000);
    await waitFor(() => started.length === 2);
    await engine.exportAdapter("a", { optimizer: true });
    expect(await reserved()).toBeLessThan(afterWork / 2);
  });

  it("can be closed while a new one starts", async () => {
    const { engine, clock, started } = await restingEngine();
    await work(engine);
    await clock.advance(61_000);
    await engine.close();
    for (const each of started)
      await expect(each.createAdapter("x", "qwen3", lora)).rejects.toThrow(/closed/);
  });
});

describe("an engine that is lost", () => {
  it.runIf(isCompiled)(
    "with its thread is started anew; what waits hears why, and models compute as before",
    async () => {
      let thread: Worker | undefined;
      const heard = (worker: Worker) => {
        thread = worker;
      };
      process.on("worker", heard);
      const engine = await LastingEngine.start(() => startWorker(options), systemClock);
      process.off("worker", heard);
      const losses: string[] = [];
      engine.onLost(({ reason }) => losses.push(reason));
      const sampled = sampleCall(randomTokens(20, 1), { seed: 5 });
      const { sequences } = await engine.sample(sampled);
      await engine.createAdapter("a", "qwen3", lora);
      const endless = engine.sample(sampleCall(randomTokens(10, 1), { numSamples: 5000, maxTokens: 100 }));
      const pass = engine.forwardBackward(crossEntropy("a", trainingData(2, 2)));
      const outcomes = Promise.allSettled([endless, pass]);
      await thread!.terminate();
      for (const outcome of await outcomes) {
        expect(outcome).toMatchObject({ status: "rejected", reason: { name: "EngineLostError" } });
        const { message } = (outcome as PromiseRejectedResult).reason as Error;
        expect(message).toMatch(/^The engine's thread ended with code 1\. The engine restarts/);
      }
      expect(losses).toEqual(["The engine's thread ended with code 1"]);
      expect((await engine.sample(sampled)).sequences).toEqual(sequences);
      await expect(engine.optimStep("a", adam)).rejects.toThrow("there is no adapter a");
      await engine.close();
    },
  );

  /** Engines that can be lost one after the other, and starts that fail. */
  async function losable() {
    const clock = new FakeClock({ auto: true });
    const world = { starts: 0, closed: 0, fails: false, lose: (_reason: string) => {} };
    const engine = await LastingEngine.start(async () => {
      world.starts += 1;
      if (world.fails) throw new Error("no GPU was found");
      return {
        device: async () => ({ kind: "gpu", name: "a card" }),
        models: async () => [],
        onLost: (listener: OnLost) => {
          world.lose = (reason) => listener(new EngineLostError(reason));
        },
        optimStep: () => new Promise(() => {}),
        close: async () => {
          world.closed += 1;
        },
      } as unknown as ReplaceableEngine;
    }, clock);
    return { engine, clock, world };
  }

  it("keeps no answer once it was given", async () => {
    setFlagsFromString("--expose-gc");
    const collectGarbage = runInNewContext("gc") as () => void;
    const { engine } = await losable();
    const answer = new WeakRef(await engine.models());
    await new Promise((resolve) => setImmediate(resolve));
    collectGarbage();
    expect(answer.deref()).toBeUndefined();
    await engine.close();
  });

  it("is closed before a new one starts, which may take several tries", async () => {
    const { engine, world, clock } = await losable();
    const waiting = engine.optimStep("a", adam).catch((error: Error) => error.message);
    await engine.models();
    world.fails = true;
    world.lose("The GPU was lost");
    expect(await waiting).toMatch(/^The GPU was lost\. The engine restarts/);
    const later = engine.models();
    while (world.starts < 3) await new Promise((resolve) => setImmediate(resolve));
    world.fails = false;
    expect(await later).toEqual([]);
    expect(world.closed).toBe(1);
    expect(clock.sleeps.length).toBeGreaterThan(0);
    await engine.close();
    expect(world.closed).toBe(2);
  });

  it("again and again is given up, and every call fails with that reason", async () => {
    const { engine, world, clock } = await losable();
    for (let loss = 1; loss <= 3; loss += 1) {
      world.lose(`loss ${loss}`);
      expect(await engine.models()).toEqual([]);
    }
    world.lose("loss 4");
    const gone =
      /^The engine is gone for good, after 3 new starts: loss 4\. Saved checkpoints are safe: start the server again/;
    await expect(engine.models()).rejects.toThrow(gone);
    await expect(engine.optimStep("a", adam)).rejects.toThrow(gone);
    expect(world.starts).toBe(4);
    await engine.close();
    expect(clock.sleeps).toEqual([]);
  });

  it("now and then is always restarted", async () => {
    const { engine, world, clock } = await losable();
    for (let loss = 1; loss <= 8; loss += 1) {
      world.lose(`loss ${loss}`);
      expect(await engine.models()).toEqual([]);
      await clock.advance(4 * 60_000);
    }
    expect(world.starts).toBe(9);
    await engine.close();
  });
});
