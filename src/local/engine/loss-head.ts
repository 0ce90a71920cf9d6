/** From hidden rows to logprobs, losses and the gradient of the hidden rows, a chunk of the vocabulary's rows at a time. */
import type { DecoderModel } from "./base-model.js";
import { type Activations, rowsOf, scratchInts, wholeBatch } from "./decoder.js";
import type { LossName } from "./engine.js";
import type { F32, Kernels } from "./kernels/kernels.js";
import { linearBackward, linearForward } from "./linear.js";
import type { LoraWeights } from "./lora.js";
import { type LossInputs, type LossSums, tokenLosses } from "./losses.js";

/** Logits are never held for more than about this many values at once. */
const chunkValues = 1 << 19;

export interface HeadGradients {
  lora: LoraWeights | null;
  /** Gradient of the head matrix, in the layout of `weights.head`. */
  head: F32 | null;
}

export interface HeadResult extends LossSums {
  logprobs: Float32Array;
  /** Some slope was not zero, so there is something to propagate. */
  hasGradient: boolean;
}

/** With `dhidden`, also writes the gradient of the hidden rows and adds to the head's gradients. */
export async function lossHead(
  kernels: Kernels,
  model: DecoderModel,
  kept: Activations,
  targets: Int32Array,
  targetsPerToken: number,
  lossFn: LossName,
  inputs: LossInputs,
  lora: LoraWeights | null,
  backward: { dhidden: F32; gradients: HeadGradients } | null,
): Promise<HeadResult> {
  const { config, weights } = model;
  const { hiddenSize, vocabSize } = config;
  const { rows } = kept.packed;
  const result: HeadResult = {
    loss: 0,
    clipped: 0,
    logprobs: new Float32Array(rows * targetsPerToken),
    hasGradient: false,
  };
  const chunk = Math.min(rows, Math.max(16, Math.floor(chunkValues / vocabSize)));
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
    const sums = tokenLosses(lossFn, inputs, targetsAt, logprobs, slopes);
    result.loss += sums.loss;
    result.clipped += sums.clipped;
    if (backward) {
      const dhidden = rowsOf(backward.dhidden, start, count, hiddenSize);
      if (slopes.every((slope) => slope === 0)) {
        kernels.zero(dhidden);
      } else {
        result.hasGradient = true;
        const coefficients = kernels.scratch(targetCount);
        kernels.upload(coefficients, slopes);
        kernels.logitsGradient(logits, lse, targetRows, coefficients, count, vocabSize, targetsPerToken);
        linearBackward(kernels, dhidden, logits, hidden, weights.head, shape, adapted, low, {
          weight: backward.gradients.head,
          adapter: backward.gradients.lora?.head ?? null,
        });
      }
    }
    kernels.release(mark);
  }
  return result;
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
