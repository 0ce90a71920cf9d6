import type { Clock } from "../../transport/clock.js";
import {
  type Engine,
  type EngineDevice,
  EngineLostError,
  type OnLost,
  type ReplaceableEngine,
} from "./engine.js";
import { type AskingMethod, askingMethods, callMethod } from "./engine-methods.js";

const REST_AFTER_MS = 60_000;
/** Less is not worth a new engine. */
const MIN_GIVEN_BACK_BYTES = 64 << 20;
/** More starts than this within `STARTS_WITHIN_MS` mean that the next engine would be lost too. */
const MAX_STARTS = 3;
const STARTS_WITHIN_MS = 10 * 60_000;
/** A driver that restarts needs a moment. */
const START_AGAIN_MS = 5_000;
/** A lost engine may be unable to close. */
const MAX_CLOSING_MS = 10_000;

/** The engine that calls go to. */
interface Running {
  readonly engine: ReplaceableEngine;
  readonly device: EngineDevice;
  /** Called when the engine is lost: those who wait for an answer of it. */
  readonly waiting: Set<(error: EngineLostError) => void>;
  lostBecause?: EngineLostError;
}

/**
 * An engine that outlives those it runs on. One that is idle for a while gives memory back: WebAssembly
 * memory never shrinks, so a new engine takes its place and goes on with its adapters, to the last bit. One that is lost,
 * with its device or its thread, takes its adapters along; a new one with the same models takes its place.
 */
export class LastingEngine {
  readonly #start: () => Promise<ReplaceableEngine>;
  readonly #clock: Clock;
  #running: Running;
  /** Calls wait for this in the order they are made: it is pending while there is no engine to go to. */
  #ready = Promise.resolve();
  #replacing = Promise.resolve();
  #openCalls = 0;
  #lastUsedAt = 0;
  #cancelTimer: (() => void) | undefined;
  #isClosed = false;
  readonly #onLost: OnLost[] = [];
  /** The last one. */
  #loss: EngineLostError | undefined;
  #startedAt: number[] = [];
  /** Set when there will be no other engine. */
  #gone: EngineLostError | undefined;

  private constructor(start: () => Promise<ReplaceableEngine>, clock: Clock, running: Running) {
    this.#start = start;
    this.#clock = clock;
    this.#running = running;
    this.#watch(running);
  }

  /** `start` makes an engine, always from the same models and on the same kind of device. */
  static async start(start: () => Promise<ReplaceableEngine>, clock: Clock): Promise<Engine> {
    const lasting = new LastingEngine(start, clock, await run(await start()));
    return {
      ...askingMethods((method, args) => lasting.#call(method, args)),
      cancelSample: (requestId) => lasting.#cancelSample(requestId),
      onLost: (listener) => void lasting.#onLost.push(listener),
      close: () => lasting.#close(),
    };
  }

  #cancelSample(requestId: string): void {
    void this.#ready.then(() => this.#running.engine.cancelSample(requestId));
  }

  async #close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelTimer?.();
    await this.#replacing;
    await this.#ready;
    if (this.#running.lostBecause === undefined) await this.#running.engine.close();
  }

  #call(method: AskingMethod, args: unknown[]): Promise<unknown> {
    this.#openCalls += 1;
    const lossBefore = this.#loss;
    const run = async () => {
      if (this.#gone) throw this.#gone;
      // The call was for an adapter of the engine that was lost.
      if (this.#loss && this.#loss !== lossBefore) throw this.#loss;
      const running = this.#running;
      try {
        return await untilLost(running, callMethod(running.engine, method, args));
      } catch (error) {
        // The error may arrive before the engine reports that it is lost.
        throw error instanceof EngineLostError ? this.#lose(running, error) : error;
      }
    };
    return this.#ready.then(run).finally(() => {
      this.#openCalls -= 1;
      this.#lastUsedAt = this.#clock.now();
      if (this.#cancelTimer === undefined && !this.#isClosed) this.#lookAfter(REST_AFTER_MS);
    });
  }

