import type { AdamSettings } from "../src/local/engine/engine.js";
import type { Kernels } from "../src/local/engine/kernels/kernels.js";
import type { DecoderModel } from "../src/local/engine/model/base-model.js";
/** One sequence to learn from. */
export interface FullExample {
  tokens: Int32Array;
  /** The token wanted after each of `tokens`. */
  targets: Int32Array;
  /** Weight of each target in the loss; absent = 1. */
  weights?: Float32Array;
}
/** The result of an optimizer step. */
export interface FullStep {
  /** Mean over the weighted targets. */
  loss: number;
  tokens: number;
  gradNorm: number;
}
/** How a trainer divides its work. */
export interface FullTrainerOptions {
  /** Tokens in one forward and backward pass; more need more memory. */
  microTokens?: number;
}
/** Pretraining: the same decoder with every weight trainable, saved as a Hugging Face folder that can be continued. */
export declare class FullTrainer {
  readonly model: DecoderModel;
  private constructor();
  /** A fresh model: normal weights, those that write to the residual stream smaller by the root of their number. */
  static create(
    kernels: Kernels,
    configJson: Record<string, unknown>,
    options: FullTrainerOptions & {
      seed: number;
      deviation?: number;
    },
  ): FullTrainer;
  /** A saved model; goes on exactly where it stopped when the folder holds the training state too. */
  static load(kernels: Kernels, folder: string, options?: FullTrainerOptions): FullTrainer;
  get step(): number;
  get parameters(): number;
  /** One optimizer step on the mean loss of the examples. */
  train(examples: FullExample[], adam: AdamSettings): Promise<FullStep>;
  /** The mean loss, without learning. */
  evaluate(examples: FullExample[]): Promise<number>;
  /** Writes config.json and model.safetensors (f16 by default), and with `state` everything needed to continue. */
  save(
    folder: string,
    options?: {
      dtype?: "F16" | "F32";
      state?: boolean;
    },
  ): Promise<void>;
}
/** Consecutive items of at most so many tokens together, at least one each. */
export declare function microBatches<
  T extends {
    tokens: Int32Array;
  },
>(items: T[], maxTokens: number): T[][];
