import type { Clock } from "../../transport/clock.js";
import type {
  AdamSettings,
  AdapterState,
  BaseModelInfo,
  Engine,
  ForwardBackwardCall,
  ForwardBackwardResult,
  LoraSettings,
  OnToken,
  ReplaceableEngine,
  SampleCall,
  SampleResult,
} from "./engine.js";

const REST_AFTER_MS = 60_000;
/** Less is not worth a new engine. */
const MIN_GIVEN_BACK_BYTES = 64 << 20;

/**
 * An engine that gives memory back when nobody has asked for anything for a while. WebAssembly memory never shrinks, so a
 * new engine takes the place of the old one and goes on with its adapters, to the last bit.
 */
export class RestingEngine implements Engine {
  readonly #start: () => Promise<ReplaceableEngine>;
  readonly #clock: Clock;
  #engine: ReplaceableEngine;
  /** Calls wait for this in the order they are made: it is pending while adapters move. */
  #ready = Promise.resolve();
  #replacing = Promise.resolve();
  #openCalls = 0;
  #lastUsedAt = 0;
  #cancelTimer: (() => void) | undefined;
  #isClosed = false;

  private constructor(start: () => Promise<ReplaceableEngine>, engine: ReplaceableEngine, clock: Clock) {
    this.#start = start;
    this.#engine = engine;
    this.#clock = clock;
  }

  /** `start` makes an engine, always from the same models. */
  static async start(start: () => Promise<ReplaceableEngine>, clock: Clock): Promise<RestingEngine> {
    return new RestingEngine(start, await start(), clock);
  }

  models(): Promise<BaseModelInfo[]> {
    return this.#call((engine) => engine.models());
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
    void this.#ready.then(() => this.#engine.cancelSample(requestId));
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelTimer?.();
    await this.#replacing;
    await this.#engine.close();
  }

  #call<T>(run: (engine: Engine) => Promise<T>): Promise<T> {
    this.#openCalls += 1;
    return this.#ready
      .then(() => run(this.#engine))
      .finally(() => {
        this.#openCalls -= 1;
        this.#lastUsedAt = this.#clock.now();
        if (this.#cancelTimer === undefined && !this.#isClosed) this.#lookAfter(REST_AFTER_MS);
      });
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
    const old = this.#engine;
    const { reservedBytes, neededBytes } = await old.memory();
    // For a moment both are there, which a machine must not fail for: more is given back than the new one needs.
    if (reservedBytes - neededBytes < Math.max(MIN_GIVEN_BACK_BYTES, neededBytes)) return;
    const fresh = await this.#start();
    let unused = fresh;
    if (this.#openCalls === 0 && !this.#isClosed) {
      const move = async () => {
        await fresh.placeAdapters(await old.copyAdapters());
        this.#engine = fresh;
        unused = old;
      };
      this.#ready = move().catch(() => undefined);
      await this.#ready;
    }
    await unused.close();
  }
}
