import { existsSync } from "node:fs";
import { afterEach, describe, expect, it } from "vitest";
import type { Engine, ReplaceableEngine } from "../../src/local/engine/engine.js";
import { LastingEngine } from "../../src/local/engine/lasting-engine.js";
import { createEngineCore, startWorker } from "../../src/local/engine/start-engine.node.js";
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