  #watch(running: Running): void {
    running.engine.onLost((error) => this.#lose(running, error));
  }

  /** Rejects all waiting calls and starts a new engine. */
  #lose(running: Running, { reason }: EngineLostError): EngineLostError {
    if (running.lostBecause) return running.lostBecause;
    const error = new EngineLostError(
      reason,
      "The engine restarts: saved checkpoints are safe, runs with unsaved work continue from their last checkpoint, and other requests can be sent again.",
    );
    running.lostBecause = error;
    for (const reject of running.waiting) reject(error);
    if (this.#running === running && !this.#isClosed) {
      this.#loss = error;
      this.#ready = this.#startAnew(running, reason);
      for (const listener of this.#onLost) listener(error);
    }
    return error;
  }

  async #startAnew(lost: Running, why: string): Promise<void> {
    // The new engine needs the memory that this one holds.
    await new Promise<void>((resolve) => {
      const cancel = this.#clock.setTimer(resolve, MAX_CLOSING_MS, { background: true });
      const ended = () => {
        cancel();
        resolve();
      };
      lost.engine.close().then(ended, ended);
    });
    let reason = why;
    while (!this.#isClosed) {
      const now = this.#clock.now();
      this.#startedAt = this.#startedAt.filter((time) => now - time < STARTS_WITHIN_MS);
      if (this.#startedAt.length >= MAX_STARTS) {
        this.#gone = new EngineLostError(
          `The engine is gone for good, after ${MAX_STARTS} new starts: ${reason}`,
          "Saved checkpoints are safe: start the server again, on the CPU (device cpu) if the GPU is the problem.",
        );
        return;
      }
      this.#startedAt.push(now);
      try {
        this.#running = await run(await this.#start());
        this.#watch(this.#running);
        return;
      } catch (error) {
        reason = error instanceof Error ? error.message : String(error);
        await this.#clock.sleep(START_AGAIN_MS);
      }
    }
  }

  #lookAfter(delayMs: number): void {
    const look = () => {
      this.#cancelTimer = undefined;
      // The end of a call looks again.
      if (this.#openCalls > 0) return;
      const restsInMs = this.#lastUsedAt + REST_AFTER_MS - this.#clock.now();
      if (restsInMs > 0) this.#lookAfter(restsInMs);
      // Where there is no memory for both, or the model's files are gone, the old engine goes on as it is.
      else this.#replacing = this.#replacing.then(() => this.#replace()).catch(() => undefined);
    };
    this.#cancelTimer = this.#clock.setTimer(look, delayMs, { background: true });
  }

  async #replace(): Promise<void> {
    const old = this.#running;
    // A GPU frees memory by itself, and loading a model onto it again takes long.
    if (old.device.kind === "gpu" || old.lostBecause) return;
    const { reservedBytes, neededBytes } = await old.engine.memory();
    // For a moment both are there, which a machine must not fail for: more is given back than the new one needs.
    if (reservedBytes - neededBytes < Math.max(MIN_GIVEN_BACK_BYTES, neededBytes)) return;
    const fresh = await run(await this.#start());
    let unused = fresh;
    if (this.#openCalls === 0 && !this.#isClosed && !old.lostBecause) {
      const move = async () => {
        await fresh.engine.placeAdapters(await old.engine.copyAdapters());
        if (old.lostBecause) return;
        this.#running = fresh;
        unused = old;
        this.#watch(fresh);
      };
      this.#ready = move().catch(() => undefined);
      await this.#ready;
    }
    await unused.engine.close();
  }
}

async function run(engine: ReplaceableEngine): Promise<Running> {
  return { engine, device: await engine.device(), waiting: new Set() };
}

/** An answer, or why there will be none. A race with one promise for all calls would keep every answer as long as the engine. */
function untilLost<T>(running: Running, answer: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    running.waiting.add(reject);
    answer.then(resolve, reject).finally(() => running.waiting.delete(reject));
    if (running.lostBecause) reject(running.lostBecause);
  });
}
