import type { ModelInput } from "../../wire/index.js";

/** A stretch of an episode that is trained on in one piece. All arrays are as long as the targets. */
export interface RolloutDatum {
  readonly input: ModelInput;
  readonly targetTokens: Int32Array;
  /** Of the tokens when they were sampled; 0 for those that were read. */
  readonly logprobs: Float32Array;
  /** 0 for tokens that were read. Penalties change it in place. */
  readonly advantages: Float32Array;
  /** 1 for tokens that were sampled, 0 for those that were read or are masked. */
  readonly mask: Float32Array;
  /** The place of its group in the batch. */
  readonly group: number;
  /** The place of its episode in the group. */
  readonly trajectory: number;
}

/** How many tokens are learnt from. */
export function countTaught(data: readonly Pick<RolloutDatum, "mask">[]): number {
  return data.reduce((count, { mask }) => mask.reduce((some, each) => some + each, count), 0);
}
