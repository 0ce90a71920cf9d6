import {
  type F32,
  from,
  type I32,
  type Kernels,
  type ProjectedHeads,
  type Rotation,
  type StridedRows,
} from "../kernels/kernels.js";
import type { DecoderModel } from "./base-model.js";
import { type LinearName, mapLinears } from "./decoder-weights.js";
import { type AdaptedRows, linearForward } from "./linear.js";
import type { LoraGroup, LoraWeights } from "./lora.js";
import { attentionWidths, type ModelConfig } from "./model-config.js";

/** Everything that one block computes; a backward pass reads most of it. */
export interface LayerActivations {
  input: F32;
  inputRstd: F32;
  normedInput: F32;
  qkv: F32;
  /** The parts of `qkv`: queries and keys as they were projected, and the values. */
  projected: ProjectedHeads;
  /** Queries and keys, normed and rotated. */
  query: StridedRows;
  key: StridedRows;
  queryRstd: F32 | undefined;
  keyRstd: F32 | undefined;
  attended: F32;
  logSumExp: F32;
  /** The residual stream between attention and MLP. */
  middle: F32;
  middleRstd: F32;
  normedMiddle: F32;
  gateUp: F32;
  activated: F32;
  output: F32;
  /** scaling * x * A of each adapted linear layer, where it is kept. */
  lowRank: Record<LinearName, F32 | undefined>;
}

/** Consecutive rows that go through the same adapter, or none. */
export interface AdapterSpan {
  lora: LoraWeights | undefined;
  start: number;
  rows: number;
}

/** The rows of one pass through the decoder, and what differs between passes: attention, and which activations are kept. */
export interface DecoderPass {
  rows: number;
  /** Rows that buffers have room for, at least as many. Default: `rows`. */
  room?: number;
  tokens: I32;
  positions: I32;
  /** As many zeros as rows: a bias is gathered into every row, and a product is added to it. */
  zeros: I32;
  /** All positions are below this. */
  maxLength: number;
  adapters: AdapterSpan[];
  /** From the queries, keys and values that a layer projected to `attended`. */
  attend(layer: number, activations: LayerActivations, rotation: Rotation): void;
  /** Where a layer writes. */
  activations(layer: number, input: F32): LayerActivations;
}

/** All blocks, from tokens to the last block's output. Everything lives on the scratch stack. */
export function decoderForward(
  kernels: Kernels,
  model: DecoderModel,
  pass: DecoderPass,
): { layers: LayerActivations[]; output: F32 } {
  const { config, weights } = model;
  const { rows, tokens } = pass;
  let output = kernels.scratch((pass.room ?? rows) * config.hiddenSize);
  kernels.gatherRows(output, weights.embedding, tokens, rows, config.hiddenSize);
  const layers = weights.layers.map((_, index) => {
    const activations = pass.activations(index, output);
    blockActivations(kernels, model, pass, index, activations);
    ({ output } = activations);
    const { middle, activated } = activations;
    if (output !== middle) kernels.copy(output, middle);
    blockLinear(kernels, model, pass, index, activations)("down", output, activated, true);
    return activations;
  });
  return { layers, output };
}

/** A linear layer of a block with the adapters of this pass. */
function blockLinear(
  kernels: Kernels,
  { weights }: DecoderModel,
  { rows, room, adapters }: DecoderPass,
  index: number,
  { lowRank }: LayerActivations,
) {
  return (name: LinearName, out: F32, x: F32, accumulate: boolean) =>
    linearForward(kernels, {
      layer: weights.layers[index]![name],
      out,
      x,
      rows,
      adapters: adaptersOf(adapters, (lora) => lora.layers[index]![name]),
      accumulate,
      lowRank: lowRank[name],
      room,
    });
}

/** All that a block computes from its input but its output: what a backward pass reads. */
export function blockActivations(
  kernels: Kernels,
  model: DecoderModel,
  pass: DecoderPass,
  index: number,
  activations: LayerActivations,
): void {
  const { rows, positions } = pass;
  const { hiddenSize: cols, heads, kvHeads, headDim, intermediateSize, rmsEps: eps } = model.config;
  const layer = model.weights.layers[index]!;
  const linear = blockLinear(kernels, model, pass, index, activations);

  const { input, inputRstd, normedInput, qkv } = activations;
  kernels.rmsNorm({ out: normedInput, rstd: inputRstd, x: input, weight: layer.inputNorm, rows, cols, eps });
  if (layer.qkvBias) kernels.gatherRows(qkv, layer.qkvBias, pass.zeros, rows, layer.qkvBias.length);
  linear("qkv", qkv, normedInput, layer.qkvBias !== undefined);
  const { cos, sin } = model.rope.upTo(pass.maxLength);
  const angles = { cos, sin, positions };
  const { queryNorm, keyNorm } = layer;
  pass.attend(index, activations, { queryNorm, keyNorm, angles, rows, heads, kvHeads, headDim, eps });

  const { attended, middle, middleRstd, normedMiddle, gateUp, activated } = activations;
  if (layer.outputBias) {
    const mark = kernels.mark();
    const bias = kernels.scratch(middle.length);
    kernels.gatherRows(bias, layer.outputBias, pass.zeros, rows, cols);
    kernels.add(middle, input, bias);
    kernels.release(mark);
  } else if (middle !== input) {
    kernels.copy(middle, input);
  }
  linear("output", middle, attended, true);
  kernels.rmsNorm({
    out: normedMiddle,
    rstd: middleRstd,
    x: middle,
    weight: layer.postNorm,
    rows,
    cols,
    eps,
  });
  linear("gateUp", gateUp, normedMiddle, false);
  kernels.swiglu(activated, gateUp, rows, intermediateSize);
}

