import type { Clock } from "../../transport/clock.js";
import {
  type AdamSettings,
  type AdapterState,
  type BaseModelInfo,
  type Engine,
  type EngineDevice,
  EngineLostError,
  type ForwardBackwardCall,
  type ForwardBackwardResult,
  type LoraSettings,
  type OnLost,
  type OnToken,
  type ReplaceableEngine,
  type SampleCall,
  type SampleResult,
} from "./engine.js";

const REST_AFTER_MS = 60_000;
/** Less is not worth a new engine. */
const MIN_GIVEN_BACK_BYTES = 64 << 20;
/** What is lost more often than this in so much time is lost again. */
const MAX_STARTS = 3;
const STARTS_WITHIN_MS = 10 * 60_000;
/** A driver that begins anew needs a moment. */
const START_AGAIN_MS = 5_000;
/** What is lost may not be able to end in good order. */
const MAX_CLOSING_MS = 10_000;

/** The engine that calls go to. */
interface Running {
  readonly engine: ReplaceableEngine;
  readonly device: EngineDevice;
  /** Rejects when the engine is lost. */
  readonly lost: Promise<never>;
  lose(error: EngineLostError): void;
  lostBecause?: EngineLostError;
}

/**
 * An engine that outlives those it runs on. One that nobody has asked for anything for a while gives memory back: WebAssembly
 * memory never shrinks, so a new engine takes its place and goes on with its adapters, to the last bit. One that is lost,
 * with its device or its thread, takes its adapters along; a new one with the same models takes its place.
 */
export class LastingEngine implements Engine {
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
  static async start(start: () => Promise<ReplaceableEngine>, clock: Clock): Promise<LastingEngine> {
    return new LastingEngine(start, clock, await run(await start()));
  }

  models(): Promise<BaseModelInfo[]> {
    return this.#call((engine) => engine.models());
  }

  device(): Promise<EngineDevice> {
    return this.#call((engine) => engine.device());
  }

  createAdapter(adapterId: string, baseModel: string, lora: LoraSettings): Promise<void> {
    return this.#call((engine) => engine.createAdapter(adapterId, baseModel, lora));
  }

  forwardBackward(call: ForwardBackwardCall): Promise<ForwardBackwardResult> {
    return this.#call((engine) => engine.forwardBackward(call));
  }

  optimStep(adapterId: string, adam: AdamSettings): Promise<{ metrics: Record<string, number> }> {
    return this.#call((engine) => engine.optimStep(adapterId, adam));
  }

  exportAdapter(adapterId: string, options: { optimizer: boolean }): Promise<AdapterState> {
    return this.#call((engine) => engine.exportAdapter(adapterId, options));
  }

  importAdapter(
    adapterId: string,
    baseModel: string,
    state: AdapterState,
    options: { optimizer: boolean },
  ): Promise<void> {
    return this.#call((engine) => engine.importAdapter(adapterId, baseModel, state, options));
  }

  cloneAdapter(fromId: string, toId: string): Promise<void> {
    return this.#call((engine) => engine.cloneAdapter(fromId, toId));
  }

  removeAdapter(adapterId: string): Promise<void> {
    return this.#call((engine) => engine.removeAdapter(adapterId));
  }

  sample(call: SampleCall, onToken?: OnToken): Promise<SampleResult> {
    return this.#call((engine) => engine.sample(call, onToken));
  }

  cancelSample(requestId: string): void {
    void this.#ready.then(() => this.#running.engine.cancelSample(requestId));
  }

  onLost(listener: OnLost): void {
    this.#onLost.push(listener);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelTimer?.();
    await this.#replacing;
    await this.#ready;
    if (this.#running.lostBecause === undefined) await this.#running.engine.close();
  }

  #call<T>(call: (engine: Engine) => Promise<T>): Promise<T> {
    this.#openCalls += 1;
    const lossBefore = this.#loss;
    const run = async () => {
      if (this.#gone) throw this.#gone;
      // What it was about went with the engine that it was meant for.
      if (this.#loss && this.#loss !== lossBefore) throw this.#loss;
      const running = this.#running;
      try {
        return await Promise.race([call(running.engine), running.lost]);
      } catch (error) {
        // It may come before the engine itself is heard to be lost.
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

  /** Whoever waits is told, and a new engine is started. */
  #lose(running: Running, { reason }: EngineLostError): EngineLostError {
    if (running.lostBecause) return running.lostBecause;
    const error = new EngineLostError(
      reason,
      "The engine starts anew: what was saved is safe, runs with work that was not go on from their last checkpoint, and anything else can be asked for again.",
    );
    running.lostBecause = error;
    running.lose(error);
    if (this.#running === running && !this.#isClosed) {
      this.#loss = error;
      this.#ready = this.#startAnew(running, reason);
      for (const listener of this.#onLost) listener(error);
    }
    return error;
  }

  async #startAnew(lost: Running, why: string): Promise<void> {
    // What it holds of the device's memory is needed.
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
          "What was saved is safe: start the server again, on the CPU (device cpu) where the graphics card is the trouble.",
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
    // A card gives memory back without that, and loading a model onto it again takes long.
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
  let lose: Running["lose"] = () => {};
  const lost = new Promise<never>((_, reject) => {
    lose = reject;
  });
  // Also while nobody waits for anything.
  lost.catch(() => undefined);
  return { engine, device: await engine.device(), lost, lose };
}
