/** The decoder's backward pass, written by hand: from the gradient of the head's input to those of all weights below. */

import type { F32, I32, Kernels } from "../kernels/kernels.js";
import type { DecoderModel } from "./base-model.js";
import {
  type Activations,
  attentionShape,
  type LayerActivations,
  noAdapters,
  scratchInts,
  splitQkv,
  takeRows,
  wholeBatch,
  widthsOf,
} from "./decoder.js";
import type { DecoderWeights } from "./decoder-weights.js";
import { linearBackward } from "./linear.js";
import type { LoraLayer, LoraWeights } from "./lora.js";

/** Gradients that a backward pass adds to; null where the weights are frozen. */
export interface DecoderGradients {
  lora: LoraWeights | null;
  weights: DecoderWeights | null;
}

/**
 * `dhidden` holds the gradients of the head's input for `activeRows`, one after another; the others have none.
 * Adds to all gradients below the head.
 */
export function decoderBackward(
  kernels: Kernels,
  model: DecoderModel,
  kept: Activations,
  dhidden: F32,
  activeRows: Int32Array,
  lora: LoraWeights | null,
  gradients: DecoderGradients,
): void {
  const { config, weights } = model;
  const { hiddenSize } = config;
  const { rows } = kept.packed;
  const adaptsLayers = lora?.layers.some((layer) => Object.values(layer).some((group) => group !== null));
  if (activeRows.length === 0 || (!adaptsLayers && !gradients.weights)) return;
  const mark = kernels.mark();
  const dx = kernels.scratch(rows * hiddenSize);
  const pass: BackwardPass = { kernels, model, kept, lora, gradients };
  // Rows without a gradient stay out of the last layer but for its attention, where others look at them.
  const indices = activeRows.length < rows ? scratchInts(kernels, activeRows) : null;
  const top = config.layers - 1;
  for (let index = top; index >= 0; index--) {
    const inner = kernels.mark();
    const dattended = kernels.scratch(rows * widthsOf(config).query);
    if (index < top) {
      upperBackward(pass, index, rows, kept.layers[index]!, dx, dattended);
    } else {
      const count = activeRows.length;
      const part = (x: F32, cols: number) => (indices ? takeRows(kernels, x, indices, cols) : x);
      const dtop = indices ? kernels.scratch(count * hiddenSize) : dx;
      kernels.zero(dtop);
      kernels.rmsNormBackward(
        dtop,
        gradients.weights?.finalNorm ?? null,
        dhidden,
        part(kept.final, hiddenSize),
        part(kept.finalRstd, 1),
        weights.finalNorm,
        count,
        hiddenSize,
      );
      const saved = indices ? takeUpper(pass, kept.layers[index]!, indices) : kept.layers[index]!;
      const dtopAttended = indices ? kernels.scratch(count * widthsOf(config).query) : dattended;
      upperBackward(pass, index, count, saved, dtop, dtopAttended);
      if (indices) {
        spreadRows(kernels, dx, dtop, indices, hiddenSize);
        spreadRows(kernels, dattended, dtopAttended, indices, widthsOf(config).query);
      }
    }
    lowerBackward(pass, index, dx, dattended);
    kernels.release(inner);
  }
  if (gradients.weights) {
    kernels.scatterAddRows(gradients.weights.embedding, dx, kept.packed.tokens, rows, hiddenSize);
  }
  kernels.release(mark);
}

interface BackwardPass {
  kernels: Kernels;
  model: DecoderModel;
  kept: Activations;
  lora: LoraWeights | null;
  gradients: DecoderGradients;
}

/** What the backward pass needs of a layer above its attention. */
type UpperActivations = Pick<
  LayerActivations,
  "attended" | "middle" | "middleRstd" | "normedMiddle" | "gateUp" | "activated" | "low"
>;

function takeUpper(
  { kernels, model, lora }: BackwardPass,
  saved: LayerActivations,
  indices: I32,
): UpperActivations {
  const { hiddenSize, intermediateSize } = model.config;
  const take = (x: F32, cols: number) => takeRows(kernels, x, indices, cols);
  const rank = lora?.rank ?? 0;
  const { low } = saved;
  return {
    attended: take(saved.attended, widthsOf(model.config).query),
    middle: take(saved.middle, hiddenSize),
    middleRstd: take(saved.middleRstd, 1),
    normedMiddle: take(saved.normedMiddle, hiddenSize),
    gateUp: take(saved.gateUp, 2 * intermediateSize),
    activated: take(saved.activated, intermediateSize),
    low: {
      qkv: null,
      output: low.output && take(low.output, rank),
      gateUp: low.gateUp && take(low.gateUp, 2 * rank),
      down: low.down && take(low.down, rank),
    },
  };
}

function linearOf({ kernels, model, lora, gradients }: BackwardPass, index: number, rows: number) {
  const layer = model.weights.layers[index]!;
  const adapters = lora?.layers[index] ?? noAdapters;
  const adapterGradients = gradients.lora?.layers[index] ?? noAdapters;
  const weightGradient = gradients.weights?.layers[index] ?? null;
  return (
    dx: F32 | null,
    dy: F32,
    x: F32,
    low: F32 | null,
    name: keyof LoraLayer,
    inputs: number,
    outputs: number,
  ) =>
    linearBackward(
      kernels,
      dx,
      dy,
      x,
      layer[name],
      { rows, inputs, outputs },
      wholeBatch(lora, adapters[name], rows),
      low,
      { weight: weightGradient?.[name] ?? null, adapter: adapterGradients[name] },
    );
}

