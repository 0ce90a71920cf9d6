import type { LossName } from "../engine.js";
import { CountingKernels } from "../kernels/counting-kernels.js";
import type { Kernels } from "../kernels/kernels.js";
import { type LossSums, type TokenLossInputs, tokenLosses } from "../kernels/token-losses.js";
import type { DecoderModel } from "../model/base-model.js";
import { type DecoderGradients, decoderBackward } from "../model/decoder-backward.js";
import type { LoraWeights } from "../model/lora.js";
import { packedForward, packSequences } from "../model/packed-forward.js";
import { lossHead } from "./loss-head.js";
import { crossEntropyInputs } from "./loss-inputs.js";

/** Sequences that are computed together. */
export interface TrainingStep {
  model: DecoderModel;
  lora: LoraWeights | undefined;
  sequences: Int32Array[];
  /** The sequences' targets one after another, `targetsPerToken` for each token. */
  targets: Int32Array;
  targetsPerToken: number;
  loss: LossName;
  inputs: TokenLossInputs;
  /** Added to. */
  sums: LossSums;
  /** Added to; absent in a pass that only computes the loss. */
  gradients: DecoderGradients | undefined;
  /** Keep only the blocks' inputs and compute the rest of a block again on the way back: slower, and far less memory. */
  recompute: boolean;
}

/** One forward pass and, with gradients, one backward pass; returns the logprobs of the targets. */
export async function forwardBackwardStep(kernels: Kernels, step: TrainingStep): Promise<Float32Array> {
  const { model, lora, loss, inputs, sums, gradients } = step;
  const mark = kernels.mark();
  let downloaded: Promise<Float32Array>;
  try {
    const packed = packSequences(kernels, step.sequences);
    const keep = !gradients ? "nothing" : step.recompute ? "inputs" : "all";
    const activations = packedForward(kernels, model, packed, lora, keep);
    const dhidden = gradients && kernels.scratch(packed.rows * model.config.hiddenSize);
    const { logprobs, activeRows } = lossHead(kernels, {
      head: model.weights.head,
      adapter: lora?.head,
      hidden: activations.hidden,
      rows: packed.rows,
      targets: step.targets,
      targetsPerToken: step.targetsPerToken,
      loss,
      inputs,
      backward: dhidden && {
        dhidden,
        adapterGradient: gradients.lora?.head,
        weightGradient: gradients.weights?.head.weight,
      },
    });
    // Asked for before the backward pass and awaited behind it: a device goes on meanwhile.
    downloaded = kernels.download(logprobs);
    downloaded.catch(() => undefined);
    if (dhidden) decoderBackward(kernels, model, { activations, dhidden, activeRows, lora, gradients });
  } finally {
    kernels.release(mark);
  }
  const logprobs = await downloaded;
  tokenLosses(loss, inputs, logprobs, sums);
  return logprobs;
}

/** Scratch that a step takes at most, and the largest piece of it. */
export interface StepScratch {
  bytes: number;
  largestBytes: number;
}

/**
 * The scratch of a step over `rows` tokens, found by running it on kernels that only count.
 * One row has no gradient: taking the others out of the activations needs more room than a step over all of them.
 */
export async function stepScratch(
  step: Pick<TrainingStep, "model" | "lora" | "gradients" | "targetsPerToken" | "recompute">,
  sizes: Kernels["sizes"],
  rows: number,
): Promise<StepScratch> {
  const kernels = new CountingKernels(sizes);
  const targets = new Int32Array(rows * step.targetsPerToken);
  const weights = new Float32Array(targets.length).fill(1);
  if (rows > 1) weights.fill(0, 0, step.targetsPerToken);
  await forwardBackwardStep(kernels, {
    ...step,
    sequences: new Array<Int32Array>(rows).fill(new Int32Array(1)),
    targets,
    loss: "cross_entropy",
    inputs: crossEntropyInputs(weights),
    sums: { loss: 0, clippedTokens: 0 },
  });
  return { bytes: kernels.mostScratchBytes, largestBytes: kernels.largestPieceBytes };
}
