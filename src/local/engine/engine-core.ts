import { AdapterJobs } from "./adapter-jobs.js";
import {
  type AdamSettings,
  type AdapterCopy,
  type AdapterState,
  type BaseModelInfo,
  CancelledError,
  type EngineDevice,
  EngineInputError,
  type EngineMemory,
  type ForwardBackwardCall,
  type ForwardBackwardResult,
  type LoraSettings,
  type OnLost,
  type OnToken,
  type ReplaceableEngine,
  type SampleCall,
  type SampleResult,
} from "./engine.js";
import type { Kernels } from "./kernels/kernels.js";
import { type BaseModel, loadBaseModel } from "./model/base-model.js";
import type { ModelFiles } from "./model/model-files.js";
import { BatchSampler } from "./sampling/batch-sampler.js";
import { JsonVocabulary } from "./sampling/json/json-sampling.js";
import type { Decode } from "./sampling/stop-condition.js";
import { LoraAdapter } from "./training/adapter.js";
import { trainingPass } from "./training/training-pass.js";

/** A base model as the engine gets it. */
export interface EngineModel {
  name: string;
  /** Called once; the engine closes what it has read. */
  open(): ModelFiles;
  /** Absent: the model has none, so that stop strings and JSON output are refused. */
  tokenizer?: ModelTokenizer;
}

/** Tokenizer of a model as the engine needs it, loaded on first use. */
export interface ModelTokenizer {
  decode: Decode;
  /** Returns the content of `tokenizer.json`. */
  json(): unknown;
}

/** Parts that an engine is made from. */
export interface EngineCoreOptions {
  kernels: Kernels;
  /** Description for people. */
  device?: EngineDevice;
  models: EngineModel[];
  /** Upper bound for each model's keys and values. Default: what `cacheShare` says. */
  cacheBytes?: number;
  freshSeed: () => number;
  /** Milliseconds, for sharing time; any steady clock. */
  now: () => number;
  /** Lets messages in between two steps. */
  pause: () => Promise<void>;
}

const DEFAULT_CACHE_BYTES = 512 << 20;
/** Part of the GPU memory that models leave; training's activations and the optimizers take the rest. */
const CACHE_PART = 3 / 8;

/** Bytes for the keys and values of one of so many models. */
function cacheShare({ freeBytes }: Kernels, models: number): number {
  return freeBytes === undefined ? DEFAULT_CACHE_BYTES : Math.floor((CACHE_PART * freeBytes) / models);
}

/** The engine in one thread: owns models, adapters and samplers, and shares its time fairly between training and sampling. */
export class EngineCore implements ReplaceableEngine {
  readonly #options: EngineCoreOptions;
  readonly #kernels: Kernels;
  readonly #models = new Map<string, BaseModel>();
  readonly #samplers = new Map<string, BatchSampler>();
  readonly #adapters = new Map<string, AdapterJobs>();
  #modelBytes = 0;
  /** Time used by each side; the one that has had less goes next. */
  readonly #usedMs = { training: 0, sampling: 0 };
  #looping = false;
  /** Something was asked for since the loop last looked. */
  #isWoken = false;
  #closed = false;
  #lastTrained = 0;

  private constructor(options: EngineCoreOptions) {
    this.#options = options;
    this.#kernels = options.kernels;
  }

  /** Loads the models; the kernels are closed with the engine, or where it cannot be made. */
  static async create(options: EngineCoreOptions): Promise<EngineCore> {
    const core = new EngineCore(options);
    try {
      for (const model of options.models) await core.#load(model);
      // Their memory depends on what all models have left.
      for (const model of options.models) core.#addSampler(model);
    } catch (error) {
      await options.kernels.close();
      throw error;
    }
    core.#modelBytes = options.kernels.allocatedBytes;
    return core;
  }

  async #load({ name, open }: EngineModel): Promise<void> {
    const files = open();
    const model = await loadBaseModel(this.#kernels, name, files).finally(() => files.close());
    this.#models.set(name, model);
  }