/** From the layer's output down to what attention gave: `dx` becomes the residual's gradient, `dattended` is written. */
function upperBackward(
  pass: BackwardPass,
  index: number,
  rows: number,
  saved: UpperActivations,
  dx: F32,
  dattended: F32,
): void {
  const { kernels, model, lora } = pass;
  const { hiddenSize, intermediateSize } = model.config;
  const layer = model.weights.layers[index]!;
  const weightGradient = pass.gradients.weights?.layers[index] ?? null;
  const linear = linearOf(pass, index, rows);
  const mark = kernels.mark();
  const dactivated = kernels.scratch(rows * intermediateSize);
  linear(dactivated, dx, saved.activated, saved.low.down, "down", intermediateSize, hiddenSize);
  const dgateUp = kernels.scratch(rows * 2 * intermediateSize);
  kernels.swigluBackward(dgateUp, dactivated, saved.gateUp, rows, intermediateSize);
  const dnormed = kernels.scratch(rows * hiddenSize);
  linear(dnormed, dgateUp, saved.normedMiddle, saved.low.gateUp, "gateUp", hiddenSize, 2 * intermediateSize);
  kernels.rmsNormBackward(
    dx,
    weightGradient?.postNorm ?? null,
    dnormed,
    saved.middle,
    saved.middleRstd,
    layer.postNorm,
    rows,
    hiddenSize,
  );
  if (!endsBelow(pass, index, lora)) {
    const { query } = widthsOf(model.config);
    linear(dattended, dx, saved.attended, saved.low.output, "output", query, hiddenSize);
    if (weightGradient?.outputBias) addColumnSums(kernels, weightGradient.outputBias, dx, rows);
  }
  kernels.release(mark);
}

/** Nothing in or below this layer's attention learns. */
function endsBelow(pass: BackwardPass, index: number, lora: LoraWeights | null): boolean {
  const adapters = lora?.layers[index];
  return index === 0 && !adapters?.qkv && !adapters?.output && !pass.gradients.weights;
}

/** From what attention gave down to the layer's input, whose gradient `dx` becomes. */
function lowerBackward(pass: BackwardPass, index: number, dx: F32, dattended: F32): void {
  const { kernels, model, kept, lora, gradients } = pass;
  if (endsBelow(pass, index, lora)) return;
  const { config } = model;
  const { hiddenSize, heads, kvHeads, headDim } = config;
  const layer = model.weights.layers[index]!;
  const saved = kept.layers[index]!;
  const weightGradient = gradients.weights?.layers[index] ?? null;
  const { rows, positions, offsets, sequences, maxLength } = kept.packed;
  const width = widthsOf(config);
  const { cos, sin } = model.rope.upTo(maxLength);
  const dquery = { data: kernels.scratch(rows * width.query), stride: width.query };
  const dkey = { data: kernels.scratch(rows * width.key), stride: width.key };
  const dqkv = kernels.scratch(rows * width.qkv);
  const parts = splitQkv(saved.qkv, width);
  const dparts = splitQkv(dqkv, width);
  kernels.attentionBackward(
    dquery,
    dkey,
    dparts.value,
    dattended,
    { data: saved.query, stride: width.query },
    { data: saved.key, stride: width.key },
    parts.value,
    saved.attended,
    saved.lse,
    offsets,
    sequences,
    attentionShape(config),
  );
  kernels.normRopeBackward(
    dparts.query,
    weightGradient?.qNorm ?? null,
    dquery,
    parts.query,
    saved.queryRstd,
    layer.qNorm,
    cos,
    sin,
    positions,
    rows,
    heads,
    headDim,
  );
  kernels.normRopeBackward(
    dparts.key,
    weightGradient?.kNorm ?? null,
    dkey,
    parts.key,
    saved.keyRstd,
    layer.kNorm,
    cos,
    sin,
    positions,
    rows,
    kvHeads,
    headDim,
  );
  if (weightGradient?.qkvBias) addColumnSums(kernels, weightGradient.qkvBias, dqkv, rows);
  // Nothing below the first layer learns unless the embedding does.
  const needsInput = index > 0 || gradients.weights !== null;
  const dnormed = needsInput ? kernels.scratch(rows * hiddenSize) : null;
  linearOf(pass, index, rows)(dnormed, dqkv, saved.normedInput, saved.low.qkv, "qkv", hiddenSize, width.qkv);
  if (!dnormed) return;
  kernels.rmsNormBackward(
    dx,
    weightGradient?.inputNorm ?? null,
    dnormed,
    saved.input,
    saved.inputRstd,
    layer.inputNorm,
    rows,
    hiddenSize,
  );
}

/** out is x at the rows `indices` and zero elsewhere. */
function spreadRows(kernels: Kernels, out: F32, x: F32, indices: I32, cols: number): void {
  kernels.zero(out);
  kernels.scatterRows(out, { data: x, stride: cols }, indices, indices.length, cols);
}

function addColumnSums(kernels: Kernels, sums: F32, x: F32, rows: number): void {
  const mark = kernels.mark();
  const ones = kernels.scratch(rows);
  kernels.upload(ones, new Float32Array(rows).fill(1));
  kernels.matmul(sums, ones, x, 1, sums.length, rows, { accumulate: true });
  kernels.release(mark);
}
