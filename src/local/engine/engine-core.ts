/** The engine in one thread: owns models, adapters and samplers, and shares its time fairly between training and sampling. */

import { AdapterJobs } from "./adapter-jobs.js";
import {
  type AdamSettings,
  type AdapterState,
  type BaseModelInfo,
  CancelledError,
  type Engine,
  EngineInputError,
  type ForwardBackwardCall,
  type ForwardBackwardResult,
  type LoraSettings,
  type SampleCall,
  type SampleResult,
} from "./engine.js";
import type { Kernels } from "./kernels/kernels.js";
import { type BaseModel, loadBaseModel } from "./model/base-model.js";
import { BatchSampler } from "./sampling/batch-sampler.js";
import { tokenizerDecode } from "./sampling/stop-condition.js";
import { Adapter } from "./training/adapter.js";
import { largestStep, trainingPass } from "./training/training-pass.js";

export interface EngineCoreOptions {
  kernels: Kernels;
  models: { name: string; path: string }[];
  cacheBytes: number;
  freshSeed: () => number;
  /** Milliseconds, for sharing time; any steady clock. */
  now: () => number;
  /** Lets messages in between two steps. */
  pause: () => Promise<void>;
}

/** Tokens in a training step: fewer while samples wait for their turn. */
const stepTokens = { alone: largestStep, shared: 256 };

export class EngineCore implements Engine {
  readonly #options: EngineCoreOptions;
  readonly #kernels: Kernels;
  readonly #models = new Map<string, BaseModel>();
  readonly #samplers = new Map<string, BatchSampler>();
  readonly #queues = new Map<string, AdapterJobs>();
  /** Time used by each side; the one that has had less goes next. */
  readonly #used = { training: 0, sampling: 0 };
  #looping = false;
  #closed = false;
  #lastTrained = 0;

  constructor(options: EngineCoreOptions) {
    this.#options = options;
    this.#kernels = options.kernels;
    for (const { name, path } of options.models) {
      const model = loadBaseModel(options.kernels, name, path);
      this.#models.set(name, model);
      const { cacheBytes, freshSeed } = options;
      const sampler = new BatchSampler(options.kernels, model, {
        cacheBytes,
        freshSeed,
        decode: tokenizerDecode(path),
      });
      // A longer one could not be sampled: callers are told before they try.
      model.info.maxContextLength = Math.min(model.config.maxPositions, sampler.maxSequenceTokens);
      this.#samplers.set(name, sampler);
    }
  }

  async models(): Promise<BaseModelInfo[]> {
    return [...this.#models.values()].map((model) => model.info);
  }

  async createAdapter(adapterId: string, baseModel: string, lora: LoraSettings): Promise<void> {
    const model = this.#model(baseModel);
    await this.#once(this.#queueFor(adapterId), true, (queue) => {
      if (queue.adapter) throw new EngineInputError(`there already is an adapter ${adapterId}`);
      queue.adapter = Adapter.create(this.#kernels, model, lora);
    });
  }

  async forwardBackward(call: ForwardBackwardCall): Promise<ForwardBackwardResult> {
    const queue = this.#queueFor(call.adapterId);
    const run = (): AsyncGenerator<void, ForwardBackwardResult> => {
      const adapter = this.#adapterOf(queue, call.adapterId);
      return trainingPass(this.#kernels, adapter, call, () =>
        this.#sampling() ? stepTokens.shared : stepTokens.alone,
      );
    };
    return new Promise((resolve, reject) => {
      // The generator is made when its turn comes, so that it sees the adapter as the calls before left it.
      const steps = (async function* () {
        return yield* run();
      })();
      const done = (result: unknown) => resolve(result as ForwardBackwardResult);
      queue.push({ kind: "steps", steps, done, failed: reject });
    });
  }

