import type { F32, I32, Kernels } from "../kernels/kernels.js";
import type { DecoderModel } from "./base-model.js";
import { attentionShape, type LayerActivations, scratchInts, splitQkv, takeRows } from "./decoder.js";
import type { DecoderWeights, LayerWeights, LinearName } from "./decoder-weights.js";
import { type LinearBackward, linearBackward } from "./linear.js";
import type { LoraLayer, LoraWeights } from "./lora.js";
import { attentionWidths } from "./model-config.js";
import type { Activations } from "./packed-forward.js";

/** Gradients that a backward pass adds to; absent where the weights are frozen. */
export interface DecoderGradients {
  lora?: LoraWeights | undefined;
  weights?: DecoderWeights | undefined;
}

/** Inputs of a backward pass. */
export interface DecoderBackward {
  activations: Activations;
  /** Gradients of the head's input for `activeRows`, one after another; the others have none. */
  dhidden: F32;
  activeRows: Int32Array;
  lora: LoraWeights | undefined;
  gradients: DecoderGradients;
}

/** The backward pass of `packedForward`: adds to all gradients below the head. */
export function decoderBackward(kernels: Kernels, model: DecoderModel, backward: DecoderBackward): void {
  const { config, weights } = model;
  const { hiddenSize } = config;
  const { activations, activeRows, lora, gradients } = backward;
  const { rows, tokens } = activations.packed;
  const adaptsLayers = lora?.layers.some((layer) => Object.values(layer).some((group) => group));
  if (activeRows.length === 0 || (!adaptsLayers && !gradients.weights)) return;
  const mark = kernels.mark();
  const dx = kernels.scratch(rows * hiddenSize);
  // Rows without a gradient stay out of the last layer but for its attention, where others look at them.
  const indices = activeRows.length < rows ? scratchInts(kernels, activeRows) : undefined;
  const { query } = attentionWidths(config);
  const last = config.layers - 1;
  for (let index = last; index >= 0; index--) {
    const inner = kernels.mark();
    const block = blockOf(kernels, model, backward, index);
    const dattended = kernels.scratch(rows * query);
    if (index < last) {
      mlpBackward(block, rows, block.activations, dx, dattended);
    } else {
      const count = activeRows.length;
      const part = (x: F32, cols: number) => (indices ? takeRows(kernels, x, indices, cols) : x);
      const dlast = indices ? kernels.scratch(count * hiddenSize) : dx;
      kernels.zero(dlast);
      kernels.rmsNormBackward({
        dx: dlast,
        dweight: gradients.weights?.finalNorm,
        dout: backward.dhidden,
        x: part(activations.output, hiddenSize),
        rstd: part(activations.outputRstd, 1),
        weight: weights.finalNorm,
        rows: count,
        cols: hiddenSize,
      });
      const taken = indices ? takeMlpRows(block, indices) : block.activations;
      const dlastAttended = indices ? kernels.scratch(count * query) : dattended;
      mlpBackward(block, count, taken, dlast, dlastAttended);
      if (indices) {
        spreadRows(kernels, dx, dlast, indices, hiddenSize);
        spreadRows(kernels, dattended, dlastAttended, indices, query);
      }
    }
    attentionBackward(block, dx, dattended);
    kernels.release(inner);
  }
  if (gradients.weights) kernels.scatterAddRows(gradients.weights.embedding, dx, tokens, rows, hiddenSize);
  kernels.release(mark);
}

/** One block on the way back. */
interface Block {
  kernels: Kernels;
  model: DecoderModel;
  packed: Activations["packed"];
  layer: DecoderModel["weights"]["layers"][number];
  activations: LayerActivations;
  adapters: LoraLayer | undefined;
  adapterGradients: LoraLayer | undefined;
  weightGradients: LayerWeights | undefined;
  isFirst: boolean;
  /** Nothing in or below its attention learns. */
  endsAtMlp: boolean;
}

function blockOf(kernels: Kernels, model: DecoderModel, backward: DecoderBackward, index: number): Block {
  const { activations, lora, gradients } = backward;
  const adapters = lora?.layers[index];
  return {
    kernels,
    model,
    packed: activations.packed,
    layer: model.weights.layers[index]!,
    activations: activations.layer(index),
    adapters,
    adapterGradients: gradients.lora?.layers[index],
    weightGradients: gradients.weights?.layers[index],
    isFirst: index === 0,
    endsAtMlp: index === 0 && !adapters?.qkv && !adapters?.output && !gradients.weights,
  };
}

/** Buffers of a block, from its attention's output on, for the backward pass. */
type MlpActivations = Pick<
  LayerActivations,
  "attended" | "middle" | "middleRstd" | "normedMiddle" | "gateUp" | "activated" | "lowRank"
>;

function takeMlpRows({ kernels, model, activations, adapters }: Block, indices: I32): MlpActivations {
  const { hiddenSize, intermediateSize } = model.config;
  const take = (x: F32, cols: number) => takeRows(kernels, x, indices, cols);
  const takeLowRank = (name: LinearName) => {
    const [adapter, lowRank] = [adapters?.[name], activations.lowRank[name]];
    return adapter && lowRank && take(lowRank, adapter.b.length * adapter.rank);
  };
  return {
    attended: take(activations.attended, attentionWidths(model.config).query),
    middle: take(activations.middle, hiddenSize),
    middleRstd: take(activations.middleRstd, 1),
    normedMiddle: take(activations.normedMiddle, hiddenSize),
    gateUp: take(activations.gateUp, 2 * intermediateSize),
    activated: take(activations.activated, intermediateSize),
    lowRank: {
      qkv: undefined,
      output: takeLowRank("output"),
      gateUp: takeLowRank("gateUp"),
      down: takeLowRank("down"),
    },
  };
}

