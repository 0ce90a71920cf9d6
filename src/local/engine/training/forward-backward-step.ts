import type { PublishedLoss } from "../../../wire/training/losses.js";
import { CountingKernels } from "../kernels/counting-kernels.js";
import type { Kernels } from "../kernels/kernels.js";
import { type LossSums, type TokenLossInputs, tokenLosses } from "../kernels/token-losses.js";
import type { DecoderModel } from "../model/base-model.js";
import { type DecoderGradients, decoderBackward } from "../model/decoder-backward.js";
import type { LoraWeights } from "../model/lora.js";
import { packedForward, packSequences } from "../model/packed-forward.js";
import { lossHead, scoreTargets } from "./loss-head.js";
import { crossEntropyInputs } from "./loss-inputs.js";

/** Sequences that are computed together. */
export interface TrainingStep {
  model: DecoderModel;
  lora: LoraWeights | undefined;
  sequences: Int32Array[];
  /** The sequences' targets one after another, `targetsPerToken` for each token. */
  targets: Int32Array;
  targetsPerToken: number;
  /** Loss of each target, or the gradients of a loss that needs all logprobs of a sequence. */
  loss: TokenLoss | SequenceLoss;
  /** Added to; absent in a pass that only computes the loss. */
  gradients: DecoderGradients | undefined;
  /** Keep only the blocks' inputs and compute the rest of a block again on the way back: slower, and far less memory. */
  recompute: boolean;
}

/** A loss that is a sum over targets. */
export interface TokenLoss {
  kind: "token";
  name: PublishedLoss;
  inputs: TokenLossInputs;
  /** Added to. */
  sums: LossSums;
}

/** A loss over whole sequences: d loss / d logprob of each target, given all of them. */
export interface SequenceLoss {
  kind: "sequence";
  differentiate(logprobs: Float32Array): Float32Array;
}

/** One forward pass and, with gradients, one backward pass; returns the logprobs of the targets. */
export async function forwardBackwardStep(kernels: Kernels, step: TrainingStep): Promise<Float32Array> {
  const { model, lora, loss, gradients } = step;
  const mark = kernels.mark();
  let downloaded: Promise<Float32Array>;
  try {
    const packed = packSequences(kernels, step.sequences);
    const keep = !gradients ? "nothing" : step.recompute ? "inputs" : "all";
    const activations = packedForward(kernels, model, packed, lora, keep);
    const dhidden = gradients && kernels.scratch(packed.rows * model.config.hiddenSize);
    const head = {
      head: model.weights.head,
      adapter: lora?.head,
      hidden: activations.hidden,
      rows: packed.rows,
      targets: step.targets,
      targetsPerToken: step.targetsPerToken,
      backward: dhidden && {
        dhidden,
        adapterGradient: gradients.lora?.head,
        weightGradient: gradients.weights?.head.weight,
      },
    };
    let activeRows: Int32Array;
    if (loss.kind === "token") {
      const scored = lossHead(kernels, { ...head, loss: loss.name, inputs: loss.inputs });
      activeRows = scored.activeRows;
      // Asked for before the backward pass and awaited behind it: a device goes on meanwhile.
      downloaded = kernels.download(scored.logprobs);
      downloaded.catch(() => undefined);
    } else {
      const { logprobs, kept } = scoreTargets(kernels, head);
      downloaded = kernels.download(logprobs);
      const weights = loss.differentiate(await downloaded).map((gradient) => 0 - gradient);
      // Cross-entropy is linear in the logprobs, so with these weights it has the gradients of any loss.
      const inputs = crossEntropyInputs(weights);
      activeRows = dhidden
        ? lossHead(kernels, { ...head, loss: "cross_entropy", inputs, kept }).activeRows
        : new Int32Array(0);
    }
    if (dhidden) decoderBackward(kernels, model, { activations, dhidden, activeRows, lora, gradients });
  } finally {
    kernels.release(mark);
  }
  const logprobs = await downloaded;
  if (loss.kind === "token") tokenLosses(loss.name, loss.inputs, logprobs, loss.sums);
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
  step: Pick<TrainingStep, "model" | "lora" | "gradients" | "targetsPerToken" | "recompute"> & {
    kind: (TokenLoss | SequenceLoss)["kind"];
  },
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
    loss:
      step.kind === "sequence"
        ? { kind: "sequence", differentiate: () => weights }
        : {
            kind: "token",
            name: "cross_entropy",
            inputs: crossEntropyInputs(weights),
            sums: { loss: 0, clippedTokens: 0 },
          },
  });
  return { bytes: kernels.mostScratchBytes, largestBytes: kernels.largestPieceBytes };
}
