import type { SamplingClient } from "../../clients/index.js";
import { TinkerError } from "../../errors.js";
import * as f from "../../wire/fields/index.js";
import type { SamplingParams } from "../../wire/index.js";
import { CHAT_OPTIONS } from "../chat/index.js";
import type { Policy } from "../environments/index.js";

export type { Policy, PolicyCall } from "../environments/index.js";

/** How a policy samples its turns. */
export type PolicyOptions = Omit<SamplingParams, "stop" | "seed">;

/** The option table of `samplerPolicy`. */
export const POLICY_OPTIONS = f.optionTable({
  maxTokens: CHAT_OPTIONS.maxTokens,
  temperature: CHAT_OPTIONS.temperature,
  topK: CHAT_OPTIONS.topK,
  topP: CHAT_OPTIONS.topP,
} satisfies f.OptionsOf<PolicyOptions>);

/** Makes a policy of a sampler with these settings. */
export function samplerPolicy(sampler: Pick<SamplingClient, "sample">, options: PolicyOptions = {}): Policy {
  POLICY_OPTIONS.check(options, "samplerPolicy");
  const { maxTokens, ...settings } = options;
  return {
    act: async ({ prompt, stop }, { maxTokens: left, seed, signal } = {}) => {
      const most = Math.min(maxTokens ?? Number.POSITIVE_INFINITY, left ?? Number.POSITIVE_INFINITY);
      const samplingParams = { ...settings, ...(Number.isFinite(most) && { maxTokens: most }), stop, seed };
      const { sequences } = await sampler.sample({ prompt, numSamples: 1, samplingParams }, { signal });
      const { tokens, logprobs, stopReason } = sequences[0]!;
      if (logprobs === null)
        throw new TinkerError("The server sent samples without logprobs: they cannot be trained on.");
      return { tokens, logprobs, stopReason };
    },
  };
}
