/** The decoder over packed sequences: a forward pass that keeps what the backward pass needs. */

import { type F32, type I32, type Kernels, type Matrix, type Rows, slice } from "../kernels/kernels.js";
import type { DecoderModel } from "./base-model.js";
import type { LayerWeights } from "./decoder-weights.js";
import { type AdaptedRows, from, linearForward } from "./linear.js";
import type { LoraGroup, LoraLayer, LoraWeights } from "./lora.js";
import type { ModelConfig } from "./model-config.js";

/** Rows of several sequences, one after another; sequence s owns rows offsets[s]..offsets[s+1]. */
export interface PackedRows {
  rows: number;
  sequences: number;
  tokens: I32;
  positions: I32;
  offsets: I32;
  maxLength: number;
}

export interface Widths {
  query: number;
  key: number;
  qkv: number;
}

export function widthsOf(config: ModelConfig): Widths {
  const query = config.heads * config.headDim;
  const key = config.kvHeads * config.headDim;
  return { query, key, qkv: query + 2 * key };
}

export interface LayerActivations {
  input: F32;
  inputRstd: F32;
  normedInput: F32;
  qkv: F32;
  query: F32;
  key: F32;
  queryRstd: F32 | null;
  keyRstd: F32 | null;
  attended: F32;
  lse: F32;
  middle: F32;
  middleRstd: F32;
  normedMiddle: F32;
  gateUp: F32;
  activated: F32;
  /** scaling * x * A of each adapted layer. */
  low: { [name in keyof LoraLayer]: F32 | null };
}

/** Everything lives on the kernels' scratch stack: release the mark taken before `decoderForward` to drop it. */
export interface Activations {
  packed: PackedRows;
  layers: LayerActivations[];
  final: F32;
  finalRstd: F32;
  /** The head's input. */
  hidden: F32;
}

export function packSequences(kernels: Kernels, sequences: Int32Array[]): PackedRows {
  const rows = sequences.reduce((sum, tokens) => sum + tokens.length, 0);
  const [tokens, positions] = [new Int32Array(rows), new Int32Array(rows)];
  const offsets = new Int32Array(sequences.length + 1);
  let at = 0;
  let maxLength = 0;
  sequences.forEach((sequence, index) => {
    tokens.set(sequence, at);
    for (let i = 0; i < sequence.length; i++) positions[at + i] = i;
    at += sequence.length;
    offsets[index + 1] = at;
    maxLength = Math.max(maxLength, sequence.length);
  });
  return {
    rows,
    sequences: sequences.length,
    tokens: scratchInts(kernels, tokens),
    positions: scratchInts(kernels, positions),
    offsets: scratchInts(kernels, offsets),
    maxLength,
  };
}

export function scratchInts(kernels: Kernels, data: Int32Array): I32 {
  const buffer = kernels.scratchInts(data.length);
  kernels.uploadInts(buffer, data);
  return buffer;
}

/** The one adapter of a training pass, over all its rows. */
export function wholeBatch(lora: LoraWeights | null, adapter: LoraGroup | null, rows: number): AdaptedRows {
  return { adapter, rank: lora?.rank ?? 0, scaling: lora?.scaling ?? 1, start: 0, rows };
}

/** rows copies of a bias row (or of nothing): the start of a product that accumulates. */
export function fillRows(kernels: Kernels, out: F32, bias: F32, rows: number): void {
  const mark = kernels.mark();
  const zeros = scratchInts(kernels, new Int32Array(rows));
  kernels.gatherRows(out, bias, zeros, rows, bias.length);
  kernels.release(mark);
}

const keepLow = (kernels: Kernels, rows: number, lora: LoraWeights | null, group: LoraGroup | null) =>
  lora && group ? kernels.scratch(rows * group.b.length * lora.rank) : null;

export const noAdapters: LoraLayer = { qkv: null, output: null, gateUp: null, down: null };

export function decoderForward(
  kernels: Kernels,
  model: DecoderModel,
  packed: PackedRows,
  lora: LoraWeights | null,
): Activations {
  const { config, weights } = model;
  const { hiddenSize } = config;
  const { rows } = packed;
  let x = kernels.scratch(rows * hiddenSize);
  kernels.gatherRows(x, weights.embedding, packed.tokens, rows, hiddenSize);
  const layers = weights.layers.map((layer, index) => {
    const kept = layerForward(kernels, model, layer, packed, x, lora, lora?.layers[index] ?? noAdapters);
    x = kept.output;
    return kept.activations;
  });
  const finalRstd = kernels.scratch(rows);
  const hidden = kernels.scratch(rows * hiddenSize);
  kernels.rmsNorm(hidden, finalRstd, x, weights.finalNorm, rows, hiddenSize, config.rmsEps);
  return { packed, layers, final: x, finalRstd, hidden };
}

