import { TinkerError } from "../../errors.js";
import type { Renderer } from "../../renderers/index.js";
import { ModelInput, wrongValue } from "../../wire/index.js";
import { type ChatSampler, rendererOf } from "../chat/renderer-of.js";
import { type Comparison, swapComparison } from "./comparison.js";
import { type RenderedComparison, renderComparison } from "./comparison-format.js";

/** What a comparison may listen to. */
export interface CompareOptions {
  readonly signal?: AbortSignal | undefined;
}

/** Says which of two answers is better: from -1, the first one, over 0, neither, to 1, the second one. */
export type Compare = (comparison: Comparison, options?: CompareOptions) => number | Promise<number>;

/** How a preference model is asked. */
export interface PreferenceModelOptions {
  /** The one it was trained with, or its name. Default: what fits the sampler's base model. */
  readonly renderer?: Renderer | string | undefined;
  /**
   * `probability` (default): P(B) - P(A), out of A, B and Tie, which also says how sure the model is. `greedy`: -1, 0 or
   * 1 by the likeliest token alone; 0 where it is no label.
   */
  readonly scoring?: "probability" | "greedy" | undefined;
}

/** By their names. */
export const SCORINGS = { probability: scoreByProbability, greedy: scoreGreedily };

/** A model that was trained by `trainPreferenceModel`, as a judge of answers. */
export function preferenceModel(
  sampler: ChatSampler,
  { renderer, scoring = "probability" }: PreferenceModelOptions = {},
): Compare {
  if (!Object.hasOwn(SCORINGS, scoring)) throw wrongValue("scoring", "probability or greedy", scoring);
  return async (comparison, options = {}) => {
    const format = typeof renderer === "object" ? renderer : await rendererOf(sampler, renderer);
    return SCORINGS[scoring](sampler, renderComparison(comparison, format), options);
  };
}

/** One request: all labels are scored at the place where the label stands. */
async function scoreByProbability(
  sampler: ChatSampler,
  { prompt, labels: { A, B, Tie } }: RenderedComparison,
  { signal }: CompareOptions,
): Promise<number> {
  const targets = [A, B, Tie];
  const nothing = targets.map(() => -1);
  const { targetPromptLogprobs } = await sampler.sample(
    {
      prompt: ModelInput.from([...prompt.chunks, { type: "encoded_text", tokens: Int32Array.of(A) }]),
      samplingParams: { maxTokens: 1 },
      targetPromptLogprobs: [...Array.from({ length: prompt.length - 1 }, () => nothing), targets],
    },
    { signal },
  );
  if (targetPromptLogprobs === null)
    throw new TinkerError('The server does not score tokens of a prompt: take scoring "greedy".');
  const { data } = targetPromptLogprobs.toDense();
  const [a = 0, b = 0, tie = 0] = [...data.slice(-targets.length)].map((logprob) => Math.exp(logprob));
  const total = a + b + tie;
  return total > 0 ? (b - a) / total : 0;
}

async function scoreGreedily(
  sampler: ChatSampler,
  { prompt, labels }: RenderedComparison,
  { signal }: CompareOptions,
): Promise<number> {
  const samplingParams = { maxTokens: 1, temperature: 0 };
  const { sequences } = await sampler.sample({ prompt, samplingParams }, { signal });
  const token = sequences[0]!.tokens[0];
  return token === labels.A ? -1 : token === labels.B ? 1 : 0;
}

/** Asks both ways round, so that it does not matter which answer stands first; needs twice the calls. */
export function bothWays(compare: Compare): Compare {
  return async (comparison, options) => {
    const [forth, back] = await Promise.all([
      compare(comparison, options),
      compare(swapComparison(comparison), options),
    ]);
    return (forth - back) / 2;
  };
}
