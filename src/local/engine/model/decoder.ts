import { type F32, from, type I32, type Kernels, type Rows } from "../kernels/kernels.js";
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
  projected: { query: Rows; key: Rows; value: Rows };
  /** Queries and keys, normed and rotated. */
  query: Rows;
  key: Rows;
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
  tokens: I32;
  positions: I32;
  /** All positions are below this. */
  maxLength: number;
  adapters: AdapterSpan[];
  /** Reads a layer's query, key and value, and writes `attended`. */
  attend(layer: number, activations: LayerActivations): void;
  /** Where a layer writes. */
  activations(layer: number, input: F32): LayerActivations;
}

/** All blocks, from tokens to the last block's output. Everything lives on the scratch stack. */
export function decoderForward(
  kernels: Kernels,
  model: DecoderModel,
  pass: DecoderPass,
): { layers: LayerActivations[]; output: F32 } {
  const { config, weights, rope } = model;
  const { rows, tokens, positions } = pass;
  const { cos, sin } = rope.upTo(pass.maxLength);
  const angles = { cos, sin, positions };
  let output = kernels.scratch(rows * config.hiddenSize);
  kernels.gatherRows(output, weights.embedding, tokens, rows, config.hiddenSize);
  const layers = weights.layers.map((_, index) => {
    const activations = pass.activations(index, output);
    blockForward(kernels, model, pass, angles, index, activations);
    output = activations.output;
    return activations;
  });
  return { layers, output };
}

function blockForward(
  kernels: Kernels,
  { config, weights }: DecoderModel,
  pass: DecoderPass,
  angles: { cos: F32; sin: F32; positions: I32 },
  index: number,
  activations: LayerActivations,
): void {
  const { rows } = pass;
  const { hiddenSize: cols, heads, kvHeads, headDim, intermediateSize, rmsEps: eps } = config;
  const layer = weights.layers[index]!;
  const linear = (name: LinearName, out: F32, x: F32, accumulate: boolean) =>
    linearForward(kernels, {
      layer: layer[name],
      out,
      x,
      rows,
      adapters: adaptersOf(pass.adapters, (lora) => lora.layers[index]![name]),
      accumulate,
      lowRank: activations.lowRank[name],
    });

  const { input, inputRstd, normedInput, qkv, projected, query, key } = activations;
  kernels.rmsNorm({ out: normedInput, rstd: inputRstd, x: input, weight: layer.inputNorm, rows, cols, eps });
  if (layer.qkvBias) fillRows(kernels, qkv, layer.qkvBias, rows);
  linear("qkv", qkv, normedInput, layer.qkvBias !== undefined);
  const { queryRstd, keyRstd } = activations;
  // Spelled out twice: spreading a shared part would take longer than the operation when there is one row.
  kernels.normRope({
    out: query,
    rstd: queryRstd,
    x: projected.query,
    weight: layer.queryNorm,
    angles,
    rows,
    heads,
    headDim,
    eps,
  });
  kernels.normRope({
    out: key,
    rstd: keyRstd,
    x: projected.key,
    weight: layer.keyNorm,
    angles,
    rows,
    heads: kvHeads,
    headDim,
    eps,
  });
  pass.attend(index, activations);

  const { attended, middle, middleRstd, normedMiddle, gateUp, activated, output } = activations;
  if (layer.outputBias) {
    fillRows(kernels, middle, layer.outputBias, rows);
    kernels.add(middle, middle, input);
  } else {
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
  if (output !== middle) kernels.copy(output, middle);
  linear("down", output, activated, true);
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

/** The same buffers for all layers, where no backward pass follows. */
export function reusedActivations(
  kernels: Kernels,
  config: ModelConfig,
  rows: number,
): DecoderPass["activations"] {
  const { hiddenSize, heads, intermediateSize, qkNorm } = config;
  const width = attentionWidths(config);
  const take = (columns: number) => kernels.scratch(rows * columns);
  const [normed, rstd, qkv] = [take(hiddenSize), take(heads), take(width.qkv)];
  let unused = take(hiddenSize);
  // Filled in anew for every layer: an object for each would take longer than its operations when there is one row.
  const activations: LayerActivations = {
    input: unused,
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
    middle: unused,
    middleRstd: rstd,
    normedMiddle: normed,
    gateUp: take(2 * intermediateSize),
    activated: take(intermediateSize),
    output: unused,
    lowRank: mapLinears(() => undefined),
  };
  return (_, input) => {
    activations.input = input;
    activations.middle = unused;
    activations.output = unused;
    // Free once this block has run: the next one writes there.
    unused = input;
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
export function splitQkv(qkv: F32, config: ModelConfig): { query: Rows; key: Rows; value: Rows } {
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

/** `rows` copies of a bias row: the start of a product that accumulates. */
function fillRows(kernels: Kernels, out: F32, bias: F32, rows: number): void {
  const mark = kernels.mark();
  const zeros = scratchInts(kernels, new Int32Array(rows));
  kernels.gatherRows(out, bias, zeros, rows, bias.length);
  kernels.release(mark);
}
