/** One adapter's low-rank matrices in a flat buffer, laid out so that inputs shared by several layers need one product. */

import { EngineInputError, type LoraSettings, loraAlpha } from "../engine.js";
import { type F32, type Kernels, slice } from "../kernels/kernels.js";
import { uniformArray } from "../philox.js";
import type { ModelConfig } from "./model-config.js";
import { LayoutBuilder, type Piece, writePiece } from "./tensor-layout.js";

/** Adapters of the linear layers that read the same input: one A side by side, one B for each. */
export interface LoraGroup {
  /** [in, parts * rank]. */
  a: F32;
  /** Per layer: [rank, out], and the column where its output starts in the fused output. */
  b: { matrix: F32; column: number; cols: number }[];
}

export interface LoraLayer {
  qkv: LoraGroup | null;
  output: LoraGroup | null;
  gateUp: LoraGroup | null;
  down: LoraGroup | null;
}

export interface LoraWeights {
  rank: number;
  scaling: number;
  layers: LoraLayer[];
  head: LoraGroup | null;
}

export interface LoraLayout {
  pieces: Piece[];
  length: number;
  bind(flat: F32): LoraWeights;
}

interface GroupRange {
  a: { start: number; length: number };
  b: { start: number; length: number; column: number; cols: number }[];
}

export function loraLayout(config: ModelConfig, lora: LoraSettings): LoraLayout {
  const { hiddenSize, heads, kvHeads, headDim, intermediateSize, vocabSize } = config;
  const { rank } = lora;
  if (!Number.isInteger(rank) || rank < 1 || rank > 1024) {
    throw new EngineInputError(`lora_config.rank must be a whole number from 1 to 1024, got ${rank}`);
  }
  const queryWidth = heads * headDim;
  const keyWidth = kvHeads * headDim;
  const builder = new LayoutBuilder();
  const group = (
    wanted: boolean,
    prefix: string,
    input: number,
    parts: [string, number][],
  ): GroupRange | null => {
    if (!wanted) return null;
    const a = builder.linear(
      input,
      parts.map(([name]) => ({ name: `base_model.model.${prefix}${name}.lora_A.weight`, cols: rank })),
    );
    let column = 0;
    const b = parts.map(([name, cols]) => {
      const range = builder.linear(rank, [{ name: `base_model.model.${prefix}${name}.lora_B.weight`, cols }]);
      column += cols;
      return { ...range, column: column - cols, cols };
    });
    return { a, b };
  };
  const layers = Array.from({ length: config.layers }, (_, layer) => {
    const attention = `model.layers.${layer}.self_attn.`;
    const mlp = `model.layers.${layer}.mlp.`;
    return {
      qkv: group(lora.trainAttn, attention, hiddenSize, [
        ["q_proj", queryWidth],
        ["k_proj", keyWidth],
        ["v_proj", keyWidth],
      ]),
      output: group(lora.trainAttn, attention, queryWidth, [["o_proj", hiddenSize]]),
      gateUp: group(lora.trainMlp, mlp, hiddenSize, [
        ["gate_proj", intermediateSize],
        ["up_proj", intermediateSize],
      ]),
      down: group(lora.trainMlp, mlp, intermediateSize, [["down_proj", hiddenSize]]),
    };
  });
  const head = group(lora.trainUnembed, "", hiddenSize, [["lm_head", vocabSize]]);
  if (builder.length === 0) {
    throw new EngineInputError(
      "lora_config trains nothing: train_attn, train_mlp and train_unembed are all false",
    );
  }
  return {
    pieces: builder.pieces,
    length: builder.length,
    bind(flat) {
      const bindGroup = (range: GroupRange | null): LoraGroup | null =>
        range && {
          a: slice(flat, range.a.start, range.a.length),
          b: range.b.map(({ start, length, column, cols }) => ({
            matrix: slice(flat, start, length),
            column,
            cols,
          })),
        };
      return {
        rank,
        scaling: loraAlpha / rank,
        layers: layers.map((layer) => ({
          qkv: bindGroup(layer.qkv),
          output: bindGroup(layer.output),
          gateUp: bindGroup(layer.gateUp),
          down: bindGroup(layer.down),
        })),
        head: bindGroup(head),
      };
    },
  };
}

/** PEFT's defaults: A uniform within 1 / sqrt(in), B zero, so that a new adapter changes nothing. */
export function initialiseLora(kernels: Kernels, flat: F32, layout: LoraLayout, seed: number): void {
  const view = kernels.view(flat);
  view.fill(0);
  layout.pieces.forEach((piece, index) => {
    if (!piece.name.endsWith("lora_A.weight")) return;
    const [rank, input] = piece.shape as [number, number];
    const data = uniformArray(rank * input, 1 / Math.sqrt(input), seed, index);
    writePiece(view, piece, { shape: piece.shape, data });
  });
}
