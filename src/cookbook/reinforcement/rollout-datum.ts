import type { ModelInput } from "../../wire/index.js";

/** Part of an episode that is trained as one datum. All arrays are as long as the targets. */
export interface RolloutDatum {
  readonly input: ModelInput;
  readonly targetTokens: Int32Array;
  /** Logprobs of the tokens when they were sampled; 0 for prompt tokens. */
  readonly logprobs: Float32Array;
  /** Advantage of each token; 0 for tokens that were read. Penalties change it in place. */
  readonly advantages: Float32Array;
  /** 1 for sampled tokens, 0 for tokens that were read or masked. */
  readonly mask: Float32Array;
  /** Position of its group in the batch. */
  readonly group: number;
  /** Position of its episode in the group. */
  readonly trajectory: number;
}

/** Counts the trained tokens of the data. */
export function countTrainedTokens(data: readonly Pick<RolloutDatum, "mask">[]): number {
  return data.reduce((count, { mask }) => mask.reduce((some, each) => some + each, count), 0);
}
