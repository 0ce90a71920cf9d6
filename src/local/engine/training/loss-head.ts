/** From hidden rows to logprobs, losses and the gradient of the hidden rows, a chunk of the vocabulary's rows at a time. */

import type { LossName } from "../engine.js";
import type { F32, Kernels } from "../kernels/kernels.js";
import type { DecoderModel } from "../model/base-model.js";
import { type Activations, rowsOf, scratchInts, takeRows, wholeBatch } from "../model/decoder.js";
import { linearBackward, linearForward } from "../model/linear.js";
import type { LoraWeights } from "../model/lora.js";
import { type LossInputs, type LossSums, tokenLosses } from "./token-losses.js";

/** Logits are held for about this many values at once, and for at least so many rows: each chunk reads all of the head's weights. */
const chunkValues = 1 << 19;
const leastChunkRows = 64;

/** Rows whose logits are held at once. */
export function headChunkRows(rows: number, vocabSize: number): number {
  return Math.min(rows, Math.max(leastChunkRows, Math.floor(chunkValues / vocabSize)));
}

export interface HeadGradients {
  lora: LoraWeights | null;
  /** Gradient of the head matrix, in the layout of `weights.head`. */
  head: F32 | null;
}

export interface HeadResult {
  logprobs: Float32Array;
  /** Rows with a slope that is not zero, in order: what there is to propagate. */
  activeRows: Int32Array;
}

/**
 * Adds to `sums`. With `backward`, also adds to the head's gradients and writes the gradient of the active hidden rows, one after
 * another, to `dhidden`. Prompts have no weight in most losses, so the rows left out are often the larger part.
 */
export async function lossHead(
  kernels: Kernels,
  model: DecoderModel,
  kept: Activations,
  targets: Int32Array,
  targetsPerToken: number,
  lossFn: LossName,
  inputs: LossInputs,
  sums: LossSums,
  lora: LoraWeights | null,
  backward: { dhidden: F32; gradients: HeadGradients } | null,
): Promise<HeadResult> {
  const { config, weights } = model;
  const { hiddenSize, vocabSize } = config;
  const { rows } = kept.packed;
  const result: HeadResult = {
    logprobs: new Float32Array(rows * targetsPerToken),
    activeRows: new Int32Array(0),
  };
  const active: number[] = [];
  const chunk = headChunkRows(rows, vocabSize);
  for (let start = 0; start < rows; start += chunk) {
    const count = Math.min(chunk, rows - start);
    const mark = kernels.mark();
    const shape = {
      rows: count,
      inputs: hiddenSize,
      outputs: vocabSize,
      transposed: weights.headIsEmbedding,
    };
    const hidden = rowsOf(kept.hidden, start, count, hiddenSize);
    const logits = kernels.scratch(count * vocabSize);
    const adapted = wholeBatch(lora, lora?.head ?? null, count);
    const low = lora?.head ? kernels.scratch(count * lora.rank) : null;
    linearForward(kernels, logits, hidden, weights.head, shape, [adapted], { keep: low });
    const targetCount = count * targetsPerToken;
    const targetsAt = start * targetsPerToken;
    const targetRows = scratchInts(kernels, targets.subarray(targetsAt, targetsAt + targetCount));
    const logprobRows = kernels.scratch(targetCount);
    const lse = kernels.scratch(count);
    kernels.logSoftmaxGather(logprobRows, lse, logits, targetRows, count, vocabSize, targetsPerToken);
    const logprobs = await kernels.download(logprobRows);
    result.logprobs.set(logprobs, targetsAt);
    const slopes = new Float32Array(targetCount);
    tokenLosses(lossFn, inputs, targetsAt, logprobs, slopes, sums);
    if (backward) {
      const chosen = rowsWithSlope(slopes, targetsPerToken);
      if (chosen.length > 0) {
        const dhidden = rowsOf(backward.dhidden, active.length, chosen.length, hiddenSize);
        const indices = chosen.length < count ? scratchInts(kernels, chosen) : null;
        const part = (x: F32, cols: number) => (indices ? takeRows(kernels, x, indices, cols) : x);
        const dlogits = part(logits, vocabSize);
        const coefficients = kernels.scratch(chosen.length * targetsPerToken);
        kernels.upload(coefficients, pickRows(slopes, chosen, targetsPerToken));
        const chosenTargets = targets.subarray(targetsAt, targetsAt + targetCount);
        kernels.logitsGradient(
          dlogits,
          part(lse, 1),
          indices ? scratchInts(kernels, pickRows(chosenTargets, chosen, targetsPerToken)) : targetRows,
          coefficients,
          chosen.length,
          vocabSize,
          targetsPerToken,
        );
        linearBackward(
          kernels,
          dhidden,
          dlogits,
          part(hidden, hiddenSize),
          weights.head,
          { ...shape, rows: chosen.length },
          adapted,
          low && lora && part(low, lora.rank),
          { weight: backward.gradients.head, adapter: backward.gradients.lora?.head ?? null },
        );
        for (const row of chosen) active.push(start + row);
      }
    }
    kernels.release(mark);
  }
  result.activeRows = Int32Array.from(active);
  return result;
}

function rowsWithSlope(slopes: Float32Array, columns: number): Int32Array {
  const rows: number[] = [];
  for (let row = 0; row * columns < slopes.length; row++) {
    if (slopes.subarray(row * columns, (row + 1) * columns).some((slope) => slope !== 0)) rows.push(row);
  }
  return Int32Array.from(rows);
}

function pickRows<T extends Float32Array | Int32Array>(table: T, rows: Int32Array, columns: number): T {
  const out = table.slice(0, rows.length * columns) as T;
  rows.forEach((row, index) => {
    out.set(table.subarray(row * columns, (row + 1) * columns), index * columns);
  });
  return out;
}

/** Plain cross-entropy inputs with every target counted `weight` times. */
export function uniformWeights(targets: number, weight: number): LossInputs {
  const none = new Float32Array(0);
  return {
    weights: new Float32Array(targets).fill(weight),
    advantages: none,
    logprobs: none,
    clipLow: none,
    clipHigh: none,
    beta: 0,
  };
}
