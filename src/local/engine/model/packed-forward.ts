import type { F32, I32, Kernels, Rotation } from "../kernels/kernels.js";
import type { DecoderModel } from "./base-model.js";
import {
  attentionShape,
  blockActivations,
  type DecoderPass,
  decoderForward,
  finalNorm,
  keptActivations,
  keptInputs,
  type LayerActivations,
  reusedActivations,
  scratchInts,
} from "./decoder.js";
import type { LoraWeights } from "./lora.js";

/** Rows of several sequences, one after another; sequence s owns rows offsets[s]..offsets[s+1]. */
export interface PackedRows {
  rows: number;
  tokens: I32;
  positions: I32;
  zeros: I32;
  offsets: I32;
  maxLength: number;
}

/** Activations kept for the backward pass: all of them, or only the blocks' inputs. */
export type Kept = "all" | "inputs" | "nothing";

/** Results of a forward pass, for the backward pass. */
export interface Activations {
  packed: PackedRows;
  /** Activations of a block; if only its input was kept, they are computed again into shared buffers. */
  layer(index: number): LayerActivations;
  /** The last block's output. */
  output: F32;
  outputRstd: F32;
  /** The head's input. */
  hidden: F32;
}

/** Lays sequences out one after another, on the scratch stack. */
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
    tokens: scratchInts(kernels, tokens),
    positions: scratchInts(kernels, positions),
    zeros: scratchInts(kernels, new Int32Array(rows)),
    offsets: scratchInts(kernels, offsets),
    maxLength,
  };
}

/** The decoder over whole sequences, with all that a backward pass needs; release the mark taken before to drop it. */
export function packedForward(
  kernels: Kernels,
  model: DecoderModel,
  packed: PackedRows,
  lora: LoraWeights | undefined,
  keep: Kept,
): Activations {
  const { config } = model;
  const { rows, offsets } = packed;
  const shape = attentionShape(config);
  const pass: DecoderPass = {
    ...packed,
    adapters: [{ lora, start: 0, rows }],
    attend: (_, activations, rotation) => {
      rotateHeads(kernels, activations, rotation);
      const { attended, logSumExp, query, key, projected } = activations;
      kernels.attention({ out: attended, logSumExp, query, key, value: projected.value, offsets, shape });
    },
    activations:
      keep === "all"
        ? keptActivations(kernels, config, rows, lora)
        : keep === "inputs"
          ? keptInputs(kernels, config, rows, lora)
          : reusedActivations(kernels, config, rows),
  };
  const { layers, output } = decoderForward(kernels, model, pass);
  const { hidden, rstd } = finalNorm(kernels, model, output, rows);
  const layer = (index: number) => {
    const activations = layers[index]!;
    if (keep === "inputs") blockActivations(kernels, model, pass, index, activations);
    return activations;
  };
  return { packed, layer, output, outputRstd: rstd, hidden };
}

function rotateHeads(kernels: Kernels, activations: LayerActivations, rotation: Rotation): void {
  const { query, key, queryRstd, keyRstd, projected } = activations;
  const { queryNorm, keyNorm, heads, kvHeads, ...shared } = rotation;
  kernels.normRope({ out: query, rstd: queryRstd, x: projected.query, weight: queryNorm, heads, ...shared });
  kernels.normRope({ out: key, rstd: keyRstd, x: projected.key, weight: keyNorm, heads: kvHeads, ...shared });
}
