import type { SamplingClient } from "../../clients/index.js";
import { TinkerError } from "../../errors.js";
import type { SamplingParams } from "../../wire/index.js";
import type { Action, Observation } from "../environments/index.js";

/** How one answer is sampled. */
export interface PolicyCall {
  /** Tokens that are left for this answer, where something limits them. */
  readonly maxTokens?: number | undefined;
  /** The same one gives the same answer. */
  readonly seed?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** What acts in an environment: tokens in, tokens out. */
export interface Policy {
  act(observation: Observation, call?: PolicyCall): Promise<Action>;
}

/** A model that acts, with these settings. */
export function samplerPolicy(
  sampler: Pick<SamplingClient, "sample">,
  { maxTokens, ...settings }: Omit<SamplingParams, "stop" | "seed"> = {},
): Policy {
  return {
    act: async ({ prompt, stop }, { maxTokens: left, seed, signal } = {}) => {
      const most = Math.min(maxTokens ?? Number.POSITIVE_INFINITY, left ?? Number.POSITIVE_INFINITY);
      const samplingParams = {
        ...settings,
        ...(Number.isFinite(most) && { maxTokens: most }),
        stop,
        seed,
      };
      const { sequences } = await sampler.sample({ prompt, numSamples: 1, samplingParams }, { signal });
      const { tokens, logprobs, stopReason } = sequences[0]!;
      if (logprobs === null)
        throw new TinkerError("The server sent samples without logprobs: they cannot be trained on.");
      return { tokens, logprobs, stopReason };
    },
  };
}
