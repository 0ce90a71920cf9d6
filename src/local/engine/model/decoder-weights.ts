/** All weights of a decoder in one flat buffer: the matrices first (they decay in full training), then the vectors. */

import { type F32, type Kernels, type Matrix, slice } from "../kernels/kernels.js";
import type { ModelConfig } from "./model-config.js";
import { LayoutBuilder, type Piece } from "./tensor-layout.js";

/** `M` is F32 where weights are trained, and may be packed where they are frozen. */
export interface LayerWeights<M extends Matrix = F32> {
  inputNorm: F32;
  /** [hidden, q + k + v]. */
  qkv: M;
  qkvBias: F32 | null;
  qNorm: F32 | null;
  kNorm: F32 | null;
  /** [q, hidden]. */
  output: M;
  outputBias: F32 | null;
  postNorm: F32;
  /** [hidden, gate + up]. */
  gateUp: M;
  /** [intermediate, hidden]. */
  down: M;
}

export interface DecoderWeights<M extends Matrix = F32> {
  embedding: F32;
  layers: LayerWeights<M>[];
  finalNorm: F32;
  /** [hidden, vocab], or [vocab, hidden] when `headIsEmbedding`. */
  head: M;
  headIsEmbedding: boolean;
}

type Range = { start: number; length: number };
type LayerRanges = { [name in keyof LayerWeights]: LayerWeights[name] extends F32 ? Range : Range | null };

export interface DecoderLayout {
  pieces: Piece[];
  length: number;
  /** Matrices end and vectors begin here. */
  matrixLength: number;
  bind(flat: F32): DecoderWeights;
}

export function decoderLayout(config: ModelConfig): DecoderLayout {
  const { hiddenSize, heads, kvHeads, headDim, intermediateSize, vocabSize } = config;
  const queryWidth = heads * headDim;
  const keyWidth = kvHeads * headDim;
  const builder = new LayoutBuilder();
  const prefix = (layer: number) => `model.layers.${layer}`;
  const embedding = builder.plain("model.embed_tokens.weight", [vocabSize, hiddenSize]);
  const matrices = Array.from({ length: config.layers }, (_, layer) => {
    const attention = `${prefix(layer)}.self_attn`;
    const mlp = `${prefix(layer)}.mlp`;
    return {
      qkv: builder.linear(hiddenSize, [
        { name: `${attention}.q_proj.weight`, cols: queryWidth },
        { name: `${attention}.k_proj.weight`, cols: keyWidth },
        { name: `${attention}.v_proj.weight`, cols: keyWidth },
      ]),
      output: builder.linear(queryWidth, [{ name: `${attention}.o_proj.weight`, cols: hiddenSize }]),
      gateUp: builder.linear(hiddenSize, [
        { name: `${mlp}.gate_proj.weight`, cols: intermediateSize },
        { name: `${mlp}.up_proj.weight`, cols: intermediateSize },
      ]),
      down: builder.linear(intermediateSize, [{ name: `${mlp}.down_proj.weight`, cols: hiddenSize }]),
    };
  });
  const head = config.tiedHead
    ? embedding
    : builder.linear(hiddenSize, [{ name: "lm_head.weight", cols: vocabSize }]);
  const matrixLength = builder.length;
  const layers: LayerRanges[] = matrices.map((matrix, layer) => {
    const attention = `${prefix(layer)}.self_attn`;
    const biases = (names: [string, number][]) =>
      builder.vectors(names.map(([name, length]) => ({ name: `${attention}.${name}.bias`, length })));
    return {
      ...matrix,
      inputNorm: builder.plain(`${prefix(layer)}.input_layernorm.weight`, [hiddenSize]),
      postNorm: builder.plain(`${prefix(layer)}.post_attention_layernorm.weight`, [hiddenSize]),
      qNorm: config.qkNorm ? builder.plain(`${attention}.q_norm.weight`, [headDim]) : null,
      kNorm: config.qkNorm ? builder.plain(`${attention}.k_norm.weight`, [headDim]) : null,
      qkvBias: config.qkvBias
        ? biases([
            ["q_proj", queryWidth],
            ["k_proj", keyWidth],
            ["v_proj", keyWidth],
          ])
        : null,
      outputBias: config.outputBias ? biases([["o_proj", hiddenSize]]) : null,
    };
  });
  const finalNorm = builder.plain("model.norm.weight", [hiddenSize]);
  return {
    pieces: builder.pieces,
    length: builder.length,
    matrixLength,
    bind(flat) {
      const part = (range: Range) => slice(flat, range.start, range.length);
      const optional = (range: Range | null) => (range ? part(range) : null);
      return {
        embedding: part(embedding),
        layers: layers.map((layer) => ({
          inputNorm: part(layer.inputNorm),
          qkv: part(layer.qkv),
          qkvBias: optional(layer.qkvBias),
          qNorm: optional(layer.qNorm),
          kNorm: optional(layer.kNorm),
          output: part(layer.output),
          outputBias: optional(layer.outputBias),
          postNorm: part(layer.postNorm),
          gateUp: part(layer.gateUp),
          down: part(layer.down),
        })),
        finalNorm: part(finalNorm),
        head: part(head),
        headIsEmbedding: config.tiedHead,
      };
    },
  };
}

/** Larger matrices stay as they are: packing takes a second copy for a moment, a tied head one for good. */
const maxPackedBytes = 64 << 20;

/** Frozen weights as products read them fastest; rearranges `weights` where they lie. */
export function packWeights(
  kernels: Kernels,
  weights: DecoderWeights,
  config: ModelConfig,
): DecoderWeights<Matrix> {
  const { hiddenSize, heads, kvHeads, headDim, intermediateSize, vocabSize } = config;
  const queryWidth = heads * headDim;
  const fits = (rows: number, cols: number) => 4 * rows * cols <= maxPackedBytes;
  const pack = (matrix: F32, rows: number, cols: number): Matrix => {
    if (!fits(rows, cols)) return matrix;
    const mark = kernels.mark();
    const copy = kernels.scratch(rows * cols);
    kernels.copy(copy, matrix);
    const packed = kernels.pack(matrix, copy, rows, cols);
    kernels.release(mark);
    return packed;
  };
  const packHead = (): Pick<DecoderWeights<Matrix>, "head" | "headIsEmbedding"> => {
    const { head, headIsEmbedding } = weights;
    if (!headIsEmbedding) return { head: pack(head, hiddenSize, vocabSize), headIsEmbedding };
    if (!fits(hiddenSize, vocabSize)) return { head, headIsEmbedding };
    const turned = kernels.alloc(hiddenSize * vocabSize);
    const from = kernels.view(head);
    const to = kernels.view(turned);
    for (let token = 0; token < vocabSize; token++) {
      for (let i = 0; i < hiddenSize; i++) to[i * vocabSize + token] = from[token * hiddenSize + i]!;
    }
    return { head: pack(turned, hiddenSize, vocabSize), headIsEmbedding: false };
  };
  return {
    ...weights,
    layers: weights.layers.map((layer) => ({
      ...layer,
      qkv: pack(layer.qkv, hiddenSize, queryWidth + 2 * kvHeads * headDim),
      output: pack(layer.output, queryWidth, hiddenSize),
      gateUp: pack(layer.gateUp, hiddenSize, 2 * intermediateSize),
      down: pack(layer.down, intermediateSize, hiddenSize),
    })),
    ...packHead(),
  };
}