  async optimStep(adapterId: string, adam: AdamSettings): Promise<{ metrics: Record<string, number> }> {
    checkAdam(adam);
    return this.#once(this.#queueFor(adapterId), true, (queue) => {
      const { gradNorm } = this.#adapterOf(queue, adapterId).step(adam);
      return { metrics: { "grad_norm:mean": gradNorm, "learning_rate:mean": adam.learningRate } };
    });
  }

  async exportAdapter(adapterId: string, options: { optimizer: boolean }): Promise<AdapterState> {
    return this.#once(this.#queueFor(adapterId), false, (queue) =>
      this.#adapterOf(queue, adapterId).export(options),
    );
  }

  async importAdapter(
    adapterId: string,
    baseModel: string,
    state: AdapterState,
    options: { optimizer: boolean },
  ): Promise<void> {
    const model = this.#model(baseModel);
    await this.#once(this.#queueFor(adapterId), true, (queue) => {
      const restored = Adapter.restore(this.#kernels, model, state, options.optimizer);
      queue.adapter?.close();
      queue.adapter = restored;
    });
  }

  async cloneAdapter(fromId: string, toId: string): Promise<void> {
    const state: { copy: Adapter | null; failed: boolean } = { copy: null, failed: false };
    const copied = this.#once(this.#queueFor(fromId), false, (queue) => {
      try {
        state.copy = this.#adapterOf(queue, fromId).clone();
      } catch (error) {
        state.failed = true;
        throw error;
      }
    });
    // Queued now, so that a sample asked for right behind this call finds the copy.
    const placed = this.#once(
      this.#queueFor(toId),
      true,
      (queue) => {
        if (!state.copy) return;
        queue.adapter?.close();
        queue.adapter = state.copy;
      },
      () => state.copy !== null || state.failed,
    );
    await Promise.all([copied, placed]);
  }

  async removeAdapter(adapterId: string): Promise<void> {
    await this.#once(this.#queueFor(adapterId), true, (queue) => {
      queue.adapter?.close();
      queue.adapter = null;
    });
  }

  sample(call: SampleCall): Promise<SampleResult> {
    return new Promise((resolve, reject) => {
      if (this.#closed) throw closedError();
      if (call.adapterId === null) {
        this.#model(call.baseModel);
        resolve(this.#samplers.get(call.baseModel)!.submit(call, null));
      } else {
        const { adapterId } = call;
        const queue = this.#queueFor(adapterId);
        const start = async () => {
          try {
            const adapter = this.#adapterOf(queue, adapterId);
            resolve(await this.#samplers.get(adapter.model.info.name)!.submit(call, adapter));
          } catch (error) {
            reject(error);
          }
        };
        queue.push({ kind: "start", requestId: call.requestId, start, failed: reject });
      }
      this.#wake();
    });
  }

  cancelSample(requestId: string): void {
    const error = new CancelledError(`sample request ${requestId} was cancelled`);
    for (const queue of this.#queues.values()) queue.cancel(requestId, error);
    for (const sampler of this.#samplers.values()) sampler.cancel(requestId, error);
    this.#wake();
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    while (this.#looping) await this.#options.pause();
    for (const sampler of this.#samplers.values()) sampler.close();
    for (const queue of this.#queues.values()) queue.close(closedError());
    await this.#kernels.close();
  }

  #model(name: string): BaseModel {
    const model = this.#models.get(name);
    if (!model) {
      const known = [...this.#models.keys()].join(", ");
      throw new EngineInputError(`base_model ${name} is not loaded; there is ${known}`);
    }
    return model;
  }

  #queueFor(adapterId: string): AdapterJobs {
    if (this.#closed) throw closedError();
    let queue = this.#queues.get(adapterId);
    if (!queue) {
      queue = new AdapterJobs(() => this.#wake());
      this.#queues.set(adapterId, queue);
    }
    return queue;
  }

  #adapterOf(queue: AdapterJobs, adapterId: string): Adapter {
    if (!queue.adapter) throw new EngineInputError(`there is no adapter ${adapterId}`);
    return queue.adapter;
  }

  #once<T>(
    queue: AdapterJobs,
    alone: boolean,
    run: (queue: AdapterJobs) => T,
    ready: () => boolean = () => true,
  ): Promise<T> {
    return new Promise((resolve, failed) => {
      const runAndTell = () => {
        try {
          resolve(run(queue));
        } catch (error) {
          failed(error);
        }
      };
      queue.push({ kind: "once", alone, ready, run: runAndTell, failed });
    });
  }

  #sampling(): boolean {
    return [...this.#samplers.values()].some((sampler) => sampler.hasWork);
  }

  #wake(): void {
    if (this.#looping || this.#closed) return;
    this.#looping = true;
    void this.#loop();
  }

  async #loop(): Promise<void> {
    // Calls made in the same turn are seen together.
    await Promise.resolve();
    while (!this.#closed) {
      const training = this.#nextTraining();
      const samplers = [...this.#samplers.values()].filter((sampler) => sampler.hasWork);
      if (!training && samplers.length === 0) break;
      if (!training || !samplers.length) {
        // Nobody is owed time that could not have been used.
        const most = Math.max(this.#used.training, this.#used.sampling);
        this.#used.training = most;
        this.#used.sampling = most;
      }
      const start = this.#options.now();
      if (training && (samplers.length === 0 || this.#used.training <= this.#used.sampling)) {
        await training.step();
        this.#used.training += this.#options.now() - start;
      } else {
        for (const sampler of samplers) await sampler.step();
        this.#used.sampling += this.#options.now() - start;
      }
      await this.#options.pause();
    }
    this.#looping = false;
  }

  /** Runs what needs no step, and picks the adapter that trains next, in turn. */
  #nextTraining(): AdapterJobs | null {
    // What one queue runs may be what another waits for.
    while ([...this.#queues.values()].map((queue) => queue.advance()).includes(true));
    const ready: AdapterJobs[] = [];
    for (const [id, queue] of this.#queues) {
      if (queue.trains) ready.push(queue);
      else if (queue.isEmpty && !queue.adapter) this.#queues.delete(id);
    }
    if (ready.length === 0) return null;
    this.#lastTrained = (this.#lastTrained + 1) % ready.length;
    return ready[this.#lastTrained]!;
  }
}

const closedError = () => new CancelledError("the engine was closed");

function checkAdam(adam: AdamSettings): void {
  const checks: [keyof AdamSettings, boolean, string][] = [
    ["learningRate", adam.learningRate >= 0, "at least 0"],
    ["beta1", adam.beta1 >= 0 && adam.beta1 < 1, "from 0 up to, not including, 1"],
    ["beta2", adam.beta2 >= 0 && adam.beta2 < 1, "from 0 up to, not including, 1"],
    ["eps", adam.eps >= 0, "at least 0"],
    ["weightDecay", adam.weightDecay >= 0, "at least 0"],
    ["gradClipNorm", adam.gradClipNorm >= 0, "at least 0"],
  ];
  for (const [name, fine, expected] of checks) {
    const wireName = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    if (!fine) throw new EngineInputError(`adam_params.${wireName} must be ${expected}, got ${adam[name]}`);
  }
}
