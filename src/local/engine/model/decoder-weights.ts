import { type F32, type Matrix, sliceBuffer } from "../kernels/kernels.js";
import type { LinearLayer } from "./linear.js";
import { attentionWidths, type ModelConfig } from "./model-config.js";
import { LayoutBuilder, type Range, type TensorPlace } from "./tensor-layout.js";

/** The linear layers of a block, those that read the same input fused into one. */
export type LinearName = "qkv" | "output" | "gateUp" | "down";

/** The weights of a block. `M` is F32 where weights are trained. */
export interface LayerWeights<M extends Matrix = F32> extends Record<LinearName, LinearLayer<M>> {
  inputNorm: F32;
  qkvBias: F32 | undefined;
  queryNorm: F32 | undefined;
  keyNorm: F32 | undefined;
  outputBias: F32 | undefined;
  postNorm: F32;
}

/** The weights of a whole decoder; a tied `head` is the embedding. */
export interface DecoderWeights<M extends Matrix = F32> {
  embedding: M;
  layers: LayerWeights<M>[];
  finalNorm: F32;
  head: LinearLayer<M>;
}

/** Where the weights of a decoder sit in one flat buffer: the matrices first (they decay in full training), then the vectors. */
export interface DecoderLayout {
  places: TensorPlace[];
  length: number;
  /** Matrices end and vectors begin here. */
  matrixLength: number;
  bind(flat: F32): DecoderWeights;
  /** Copies the weights into new buffers. */
  place<M extends Matrix>(
    matrix: (block: MatrixBlock) => M,
    vector: (block: Range) => F32,
  ): DecoderWeights<M>;
}

/** A matrix of the layout. */
export interface MatrixBlock {
  block: Range;
  inputs: number;
  outputs: number;
}

/** A linear layer made of some that a file names apart, side by side. */
export interface FusedLinear {
  inputs: number;
  parts: { name: string; cols: number }[];
}

/** The linear layers of every block, under the names that Hugging Face gives them. */
export function blockLinears(config: ModelConfig): Record<LinearName, FusedLinear> {
  const { hiddenSize, intermediateSize } = config;
  const width = attentionWidths(config);
  return {
    qkv: {
      inputs: hiddenSize,
      parts: [
        { name: "self_attn.q_proj", cols: width.query },
        { name: "self_attn.k_proj", cols: width.key },
        { name: "self_attn.v_proj", cols: width.key },
      ],
    },
    output: { inputs: width.query, parts: [{ name: "self_attn.o_proj", cols: hiddenSize }] },
    gateUp: {
      inputs: hiddenSize,
      parts: [
        { name: "mlp.gate_proj", cols: intermediateSize },
        { name: "mlp.up_proj", cols: intermediateSize },
      ],
    },
    down: { inputs: intermediateSize, parts: [{ name: "mlp.down_proj", cols: hiddenSize }] },
  };
}

/** The unembedding, as a linear layer. */
export const headLinear = (config: ModelConfig): FusedLinear => ({
  inputs: config.hiddenSize,
  parts: [{ name: "lm_head", cols: config.vocabSize }],
});

/** One value for each linear layer of a block. */
export function mapLinears<T>(make: (name: LinearName) => T): Record<LinearName, T> {
  return { qkv: make("qkv"), output: make("output"), gateUp: make("gateUp"), down: make("down") };
}

/** Lays out all tensors of a model. */
export function decoderLayout(config: ModelConfig): DecoderLayout {
  const { hiddenSize, headDim, vocabSize } = config;
  const linears = blockLinears(config);
  const builder = new LayoutBuilder();
  const linear = (prefix: string, { inputs, parts }: FusedLinear): MatrixBlock => {
    const named = parts.map(({ name, cols }) => ({ name: `${prefix}${name}.weight`, cols }));
    const outputs = parts.reduce((sum, part) => sum + part.cols, 0);
    return { inputs, outputs, block: builder.linear(inputs, named) };
  };
  const embedding: MatrixBlock = {
    inputs: hiddenSize,
    outputs: vocabSize,
    block: builder.plain("model.embed_tokens.weight", [vocabSize, hiddenSize]),
  };
  const matrices = Array.from({ length: config.layers }, (_, layer) =>
    mapLinears((name) => linear(`model.layers.${layer}.`, linears[name])),
  );
  const head = config.tiedHead ? undefined : linear("", headLinear(config));
  const matrixLength = builder.length;
  const vectors = matrices.map((_, layer) => {
    const prefix = `model.layers.${layer}`;
    const attention = `${prefix}.self_attn`;
    const biases = (name: LinearName) =>
      builder.vectors(
        linears[name].parts.map((part) => ({ name: `${prefix}.${part.name}.bias`, length: part.cols })),
      );
    return {
      inputNorm: builder.plain(`${prefix}.input_layernorm.weight`, [hiddenSize]),
      postNorm: builder.plain(`${prefix}.post_attention_layernorm.weight`, [hiddenSize]),
      queryNorm: config.qkNorm ? builder.plain(`${attention}.q_norm.weight`, [headDim]) : undefined,
      keyNorm: config.qkNorm ? builder.plain(`${attention}.k_norm.weight`, [headDim]) : undefined,
      qkvBias: config.qkvBias ? biases("qkv") : undefined,
      outputBias: config.outputBias ? biases("output") : undefined,
    };
  });
  const finalNorm = builder.plain("model.norm.weight", [hiddenSize]);
  const place: DecoderLayout["place"] = (matrix, vector) => {
    const optional = (block: Range | undefined) => block && vector(block);
    const layer = (from: MatrixBlock) => {
      return { weight: matrix(from), inputs: from.inputs, outputs: from.outputs };
    };
    // Matrices first: where sizes allow, they begin with a page of memory, and so do the panels that products read.
    const table = matrix(embedding);
    const linears = matrices.map((ofLayer) => mapLinears((name) => layer(ofLayer[name])));
    // In a flat buffer the embedding has a row for each token; frozen it is as any other matrix.
    const transposed = table.kind === "f32";
    const output = head ? layer(head) : { weight: table, inputs: hiddenSize, outputs: vocabSize, transposed };
    return {
      embedding: table,
      layers: vectors.map((ofLayer, index) => ({
        ...linears[index]!,
        inputNorm: vector(ofLayer.inputNorm),
        postNorm: vector(ofLayer.postNorm),
        queryNorm: optional(ofLayer.queryNorm),
        keyNorm: optional(ofLayer.keyNorm),
        qkvBias: optional(ofLayer.qkvBias),
        outputBias: optional(ofLayer.outputBias),
      })),
      finalNorm: vector(finalNorm),
      head: output,
    };
  };
  return {
    places: builder.places,
    length: builder.length,
    matrixLength,
    place,
    bind(flat) {
      const part = ({ start, length }: Range) => sliceBuffer(flat, start, length);
      return place(({ block }) => part(block), part);
    },
  };
}
