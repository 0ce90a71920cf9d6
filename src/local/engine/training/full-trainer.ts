/** Pretraining: the same decoder with every weight trainable, saved as a Hugging Face folder that can be continued. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { decodeSafetensors, encodeSafetensors } from "../../../checkpoints/safetensors.js";
import type { AdamSettings } from "../engine.js";
import { type F32, type Kernels, slice } from "../kernels/kernels.js";
import { type DecoderModel, readWeights } from "../model/base-model.js";
import { decoderForward, packSequences } from "../model/decoder.js";
import { decoderBackward } from "../model/decoder-backward.js";
import { type DecoderLayout, type DecoderWeights, decoderLayout } from "../model/decoder-weights.js";
import { type ModelConfig, parseModelConfig, readModelConfig } from "../model/model-config.js";
import { RopeTables } from "../model/rope.js";
import { readPiece, readPieces, writePiece } from "../model/tensor-layout.js";
import { normalArray } from "../philox.js";
import { clipScale } from "./adapter.js";
import { lossHead, uniformWeights } from "./loss-head.js";

export interface FullExample {
  tokens: Int32Array;
  /** The token wanted after each of `tokens`. */
  targets: Int32Array;
  /** Weight of each target in the loss; absent = 1. */
  weights?: Float32Array;
}

export interface FullStep {
  /** Mean over the weighted targets. */
  loss: number;
  tokens: number;
  gradNorm: number;
}

export interface FullTrainerOptions {
  /** Tokens in one forward and backward pass; more need more memory. */
  microTokens?: number;
}

const stateFile = "training-state.safetensors";

export class FullTrainer {
  readonly model: DecoderModel;
  readonly #kernels: Kernels;
  readonly #configJson: Record<string, unknown>;
  readonly #layout: DecoderLayout;
  readonly #flat: F32;
  readonly #grad: F32;
  readonly #first: F32;
  readonly #second: F32;
  readonly #gradients: DecoderWeights;
  /** With a tied head its part of the embedding's gradient is kept apart, so that splitting a batch changes nothing. */
  readonly #tiedHeadGradient: F32 | null;
  readonly #microTokens: number;
  #step = 0;

  private constructor(
    kernels: Kernels,
    configJson: Record<string, unknown>,
    config: ModelConfig,
    options: FullTrainerOptions,
  ) {
    this.#kernels = kernels;
    this.#configJson = configJson;
    this.#layout = decoderLayout(config);
    this.#flat = kernels.alloc(this.#layout.length);
    this.#grad = kernels.alloc(this.#layout.length);
    this.#first = kernels.alloc(this.#layout.length);
    this.#second = kernels.alloc(this.#layout.length);
    this.#gradients = this.#layout.bind(this.#grad);
    this.#tiedHeadGradient = config.tiedHead ? kernels.alloc(config.vocabSize * config.hiddenSize) : null;
    this.#microTokens = options.microTokens ?? 2048;
    this.model = {
      config,
      weights: this.#layout.bind(this.#flat),
      rope: new RopeTables(kernels, config),
    };
  }