function layerForward(
  kernels: Kernels,
  model: DecoderModel,
  layer: LayerWeights<Matrix>,
  packed: PackedRows,
  input: F32,
  lora: LoraWeights | null,
  adapters: LoraLayer,
): { activations: LayerActivations; output: F32 } {
  const { config } = model;
  const { hiddenSize, heads, kvHeads, headDim, intermediateSize, rmsEps } = config;
  const { rows, positions } = packed;
  const width = widthsOf(config);
  const take = (columns: number) => kernels.scratch(rows * columns);
  const { cos, sin } = model.rope.upTo(packed.maxLength);
  const low = {
    qkv: keepLow(kernels, rows, lora, adapters.qkv),
    output: keepLow(kernels, rows, lora, adapters.output),
    gateUp: keepLow(kernels, rows, lora, adapters.gateUp),
    down: keepLow(kernels, rows, lora, adapters.down),
  };
  const linear = (
    out: F32,
    x: F32,
    weight: Matrix,
    inputs: number,
    outputs: number,
    name: keyof LoraLayer,
    accumulate: boolean,
  ) =>
    linearForward(
      kernels,
      out,
      x,
      weight,
      { rows, inputs, outputs },
      [wholeBatch(lora, adapters[name], rows)],
      { accumulate, keep: low[name] },
    );

  const inputRstd = take(1);
  const normedInput = take(hiddenSize);
  kernels.rmsNorm(normedInput, inputRstd, input, layer.inputNorm, rows, hiddenSize, rmsEps);
  const qkv = take(width.qkv);
  if (layer.qkvBias) fillRows(kernels, qkv, layer.qkvBias, rows);
  linear(qkv, normedInput, layer.qkv, hiddenSize, width.qkv, "qkv", layer.qkvBias !== null);

  const query = take(width.query);
  const key = take(width.key);
  const queryRstd = layer.qNorm ? take(heads) : null;
  const keyRstd = layer.kNorm ? take(kvHeads) : null;
  const parts = splitQkv(qkv, width);
  const queryRows = { data: query, stride: width.query };
  const keyRows = { data: key, stride: width.key };
  kernels.normRope(
    queryRows,
    queryRstd,
    parts.query,
    layer.qNorm,
    cos,
    sin,
    positions,
    rows,
    heads,
    headDim,
    rmsEps,
  );
  kernels.normRope(
    keyRows,
    keyRstd,
    parts.key,
    layer.kNorm,
    cos,
    sin,
    positions,
    rows,
    kvHeads,
    headDim,
    rmsEps,
  );
  const attended = take(width.query);
  const lse = take(heads);
  const shape = attentionShape(config);
  kernels.attention(attended, lse, queryRows, keyRows, parts.value, packed.offsets, packed.sequences, shape);

  const middle = take(hiddenSize);
  startResidual(kernels, middle, input, layer.outputBias, rows);
  linear(middle, attended, layer.output, width.query, hiddenSize, "output", true);

  const middleRstd = take(1);
  const normedMiddle = take(hiddenSize);
  kernels.rmsNorm(normedMiddle, middleRstd, middle, layer.postNorm, rows, hiddenSize, rmsEps);
  const gateUp = take(2 * intermediateSize);
  linear(gateUp, normedMiddle, layer.gateUp, hiddenSize, 2 * intermediateSize, "gateUp", false);
  const activated = take(intermediateSize);
  kernels.swiglu(activated, gateUp, rows, intermediateSize);
  const output = take(hiddenSize);
  kernels.copy(output, middle);
  linear(output, activated, layer.down, intermediateSize, hiddenSize, "down", true);
  return {
    output,
    activations: {
      input,
      inputRstd,
      normedInput,
      qkv,
      query,
      key,
      queryRstd,
      keyRstd,
      attended,
      lse,
      middle,
      middleRstd,
      normedMiddle,
      gateUp,
      activated,
      low,
    },
  };
}

export function splitQkv(qkv: F32, width: Widths): { query: Rows; key: Rows; value: Rows } {
  return {
    query: { data: qkv, stride: width.qkv },
    key: { data: from(qkv, width.query), stride: width.qkv },
    value: { data: from(qkv, width.query + width.key), stride: width.qkv },
  };
}

export function attentionShape(config: ModelConfig) {
  const { heads, kvHeads, headDim } = config;
  return { heads, kvHeads, headDim, scale: 1 / Math.sqrt(headDim) };
}

/** out = residual (+ bias), ready for a product to be added. */
export function startResidual(
  kernels: Kernels,
  out: F32,
  residual: F32,
  bias: F32 | null,
  rows: number,
): void {
  if (bias) {
    fillRows(kernels, out, bias, rows);
    kernels.add(out, out, residual);
  } else {
    kernels.copy(out, residual);
  }
}

export function takeRows(kernels: Kernels, x: F32, indices: I32, cols: number): F32 {
  const out = kernels.scratch(indices.length * cols);
  kernels.gatherRows(out, x, indices, indices.length, cols);
  return out;
}

/** Part of the rows of a matrix. */
export const rowsOf = (matrix: F32, start: number, rows: number, cols: number): F32 =>
  slice(matrix, start * cols, rows * cols);