  #addSampler({ name, tokenizer }: EngineModel): void {
    const { kernels, freshSeed } = this.#options;
    const cacheBytes = this.#options.cacheBytes ?? cacheShare(kernels, this.#models.size);
    const model = this.#model(name);
    const sampler = new BatchSampler(kernels, model, {
      cacheBytes,
      freshSeed,
      decode: tokenizer?.decode,
      json: tokenizer && new JsonVocabulary(tokenizer.json, model.config.vocabSize),
    });
    // A longer sequence could not be sampled, so that callers can refuse it before they try.
    model.info.maxContextLength = Math.min(model.config.maxPositions, sampler.maxSequenceTokens);
    this.#samplers.set(name, sampler);
  }

  async models(): Promise<BaseModelInfo[]> {
    return [...this.#models.values()].map((model) => model.info);
  }

  async device(): Promise<EngineDevice> {
    const { name } = this.#kernels;
    return this.#options.device ?? { kind: name === "webgpu" ? "gpu" : "cpu", name };
  }

  async createAdapter(adapterId: string, baseModel: string, lora: LoraSettings): Promise<void> {
    const model = this.#model(baseModel);
    await this.#once(this.#jobsOf(adapterId), true, (jobs) => {
      if (jobs.adapter) throw new EngineInputError(`there already is an adapter ${adapterId}`);
      jobs.adapter = LoraAdapter.create(this.#kernels, model, lora);
    });
  }

  async forwardBackward(call: ForwardBackwardCall): Promise<ForwardBackwardResult> {
    const jobs = this.#jobsOf(call.adapterId);
    const run = (): AsyncGenerator<void, ForwardBackwardResult> => {
      const adapter = this.#adapterOf(jobs, call.adapterId);
      const { trainingTokens, sharedTrainingTokens } = this.#kernels.sizes;
      return trainingPass(this.#kernels, adapter, call, () =>
        this.#isSampling() ? sharedTrainingTokens : trainingTokens,
      );
    };
    return new Promise((resolve, reject) => {
      // The generator is made when its turn comes, so that it sees the adapter as the calls before left it.
      const steps = (async function* () {
        return yield* run();
      })();
      const done = (result: unknown) => resolve(result as ForwardBackwardResult);
      jobs.push({ kind: "training", steps, done, failed: reject });
    });
  }

  async optimStep(adapterId: string, adam: AdamSettings): Promise<{ metrics: Record<string, number> }> {
    return this.#once(this.#jobsOf(adapterId), true, async (jobs) => {
      const { gradNorm } = await this.#adapterOf(jobs, adapterId).step(adam);
      return { metrics: { "gradNorm:mean": gradNorm, "learningRate:mean": adam.learningRate } };
    });
  }

  async exportAdapter(adapterId: string, options: { optimizer: boolean }): Promise<AdapterState> {
    return this.#once(this.#jobsOf(adapterId), false, (jobs) =>
      this.#adapterOf(jobs, adapterId).export(options),
    );
  }

  async importAdapter(
    adapterId: string,
    baseModel: string,
    state: AdapterState,
    options: { optimizer: boolean },
  ): Promise<void> {
    const model = this.#model(baseModel);
    await this.#once(this.#jobsOf(adapterId), true, (jobs) => {
      const restored = LoraAdapter.restore(this.#kernels, model, state, options.optimizer);
      jobs.adapter?.close();
      jobs.adapter = restored;
    });
  }

  async cloneAdapter(fromId: string, toId: string): Promise<void> {
    const state: { copy: LoraAdapter | undefined; failed: boolean } = { copy: undefined, failed: false };
    const copied = this.#once(this.#jobsOf(fromId), false, (jobs) => {
      try {
        state.copy = this.#adapterOf(jobs, fromId).clone();
      } catch (error) {
        state.failed = true;
        throw error;
      }
    });
    // Queued now, so that a sample asked for right behind this call finds the copy.
    const placed = this.#once(
      this.#jobsOf(toId),
      true,
      (jobs) => {
        if (!state.copy) return;
        jobs.adapter?.close();
        jobs.adapter = state.copy;
      },
      () => state.copy !== undefined || state.failed,
    );
    await Promise.all([copied, placed]);
  }

  async removeAdapter(adapterId: string): Promise<void> {
    await this.#once(this.#jobsOf(adapterId), true, (jobs) => {
      jobs.adapter?.close();
      jobs.adapter = undefined;
    });
  }

  async memory(): Promise<EngineMemory> {
    let neededBytes = this.#modelBytes;
    for (const { adapter } of this.#adapters.values()) neededBytes += adapter?.bytes ?? 0;
    return { reservedBytes: this.#kernels.reservedBytes, neededBytes };
  }

  async copyAdapters(): Promise<AdapterCopy[]> {
    const copies: AdapterCopy[] = [];
    for (const [adapterId, { adapter }] of this.#adapters)
      if (adapter) copies.push({ adapterId, ...(await adapter.copy()) });
    return copies;
  }

  async placeAdapters(copies: AdapterCopy[]): Promise<void> {
    for (const copy of copies) {
      const { adapterId, baseModel } = copy;
      this.#jobsOf(adapterId).adapter = LoraAdapter.fromCopy(this.#kernels, this.#model(baseModel), copy);
    }
  }

  sample(call: SampleCall, onToken?: OnToken): Promise<SampleResult> {
    return new Promise((resolve, reject) => {
      if (this.#closed) throw closedError();
      const { adapterId } = call;
      if (adapterId === undefined) {
        this.#model(call.baseModel);
        resolve(this.#samplers.get(call.baseModel)!.submit(call, undefined, onToken));
      } else {
        const jobs = this.#jobsOf(adapterId);
        const start = async () => {
          try {
            const adapter = this.#adapterOf(jobs, adapterId);
            resolve(await this.#samplers.get(adapter.model.info.name)!.submit(call, adapter, onToken));
          } catch (error) {
            reject(error);
          }
        };
        jobs.push({ kind: "sample", requestId: call.requestId, start, failed: reject });
      }
      this.#wake();
    });
  }

  cancelSample(requestId: string): void {
    const error = new CancelledError(`sample request ${requestId} was cancelled`);
    for (const jobs of this.#adapters.values()) jobs.cancel(requestId, error);
    for (const sampler of this.#samplers.values()) sampler.cancel(requestId, error);
    this.#wake();
  }

  onLost(listener: OnLost): void {
    void this.#kernels.lost?.then((error) => {
      if (!this.#closed) listener(error);
    });
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    while (this.#looping) await this.#options.pause();
    for (const sampler of this.#samplers.values()) sampler.close();
    for (const jobs of this.#adapters.values()) jobs.close(closedError());
    await this.#kernels.close();
  }

  #model(name: string): BaseModel {
    const model = this.#models.get(name);
    if (!model) {
      const known = [...this.#models.keys()].join(", ");
      throw new EngineInputError(`the base model ${name} is not loaded; there is ${known}`);
    }
    return model;
  }

  #jobsOf(adapterId: string): AdapterJobs {
    if (this.#closed) throw closedError();
    let jobs = this.#adapters.get(adapterId);
    if (!jobs) {
      jobs = new AdapterJobs(() => this.#wake());
      this.#adapters.set(adapterId, jobs);
    }
    return jobs;
  }

  #adapterOf(jobs: AdapterJobs, adapterId: string): LoraAdapter {
    if (!jobs.adapter) throw new EngineInputError(`there is no adapter ${adapterId}`);
    return jobs.adapter;
  }

  #once<T>(
    jobs: AdapterJobs,
    alone: boolean,
    run: (jobs: AdapterJobs) => T | Promise<T>,
    ready: () => boolean = () => true,
  ): Promise<T> {
    return new Promise((resolve, failed) => {
      const runAndTell = async () => {
        try {
          resolve(await run(jobs));
        } catch (error) {
          failed(error);
        }
      };
      jobs.push({ kind: "once", alone, ready, run: runAndTell, failed });
    });
  }

  #isSampling(): boolean {
    return [...this.#samplers.values()].some((sampler) => sampler.hasWork);
  }

  #wake(): void {
    this.#isWoken = true;
    if (this.#looping || this.#closed) return;
    this.#looping = true;
    void this.#loop();
  }

  async #loop(): Promise<void> {
    // Calls made in the same turn are seen together.
    await Promise.resolve();
    while (!this.#closed) {
      this.#isWoken = false;
      const training = await this.#nextTraining();
      const samplers = [...this.#samplers.values()].filter((sampler) => sampler.hasWork);
      if (!training && samplers.length === 0) {
        if (this.#isWoken) continue;
        break;
      }
      if (!training || !samplers.length) {
        // Time that could not have been used is not owed.
        const most = Math.max(this.#usedMs.training, this.#usedMs.sampling);
        this.#usedMs.training = most;
        this.#usedMs.sampling = most;
      }
      const start = this.#options.now();
      if (training && (samplers.length === 0 || this.#usedMs.training <= this.#usedMs.sampling)) {
        await training.trainStep();
        this.#usedMs.training += this.#options.now() - start;
      } else {
        for (const sampler of samplers) await sampler.step();
        this.#usedMs.sampling += this.#options.now() - start;
      }
      await this.#options.pause();
    }
    this.#looping = false;
  }

  /** Runs what needs no step, and picks the adapter that trains next, in turn. */
  async #nextTraining(): Promise<AdapterJobs | undefined> {
    let ran: boolean;
    do {
      ran = false;
      for (const jobs of this.#adapters.values()) if (await jobs.advance()) ran = true;
      // One adapter's jobs may be waiting for another's.
    } while (ran);
    const ready: AdapterJobs[] = [];
    for (const [id, jobs] of this.#adapters) {
      if (jobs.isTrainingNext) ready.push(jobs);
      else if (jobs.isEmpty && !jobs.adapter) this.#adapters.delete(id);
    }
    if (ready.length === 0) return undefined;
    this.#lastTrained = (this.#lastTrained + 1) % ready.length;
    return ready[this.#lastTrained]!;
  }
}

const closedError = () => new CancelledError("the engine was closed");
