import {
  type AdamSettings,
  type AdapterCopy,
  type AdapterState,
  EngineInputError,
  type LoraSettings,
} from "../engine.js";
import { allocAll, type F32, type Kernels } from "../kernels/kernels.js";
import type { BaseModel } from "../model/base-model.js";
import { initialiseLora, type LoraLayout, type LoraWeights, loraLayout } from "../model/lora.js";
import {
  type FileTensor,
  readTensors,
  sizeOf,
  type TensorPlace,
  writeTensors,
} from "../model/tensor-layout.js";

let lastVersion = 0;

/** One adapter: its low-rank weights, the gradients gathered since the last step, and the optimizer's moments. */
export class LoraAdapter {
  readonly model: BaseModel;
  readonly lora: LoraSettings;
  readonly weights: LoraWeights;
  readonly #kernels: Kernels;
  readonly #layout: LoraLayout;
  readonly #flat: F32;
  /** Allocated when first needed: an adapter that only samples holds weights alone. */
  #training: { gradients: F32; first: F32; second: F32 } | undefined;
  #boundGradients: LoraWeights | undefined;
  #step = 0;
  #version = 0;

  constructor(kernels: Kernels, model: BaseModel, lora: LoraSettings) {
    this.#kernels = kernels;
    this.model = model;
    this.lora = lora;
    this.#layout = loraLayout(model.config, lora);
    this.#flat = this.#alloc(1)[0]!;
    this.weights = this.#layout.bind(this.#flat);
    this.#changed();
  }

