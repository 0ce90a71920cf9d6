import type { TensorData } from "../tensors/tensor-data.js";

/** How to draw tokens; what is left out takes the value named in its comment. */
export interface SamplingParams {
  /** Most tokens to generate; the server decides when absent. */
  readonly maxTokens?: number | undefined;
  readonly seed?: number | undefined;
  /** Texts or token ids that end a sequence. Absent keeps the model's own end of sequence; `[]` stops at nothing but `maxTokens`. */
  readonly stop?: string | readonly string[] | readonly number[] | undefined;
  /** Sampling temperature; default 1. */
  readonly temperature?: number | undefined;
  /** Draw from the k most likely tokens, -1 means all; -1. */
  readonly topK?: number | undefined;
  /** Draw from the smallest set of tokens with this much probability; 1. */
  readonly topP?: number | undefined;
}

/** For each position the most likely tokens with their logprobs, or null where none were computed. */
export type TopkLogprobs = (Array<[tokenId: number, logprob: number]> | null)[];

/** Why a sequence ended. */
export type StopReason = "length" | "stop" | (string & {});

/** One answer of the model. */
export interface SampledSequence {
  readonly stopReason: StopReason;
  /** The server's name for this sequence, given when the request is accepted; null where a server gives none. */
  readonly sequenceId: string | null;
  readonly tokens: Int32Array;
  readonly logprobs: Float32Array | null;
  readonly topkLogprobs: TopkLogprobs | null;
}

/** Draws from the model at each prompt position after the first; both tensors are `[prompt length - 1, k]`. */
export interface PromptAltTokens {
  readonly tokens: TensorData;
  readonly logprobs: TensorData;
}

/** The answers to a prompt, and what was asked about the prompt itself. */
export interface SampleResponse {
  readonly sequences: readonly SampledSequence[];
  /** One entry per prompt token, null where no logprob was computed (the first token, for one). */
  readonly promptLogprobs: (number | null)[] | null;
  readonly topkPromptLogprobs: TopkLogprobs | null;
  /** Same shape and layout as the request's `targetPromptLogprobs`. */
  readonly targetPromptLogprobs: TensorData | null;
  readonly promptCacheHitTokens: number;
  readonly promptAltTokens: PromptAltTokens | null;
}
