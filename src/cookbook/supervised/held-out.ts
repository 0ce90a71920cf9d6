import type { RendererTokenizer } from "../../renderers/index.js";
import type { Datum, ForwardBackwardOutput } from "../../wire/index.js";
import type { MeasureWeights } from "../runs/evaluation.js";
import { bitsPerByte, meanNll, type ScoredTokens } from "./likelihood.js";

/** How likely the held-out examples are; undefined where there are none. */
export function heldOutLikelihood(
  test: readonly Datum[],
  tokenizer: RendererTokenizer,
): MeasureWeights | undefined {
  if (test.length === 0) return undefined;
  return async (training, signal) => {
    // One pass of the trainer itself: as exact as a sampler's logprobs, and nothing has to be saved for it.
    const scored = scoredTokens(test, await training.forward(test, "cross_entropy", { signal }));
    return { "test/nll": meanNll(scored), "test/bpb": bitsPerByte(scored, tokenizer) };
  };
}

/** The logprobs of a pass beside what was asked for. */
export function scoredTokens(
  data: readonly Datum[],
  { lossFnOutputs }: ForwardBackwardOutput,
): ScoredTokens[] {
  return data.map(({ lossFnInputs }, index) => ({
    logprobs: lossFnOutputs[index]!["logprobs"]!.toDense().data,
    weights: lossFnInputs["weights"]!.toDense().data,
    targetTokens: lossFnInputs["targetTokens"]!.toDense().data,
  }));
}
