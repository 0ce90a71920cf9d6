/** One adapter: its low-rank weights, the gradients gathered since the last step, and the optimizer's moments. */

import { type AdamSettings, type AdapterState, EngineInputError, type LoraSettings } from "../engine.js";
import { allocAll, type F32, type Kernels } from "../kernels/kernels.js";
import type { BaseModel } from "../model/base-model.js";
import { initialiseLora, type LoraLayout, type LoraWeights, loraLayout } from "../model/lora.js";
import { readPiece, readPieces, writePiece } from "../model/tensor-layout.js";

let versions = 0;

export class Adapter {
  readonly model: BaseModel;
  readonly lora: LoraSettings;
  readonly weights: LoraWeights;
  readonly #kernels: Kernels;
  readonly #layout: LoraLayout;
  readonly #flat: F32;
  /** Allocated when first needed: an adapter that only samples holds weights alone. */
  #training: { grad: F32; gradients: LoraWeights; first: F32; second: F32 } | null = null;
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

  static create(kernels: Kernels, model: BaseModel, lora: LoraSettings): Adapter {
    const adapter = new Adapter(kernels, model, lora);
    initialiseLora(kernels, adapter.#flat, adapter.#layout, lora.seed);
    return adapter;
  }

  static restore(kernels: Kernels, model: BaseModel, state: AdapterState, optimizer: boolean): Adapter {
    const adapter = new Adapter(kernels, model, state.lora);
    try {
      adapter.#load(state, optimizer);
    } catch (error) {
      adapter.close();
      throw error;
    }
    return adapter;
  }

  /** Names this state of the weights: keys and values computed under another version are not reused. */
  get version(): number {
    return this.#version;
  }

  get parameters(): number {
    return this.#layout.length;
  }

  /** Where a backward pass adds to. */
  get gradients(): LoraWeights {
    return this.#state().gradients;
  }

  /** A copy that samples: weights only. */
  clone(): Adapter {
    const copy = new Adapter(this.#kernels, this.model, this.lora);
    this.#kernels.copy(copy.#flat, this.#flat);
    return copy;
  }

  step(adam: AdamSettings): { gradNorm: number } {
    const { grad, first, second } = this.#state();
    const gradNorm = Math.sqrt(this.#kernels.sumSquares(grad));
    this.#step += 1;
    this.#kernels.adamw(this.#flat, grad, first, second, {
      ...adam,
      step: this.#step,
      gradScale: clipScale(gradNorm, adam.gradClipNorm),
    });
    this.#kernels.zero(grad);
    this.#changed();
    return { gradNorm };
  }

  export(options: { optimizer: boolean }): AdapterState {
    const flat = this.#kernels.view(this.#flat);
    const { pieces } = this.#layout;
    const state: AdapterState = {
      lora: this.lora,
      tensors: Object.fromEntries(
        pieces.map((piece) => [piece.name, { shape: piece.shape, data: readPiece(flat, piece) }]),
      ),
    };
    if (options.optimizer) {
      const moments = this.#training;
      const empty = () =>
        Object.fromEntries(pieces.map((piece) => [piece.name, new Float32Array(sizeOf(piece))]));
      state.optimizer = {
        step: this.#step,
        first: moments ? readPieces(this.#kernels, moments.first, pieces) : empty(),
        second: moments ? readPieces(this.#kernels, moments.second, pieces) : empty(),
      };
    }
    return state;
  }

  /** What has been gathered since the last step, by PEFT name. */
  exportGradients(): Record<string, Float32Array> {
    return readPieces(this.#kernels, this.#state().grad, this.#layout.pieces);
  }

  close(): void {
    this.#kernels.free(this.#flat);
    if (this.#training) {
      for (const buffer of [this.#training.grad, this.#training.first, this.#training.second]) {
        this.#kernels.free(buffer);
      }
    }
    this.#training = null;
  }

  #state() {
    if (!this.#training) {
      const [grad, first, second] = this.#alloc(3) as [F32, F32, F32];
      this.#training = { grad, gradients: this.#layout.bind(grad), first, second };
    }
    return this.#training;
  }

  /** Nothing has changed when there is no memory, so that this is no failure of the engine. */
  #alloc(count: number): F32[] {
    try {
      return allocAll(this.#kernels, this.#layout.length, count);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new EngineInputError(`no room for an adapter of rank ${this.lora.rank}: ${error.message}`);
    }
  }

  #load(state: AdapterState, optimizer: boolean): void {
    const { pieces } = this.#layout;
    const known = new Set(pieces.map((piece) => piece.name));
    const unknown = Object.keys(state.tensors).find((name) => !known.has(name));
    if (unknown) throw new EngineInputError(`the adapter has a tensor this model cannot place: ${unknown}`);
    for (const piece of pieces) {
      const tensor = state.tensors[piece.name];
      if (!tensor) throw new EngineInputError(`the adapter lacks the tensor ${piece.name}`);
      writePiece(this.#kernels.view(this.#flat), piece, tensor);
    }
    if (!optimizer) return;
    if (!state.optimizer) throw new EngineInputError("the checkpoint has no optimizer state");
    const { first, second } = this.#state();
    for (const [buffer, moments] of [
      [first, state.optimizer.first],
      [second, state.optimizer.second],
    ] as const) {
      for (const piece of pieces) {
        const data = moments[piece.name];
        if (!data) throw new EngineInputError(`the optimizer state lacks ${piece.name}`);
        if (data.length !== sizeOf(piece)) {
          throw new EngineInputError(
            `the optimizer state of ${piece.name} has ${data.length} values, expected ${sizeOf(piece)}`,
          );
        }
        writePiece(this.#kernels.view(buffer), piece, { shape: piece.shape, data });
      }
    }
    this.#step = state.optimizer.step;
  }

  #changed(): void {
    versions += 1;
    this.#version = versions;
  }
}

const sizeOf = (piece: { shape: number[] }) => piece.shape.reduce((product, size) => product * size, 1);

/** Global-norm clipping as torch.nn.utils.clip_grad_norm_ does it. */
export function clipScale(gradNorm: number, maxNorm: number): number {
  if (!(maxNorm > 0)) return 1;
  return Math.min(1, maxNorm / (gradNorm + 1e-6));
}