  /** A fresh model: normal weights, those that write to the residual stream smaller by the root of their number. */
  static create(
    kernels: Kernels,
    configJson: Record<string, unknown>,
    options: FullTrainerOptions & { seed: number; deviation?: number },
  ): FullTrainer {
    const config = parseModelConfig(configJson, "new model");
    const trainer = new FullTrainer(kernels, configJson, config, options);
    const { seed, deviation = 0.02 } = options;
    const flat = kernels.view(trainer.#flat);
    trainer.#layout.pieces.forEach((piece, index) => {
      const length = piece.shape.reduce((product, size) => product * size, 1);
      let data: Float32Array;
      if (piece.shape.length === 2) {
        const residual = /\.(o_proj|down_proj)\.weight$/.test(piece.name);
        data = normalArray(
          length,
          residual ? deviation / Math.sqrt(2 * config.layers) : deviation,
          seed,
          index,
        );
      } else {
        data = new Float32Array(length).fill(piece.name.endsWith(".bias") ? 0 : 1);
      }
      writePiece(flat, piece, { shape: piece.shape, data });
    });
    return trainer;
  }

  /** A saved model; goes on exactly where it stopped when the folder holds the training state too. */
  static load(kernels: Kernels, folder: string, options: FullTrainerOptions = {}): FullTrainer {
    const configJson = JSON.parse(readFileSync(join(folder, "config.json"), "utf8")) as Record<
      string,
      unknown
    >;
    const trainer = new FullTrainer(kernels, configJson, readModelConfig(folder), options);
    const { pieces } = trainer.#layout;
    const state = join(folder, stateFile);
    if (!existsSync(state)) {
      readWeights(folder, pieces, kernels.view(trainer.#flat));
      return trainer;
    }
    const { tensors, metadata } = decodeSafetensors(readFileSync(state));
    const parts = [
      ["weights", trainer.#flat],
      ["first", trainer.#first],
      ["second", trainer.#second],
    ] as const;
    for (const [prefix, buffer] of parts) {
      for (const piece of pieces) {
        const tensor = tensors[`${prefix}.${piece.name}`];
        if (!tensor) throw new Error(`${state} lacks ${prefix}.${piece.name}`);
        writePiece(kernels.view(buffer), piece, tensor);
      }
    }
    trainer.#step = Number(metadata["step"]);
    return trainer;
  }

  get step(): number {
    return this.#step;
  }

  get parameters(): number {
    return this.#layout.length;
  }

  /** One optimizer step on the mean loss of the examples. */
  async train(examples: FullExample[], adam: AdamSettings): Promise<FullStep> {
    const kernels = this.#kernels;
    const total = examples.reduce((sum, example) => sum + weightOf(example), 0);
    const loss = await this.#pass(examples, 1 / total, true);
    if (this.#tiedHeadGradient) {
      kernels.add(this.#gradients.embedding, this.#gradients.embedding, this.#tiedHeadGradient);
      kernels.zero(this.#tiedHeadGradient);
    }
    const gradNorm = Math.sqrt(kernels.sumSquares(this.#grad));
    const gradScale = clipScale(gradNorm, adam.gradClipNorm);
    this.#step += 1;
    const { matrixLength, length } = this.#layout;
    const ranges: [number, number, number][] = [
      [0, matrixLength, adam.weightDecay],
      [matrixLength, length - matrixLength, 0],
    ];
    for (const [start, count, weightDecay] of ranges) {
      const part = (buffer: F32) => slice(buffer, start, count);
      kernels.adamw(part(this.#flat), part(this.#grad), part(this.#first), part(this.#second), {
        ...adam,
        weightDecay,
        step: this.#step,
        gradScale,
      });
    }
    kernels.zero(this.#grad);
    return { loss, tokens: examples.reduce((sum, example) => sum + example.tokens.length, 0), gradNorm };
  }

  /** The mean loss, without learning. */
  async evaluate(examples: FullExample[]): Promise<number> {
    const total = examples.reduce((sum, example) => sum + weightOf(example), 0);
    return this.#pass(examples, 1 / total, false);
  }

  /** Writes config.json and model.safetensors (f16 unless told otherwise), and with `state` all it takes to go on. */
  save(folder: string, options: { dtype?: "F16" | "F32"; state?: boolean } = {}): void {
    mkdirSync(folder, { recursive: true });
    const { dtype = "F16", state = false } = options;
    const { pieces } = this.#layout;
    const flat = this.#kernels.view(this.#flat);
    const tensors = Object.fromEntries(
      pieces.map((piece) => [piece.name, { shape: piece.shape, data: readPiece(flat, piece) }]),
    );
    const config = { ...this.#configJson, torch_dtype: dtype === "F16" ? "float16" : "float32" };
    writeFileSync(join(folder, "config.json"), `${JSON.stringify(config, null, 2)}\n`);
    writeFileSync(join(folder, "model.safetensors"), encodeSafetensors(tensors, { dtype }));
    if (!state) return;
    const everything: typeof tensors = {};
    for (const [prefix, buffer] of [
      ["weights", this.#flat],
      ["first", this.#first],
      ["second", this.#second],
    ] as const) {
      const values = readPieces(this.#kernels, buffer, pieces);
      for (const { name, shape } of pieces) everything[`${prefix}.${name}`] = { shape, data: values[name]! };
    }
    const metadata = { format: "pt", step: String(this.#step) };
    writeFileSync(join(folder, stateFile), encodeSafetensors(everything, { metadata }));
  }

  async #pass(examples: FullExample[], scale: number, learn: boolean): Promise<number> {
    const kernels = this.#kernels;
    const { hiddenSize } = this.model.config;
    const sums = { loss: 0, clipped: 0 };
    for (const group of microBatches(examples, this.#microTokens)) {
      const mark = kernels.mark();
      const packed = packSequences(
        kernels,
        group.map((example) => example.tokens),
      );
      const targets = new Int32Array(packed.rows);
      const inputs = uniformWeights(packed.rows, scale);
      let at = 0;
      for (const example of group) {
        targets.set(example.targets, at);
        if (example.weights)
          inputs.weights.set(
            example.weights.map((weight) => weight * scale),
            at,
          );
        at += example.tokens.length;
      }
      const kept = decoderForward(kernels, this.model, packed, null);
      const dhidden = learn ? kernels.scratch(packed.rows * hiddenSize) : null;
      const head = this.#tiedHeadGradient ?? this.#gradients.head;
      const result = await lossHead(
        kernels,
        this.model,
        kept,
        targets,
        1,
        "cross_entropy",
        inputs,
        sums,
        null,
        dhidden && { dhidden, gradients: { lora: null, head } },
      );
      if (dhidden) {
        decoderBackward(kernels, this.model, kept, dhidden, result.activeRows, null, {
          lora: null,
          weights: this.#gradients,
        });
      }
      kernels.release(mark);
    }
    return sums.loss;
  }
}

function weightOf(example: FullExample): number {
  return example.weights?.reduce((sum, weight) => sum + weight, 0) ?? example.tokens.length;
}

/** Consecutive items of at most so many tokens together, at least one each. */
export function microBatches<T extends { tokens: Int32Array }>(items: T[], maxTokens: number): T[][] {
  const groups: T[][] = [];
  let tokens = 0;
  for (const item of items) {
    const last = groups.at(-1);
    if (last && tokens + item.tokens.length <= maxTokens) {
      last.push(item);
      tokens += item.tokens.length;
    } else {
      groups.push([item]);
      tokens = item.tokens.length;
    }
  }
  return groups;
}
