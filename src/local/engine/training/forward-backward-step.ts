import type { LossName } from "../engine.js";
import { CountingKernels } from "../kernels/counting-kernels.js";
import type { Kernels } from "../kernels/kernels.js";
import type { DecoderModel } from "../model/base-model.js";
import { type DecoderGradients, decoderBackward } from "../model/decoder-backward.js";
import type { LoraWeights } from "../model/lora.js";
import { packedForward, packSequences } from "../model/packed-forward.js";
import { lossHead } from "./loss-head.js";
import { crossEntropyInputs, type LossInputs, type LossSums, tokenLosses } from "./token-losses.js";

/** Sequences that are computed together. */
export interface TrainingStep {
  model: DecoderModel;
  lora: LoraWeights | undefined;
  sequences: Int32Array[];
  /** The sequences' targets one after another, `targetsPerToken` for each token. */
  targets: Int32Array;
  targetsPerToken: number;
  lossFn: LossName;
  inputs: LossInputs;
  /** Added to. */
  sums: LossSums;
  /** Added to; absent in a pass that only computes the loss. */
  gradients: DecoderGradients | undefined;
}

/** One forward pass and, with gradients, one backward pass; returns the logprobs of the targets. */
export async function forwardBackwardStep(kernels: Kernels, step: TrainingStep): Promise<Float32Array> {
  const { model, lora, lossFn, inputs, sums, gradients } = step;
  const mark = kernels.mark();
  try {
    const packed = packSequences(kernels, step.sequences);
    const activations = packedForward(kernels, model, packed, lora);
    const dhidden = gradients && kernels.scratch(packed.rows * model.config.hiddenSize);
    const { logprobs, activeRows } = await lossHead(kernels, {
      head: model.weights.head,
      adapter: lora?.head,
      hidden: activations.hidden,
      rows: packed.rows,
      targets: step.targets,
      targetsPerToken: step.targetsPerToken,
      gradientsOf: (start, chunk) => tokenLosses(lossFn, inputs, start, chunk, sums),
      backward: dhidden && {
        dhidden,
        adapterGradient: gradients.lora?.head,
        weightGradient: gradients.weights?.head.weight,
      },
    });
    if (dhidden) decoderBackward(kernels, model, { activations, dhidden, activeRows, lora, gradients });
    return logprobs;
  } finally {
    kernels.release(mark);
  }
}

/**
 * Floats of scratch that a step over `rows` tokens takes at most, found by running it on kernels that only count.
 * One row has no gradient: taking the others out of the activations needs more room than a step over all of them.
 */
export async function scratchFloats(
  step: Pick<TrainingStep, "model" | "lora" | "gradients" | "targetsPerToken">,
  rows: number,
): Promise<number> {
  const kernels = new CountingKernels();
  const targets = new Int32Array(rows * step.targetsPerToken);
  const weights = new Float32Array(targets.length).fill(1);
  if (rows > 1) weights.fill(0, 0, step.targetsPerToken);
  await forwardBackwardStep(kernels, {
    ...step,
    sequences: new Array<Int32Array>(rows).fill(new Int32Array(1)),
    targets,
    lossFn: "cross_entropy",
    inputs: crossEntropyInputs(weights),
    sums: { loss: 0, clippedTokens: 0 },
  });
  return kernels.mostScratchBytes / 4;
}