  /** A new one, which changes nothing of what the model computes. */
  static create(kernels: Kernels, model: BaseModel, lora: LoraSettings): LoraAdapter {
    const adapter = new LoraAdapter(kernels, model, lora);
    initialiseLora(kernels, adapter.#flat, adapter.#layout, lora.seed);
    return adapter;
  }

  /** A saved one, with or without its optimizer state. */
  static restore(kernels: Kernels, model: BaseModel, state: AdapterState, optimizer: boolean): LoraAdapter {
    const adapter = new LoraAdapter(kernels, model, state.lora);
    try {
      adapter.#load(state, optimizer);
    } catch (error) {
      adapter.close();
      throw error;
    }
    return adapter;
  }

  /** One that goes on where the copied one was, to the last bit. */
  static fromCopy(kernels: Kernels, model: BaseModel, copy: Omit<AdapterCopy, "adapterId">): LoraAdapter {
    const adapter = new LoraAdapter(kernels, model, copy.lora);
    kernels.upload(adapter.#flat, copy.weights);
    if (copy.training) {
      const buffers = adapter.#trainingState();
      kernels.upload(buffers.gradients, copy.training.gradients);
      kernels.upload(buffers.first, copy.training.first);
      kernels.upload(buffers.second, copy.training.second);
    }
    adapter.#step = copy.step;
    return adapter;
  }

  /** Names this state of the weights: keys and values computed under another version are not reused. */
  get version(): number {
    return this.#version;
  }

  get parameters(): number {
    return this.#layout.length;
  }

  /** Bytes of the kernels' memory. */
  get bytes(): number {
    return 4 * this.#layout.length * (this.#training ? 4 : 1);
  }

  /** Where a backward pass adds to. */
  get gradients(): LoraWeights {
    this.#boundGradients ??= this.#layout.bind(this.#trainingState().gradients);
    return this.#boundGradients;
  }

  /** Copies the gradients gathered so far, so that a pass that fails in its middle can be undone. */
  backUpGradients(): { restore(): void; free(): void } {
    const { gradients } = this.#trainingState();
    const copy = this.#alloc(1)[0]!;
    this.#kernels.copy(copy, gradients);
    return {
      restore: () => this.#kernels.copy(gradients, copy),
      free: () => this.#kernels.free(copy),
    };
  }

  /** A copy that samples: weights only. */
  clone(): LoraAdapter {
    const copy = new LoraAdapter(this.#kernels, this.model, this.lora);
    this.#kernels.copy(copy.#flat, this.#flat);
    return copy;
  }

  /** Everything there is of it, outside of the kernels' memory. */
  async copy(): Promise<Omit<AdapterCopy, "adapterId">> {
    const read = (buffer: F32) => this.#kernels.download(buffer);
    const weights = await read(this.#flat);
    const copy = { baseModel: this.model.info.name, lora: this.lora, step: this.#step, weights };
    if (!this.#training) return copy;
    const { gradients, first, second } = this.#training;
    const training = {
      gradients: await read(gradients),
      first: await read(first),
      second: await read(second),
    };
    return { ...copy, training };
  }

  /** One optimizer step along the gradients, which are zero afterwards. */
  async step(adam: AdamSettings): Promise<{ gradNorm: number }> {
    const { gradients, first, second } = this.#trainingState();
    const gradNorm = Math.sqrt(await this.#kernels.sumSquares(gradients));
    this.#step += 1;
    this.#kernels.adamw(this.#flat, gradients, first, second, {
      ...adam,
      step: this.#step,
      gradScale: clipScale(gradNorm, adam.gradClipNorm),
    });
    this.#kernels.zero(gradients);
    this.#changed();
    return { gradNorm };
  }

  /** The weights by PEFT name, and the optimizer's moments where they are asked for. */
  async export(options: { optimizer: boolean }): Promise<AdapterState> {
    const state: AdapterState = { lora: this.lora, tensors: await this.#read(this.#flat) };
    if (options.optimizer) {
      const step = this.#step;
      const first = valuesOf(await this.#read(this.#training?.first));
      state.optimizer = { step, first, second: valuesOf(await this.#read(this.#training?.second)) };
    }
    return state;
  }

  /** Gradients since the last step, by PEFT name. */
  async exportGradients(): Promise<Record<string, Float32Array>> {
    return valuesOf(await this.#read(this.#trainingState().gradients));
  }

  close(): void {
    this.#kernels.free(this.#flat);
    for (const buffer of Object.values(this.#training ?? {})) this.#kernels.free(buffer);
    this.#training = undefined;
  }

  #trainingState() {
    if (!this.#training) {
      const [gradients, first, second] = this.#alloc(3) as [F32, F32, F32];
      this.#training = { gradients, first, second };
    }
    return this.#training;
  }

  /** Zeros where there is no buffer yet. */
  async #read(flat: F32 | undefined): Promise<Record<string, FileTensor>> {
    const { places } = this.#layout;
    if (flat) return readTensors(this.#kernels, flat, places);
    return Object.fromEntries(
      places.map((place) => [place.name, { shape: place.shape, data: new Float32Array(sizeOf(place)) }]),
    );
  }

  /** Nothing has changed when there is no memory, so the engine has not failed. */
  #alloc(count: number): F32[] {
    try {
      return allocAll(this.#kernels, this.#layout.length, count);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new EngineInputError(`no room for an adapter of rank ${this.lora.rank}: ${error.message}`);
    }
  }

  #load(state: AdapterState, optimizer: boolean): void {
    const known = new Set(this.#layout.places.map((place) => place.name));
    const unknown = Object.keys(state.tensors).find((name) => !known.has(name));
    if (unknown) throw new EngineInputError(`the adapter has a tensor this model cannot place: ${unknown}`);
    this.#write(this.#flat, ({ name }) => {
      const tensor = state.tensors[name];
      if (!tensor) throw new EngineInputError(`the adapter lacks the tensor ${name}`);
      return tensor;
    });
    if (!optimizer) return;
    if (!state.optimizer) throw new EngineInputError("the checkpoint has no optimizer state");
    const { first, second } = this.#trainingState();
    for (const [buffer, moments] of [
      [first, state.optimizer.first],
      [second, state.optimizer.second],
    ] as const) {
      this.#write(buffer, (place) => {
        const { name, shape } = place;
        const data = moments[name];
        if (!data) throw new EngineInputError(`the optimizer state lacks ${name}`);
        if (data.length !== sizeOf(place)) {
          throw new EngineInputError(
            `the optimizer state of ${name} has ${data.length} values, expected ${sizeOf(place)}`,
          );
        }
        return { shape, data };
      });
    }
    this.#step = state.optimizer.step;
  }

  #write(flat: F32, tensorOf: (place: TensorPlace) => FileTensor): void {
    writeTensors(
      this.#kernels,
      flat,
      this.#layout.places.map((place) => [place, tensorOf(place)] as const),
    );
  }

  #changed(): void {
    lastVersion += 1;
    this.#version = lastVersion;
  }
}

const valuesOf = (tensors: Record<string, FileTensor>) =>
  Object.fromEntries(Object.entries(tensors).map(([name, { data }]) => [name, data]));

/** Global-norm clipping as torch.nn.utils.clip_grad_norm_ does it. */
export function clipScale(gradNorm: number, maxNorm: number): number {
  if (!(maxNorm > 0)) return 1;
  return Math.min(1, maxNorm / (gradNorm + 1e-6));
}