/** `dout` is the gradient of a linear layer's output, `x` and `lowRank` are what the forward pass had. */
function blockLinearBackward(
  { kernels, layer, adapters, adapterGradients, weightGradients }: Block,
  name: LinearName,
  { dx, dout, x, rows, lowRank }: Pick<LinearBackward, "dx" | "dout" | "x" | "rows" | "lowRank">,
): void {
  linearBackward(kernels, {
    layer: layer[name],
    dx,
    dout,
    x,
    rows,
    lowRank,
    adapter: adapters?.[name],
    adapterGradient: adapterGradients?.[name],
    weightGradient: weightGradients?.[name].weight,
  });
}

/** From the block's output down to what attention gave: `dx` becomes the residual's gradient, `dattended` is written. */
function mlpBackward(block: Block, rows: number, activations: MlpActivations, dx: F32, dattended: F32): void {
  const { kernels, model, layer, weightGradients } = block;
  const { hiddenSize, intermediateSize } = model.config;
  const { attended, middle, middleRstd, normedMiddle, gateUp, activated, lowRank } = activations;
  const linear = (name: LinearName, input: F32, dinput: F32, dout: F32) =>
    blockLinearBackward(block, name, { dx: dinput, dout, x: input, lowRank: lowRank[name], rows });
  const mark = kernels.mark();
  const dactivated = kernels.scratch(rows * intermediateSize);
  linear("down", activated, dactivated, dx);
  const dgateUp = kernels.scratch(rows * 2 * intermediateSize);
  kernels.swigluBackward(dgateUp, dactivated, gateUp, rows, intermediateSize);
  const dnormed = kernels.scratch(rows * hiddenSize);
  linear("gateUp", normedMiddle, dnormed, dgateUp);
  kernels.rmsNormBackward({
    dx,
    dweight: weightGradients?.postNorm,
    dout: dnormed,
    x: middle,
    rstd: middleRstd,
    weight: layer.postNorm,
    rows,
    cols: hiddenSize,
  });
  if (!block.endsAtMlp) {
    linear("output", attended, dattended, dx);
    if (weightGradients?.outputBias) addColumnSums(kernels, weightGradients.outputBias, dx, rows);
  }
  kernels.release(mark);
}

/** From what attention gave down to the block's input, whose gradient `dx` becomes. */
function attentionBackward(block: Block, dx: F32, dattended: F32): void {
  const { kernels, model, packed, layer, activations, weightGradients } = block;
  if (block.endsAtMlp) return;
  const { config } = model;
  const { hiddenSize, heads, kvHeads, headDim } = config;
  const { rows, positions, offsets, maxLength } = packed;
  const width = attentionWidths(config);
  const { query, key, projected, attended, logSumExp } = activations;
  const dquery = { data: kernels.scratch(rows * width.query), stride: width.query };
  const dkey = { data: kernels.scratch(rows * width.key), stride: width.key };
  const dqkv = kernels.scratch(rows * width.qkv);
  const dprojected = splitQkv(dqkv, config);
  kernels.attentionBackward({
    dquery,
    dkey,
    dvalue: dprojected.value,
    dout: dattended,
    query,
    key,
    value: projected.value,
    out: attended,
    logSumExp,
    offsets,
    shape: attentionShape(config),
  });
  const { cos, sin } = model.rope.upTo(maxLength);
  const angles = { cos, sin, positions };
  kernels.normRopeBackward({
    dx: dprojected.query,
    dweight: weightGradients?.queryNorm,
    dout: dquery,
    x: projected.query,
    rstd: activations.queryRstd,
    weight: layer.queryNorm,
    angles,
    rows,
    heads,
    headDim,
  });
  kernels.normRopeBackward({
    dx: dprojected.key,
    dweight: weightGradients?.keyNorm,
    dout: dkey,
    x: projected.key,
    rstd: activations.keyRstd,
    weight: layer.keyNorm,
    angles,
    rows,
    heads: kvHeads,
    headDim,
  });
  if (weightGradients?.qkvBias) addColumnSums(kernels, weightGradients.qkvBias, dqkv, rows);
  // Nothing below the first layer learns unless the embedding does.
  const dnormed = block.isFirst && !weightGradients ? undefined : kernels.scratch(rows * hiddenSize);
  blockLinearBackward(block, "qkv", {
    dx: dnormed,
    dout: dqkv,
    x: activations.normedInput,
    lowRank: activations.lowRank.qkv,
    rows,
  });
  if (!dnormed) return;
  kernels.rmsNormBackward({
    dx,
    dweight: weightGradients?.inputNorm,
    dout: dnormed,
    x: activations.input,
    rstd: activations.inputRstd,
    weight: layer.inputNorm,
    rows,
    cols: hiddenSize,
  });
}

/** `out` is `x` at the rows `indices` and zero elsewhere. */
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
