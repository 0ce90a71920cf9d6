import type { SampleArguments } from "../../clients/sampling/sample-arguments.js";
import { BadRequestError, UnprocessableEntityError, ValidationError } from "../../errors.js";
import type { GatewaySampler } from "../../gateway/gateway.js";
import type { Renderer } from "../../renderers/index.js";
import type { Tokenizer } from "../../tokenizers/index.js";
import { type Clock, linkSignals, type RequestOptions } from "../../transport/index.js";
import { ModelInput, type SampledSequence, type SampleResponse } from "../../wire/index.js";
import { isContextOverflow } from "../chat/index.js";
import type { Action, Policy } from "../environments/index.js";
import { withinTime } from "../environments/within-time.js";
import { derivedSeed } from "../rollouts/index.js";

/** How the requests of one episode are sampled. */
export interface PolicySamplerOptions {
  readonly model: string;
  readonly renderer: Renderer;
  readonly seed: number | undefined;
  readonly clock: Clock;
  /** Time limit of one request. */
  readonly sampleTimeoutMs: number | undefined;
  /** Called when sampling fails for a reason that is not the request's fault. */
  readonly onFailure: (error: unknown) => void;
}

/**
 * Makes samplers for the requests of one episode. Temperature and seed come from the run, not from the agent: equal seeds
 * would make the episodes of a group the same, and the loss assumes the run's temperature.
 */
export function policySamplers(options: PolicySamplerOptions): (policy: Policy) => GatewaySampler {
  const { model, renderer, seed, clock, sampleTimeoutMs, onFailure } = options;
  let numSampled = 0;
  const nextSeed = () => (seed === undefined ? undefined : derivedSeed(seed, numSampled++));
  const sampling =
    (policy: Policy) =>
    async (request: SampleArguments, { signal: given }: RequestOptions = {}): Promise<SampleResponse> => {
      const { prompt, numSamples = 1, samplingParams = {}, includePromptLogprobs } = request;
      if (includePromptLogprobs)
        throw new ValidationError("echo", "echo must be false: a run does not score prompts for its agents.");
      const { maxTokens, stop = [] } = samplingParams;
      const { signal, release } = linkSignals(given ?? undefined);
      const observation = { prompt: ModelInput.from(prompt), stop: typeof stop === "string" ? [stop] : stop };
      const act = () =>
        withinTime("A sample", sampleTimeoutMs, { signal, clock }, (limited) =>
          policy.act(observation, { maxTokens, seed: nextSeed(), signal: limited }),
        );
      try {
        const actions = await Promise.all(Array.from({ length: numSamples }, act));
        return response(actions);
      } catch (error) {
        if (!signal.aborted && !isOfRequest(error)) onFailure(error);
        throw error;
      } finally {
        release();
      }
    };
  return (policy) => ({
    getBaseModel: async () => model,
    getTokenizer: async () => renderer.tokenizer as unknown as Tokenizer,
    // A gateway only awaits it.
    sample: sampling(policy) as unknown as GatewaySampler["sample"],
  });
}

/** Whether another request could have been answered. */
function isOfRequest(error: unknown): boolean {
  return (
    isContextOverflow(error) ||
    [BadRequestError, UnprocessableEntityError, ValidationError].some((kind) => error instanceof kind)
  );
}

function response(actions: readonly Action[]): SampleResponse {
  const sequences = actions.map(
    ({ tokens, logprobs, stopReason }): SampledSequence => ({
      ...{ tokens, logprobs, stopReason },
      ...{ sequenceId: null, topkLogprobs: null },
    }),
  );
  return {
    sequences,
    ...{ promptLogprobs: null, topkPromptLogprobs: null, targetPromptLogprobs: null },
    ...{ promptCacheHitTokens: 0, promptAltTokens: null },
  };
}