/** The adapters that one linear layer has on its rows. */
export function adaptersOf(
  spans: AdapterSpan[],
  pick: (lora: LoraWeights) => LoraGroup | undefined,
): AdaptedRows[] {
  const adapters: AdaptedRows[] = [];
  for (const { lora, start, rows } of spans) {
    const adapter = lora && pick(lora);
    if (adapter) adapters.push({ adapter, start, rows });
  }
  return adapters;
}

/** Buffers of its own for every layer, for a backward pass to read. */
export function keptActivations(
  kernels: Kernels,
  config: ModelConfig,
  rows: number,
  lora: LoraWeights | undefined,
): DecoderPass["activations"] {
  const { hiddenSize, heads, kvHeads, intermediateSize, qkNorm } = config;
  const width = attentionWidths(config);
  const take = (columns: number) => kernels.scratch(rows * columns);
  return (layer, input) => {
    const adapters = lora?.layers[layer];
    const qkv = take(width.qkv);
    return {
      input,
      inputRstd: take(1),
      normedInput: take(hiddenSize),
      qkv,
      projected: splitQkv(qkv, config),
      query: { data: take(width.query), stride: width.query },
      key: { data: take(width.key), stride: width.key },
      queryRstd: qkNorm ? take(heads) : undefined,
      keyRstd: qkNorm ? take(kvHeads) : undefined,
      attended: take(width.query),
      logSumExp: take(heads),
      middle: take(hiddenSize),
      middleRstd: take(1),
      normedMiddle: take(hiddenSize),
      gateUp: take(2 * intermediateSize),
      activated: take(intermediateSize),
      output: take(hiddenSize),
      lowRank: mapLinears((name) => {
        const adapter = adapters?.[name];
        return adapter && take(adapter.b.length * adapter.rank);
      }),
    };
  };
}

/** A buffer of its own for every layer's output, which is the next one's input, and the same buffers for everything else. */
export function keptInputs(
  kernels: Kernels,
  config: ModelConfig,
  rows: number,
  lora: LoraWeights | undefined,
): DecoderPass["activations"] {
  let shared: LayerActivations | undefined;
  return (layer, input) => {
    shared ??= keptActivations(kernels, config, rows, lora)(layer, input);
    const down = lora?.layers[layer]?.down;
    return {
      ...shared,
      input,
      output: kernels.scratch(rows * config.hiddenSize),
      // The last product is not computed again, so what it leaves is kept.
      lowRank: { ...shared.lowRank, down: down && kernels.scratch(rows * down.rank) },
    };
  };
}

/** Buffers that all layers share if no backward pass follows; the residual stream is one buffer from input to output. */
export function reusedActivations(
  kernels: Kernels,
  config: ModelConfig,
  rows: number,
): DecoderPass["activations"] {
  const { hiddenSize, heads, intermediateSize, qkNorm } = config;
  const width = attentionWidths(config);
  const take = (columns: number) => kernels.scratch(rows * columns);
  let activations: LayerActivations | undefined;
  return (_, residual) => {
    if (activations) return activations;
    const [normed, rstd, qkv] = [take(hiddenSize), take(heads), take(width.qkv)];
    activations = {
      input: residual,
      inputRstd: rstd,
      normedInput: normed,
      qkv,
      projected: splitQkv(qkv, config),
      query: { data: take(width.query), stride: width.query },
      key: { data: take(width.key), stride: width.key },
      queryRstd: qkNorm ? rstd : undefined,
      keyRstd: qkNorm ? rstd : undefined,
      attended: take(width.query),
      logSumExp: rstd,
      middle: residual,
      middleRstd: rstd,
      normedMiddle: normed,
      gateUp: take(2 * intermediateSize),
      activated: take(intermediateSize),
      output: residual,
      lowRank: mapLinears(() => undefined),
    };
    return activations;
  };
}

/** The norm before the head. */
export function finalNorm(
  kernels: Kernels,
  { config, weights }: DecoderModel,
  x: F32,
  rows: number,
): { hidden: F32; rstd: F32 } {
  const [hidden, rstd] = [kernels.scratch(rows * config.hiddenSize), kernels.scratch(rows)];
  const { hiddenSize: cols, rmsEps: eps } = config;
  kernels.rmsNorm({ out: hidden, rstd, x, weight: weights.finalNorm, rows, cols, eps });
  return { hidden, rstd };
}

/** The columns of queries, keys and values inside rows of all three. */
export function splitQkv(qkv: F32, config: ModelConfig): ProjectedHeads {
  const width = attentionWidths(config);
  return {
    query: { data: qkv, stride: width.qkv },
    key: { data: from(qkv, width.query), stride: width.qkv },
    value: { data: from(qkv, width.query + width.key), stride: width.qkv },
  };
}

/** How the model's heads are cut. */
export function attentionShape({ heads, kvHeads, headDim }: ModelConfig) {
  return { heads, kvHeads, headDim, scale: 1 / Math.sqrt(headDim) };
}

/** Whole numbers on the scratch stack. */
export function scratchInts(kernels: Kernels, data: Int32Array): I32 {
  const buffer = kernels.scratchInts(data.length);
  kernels.uploadInts(buffer, data);
  return buffer;
}

/** Some rows of a matrix, on the scratch stack. */
export function takeRows(kernels: Kernels, x: F32, indices: I32, cols: number): F32 {
  const out = kernels.scratch(indices.length * cols);
  kernels.gatherRows(out, x, indices, indices.length, cols);
  return out;
}
