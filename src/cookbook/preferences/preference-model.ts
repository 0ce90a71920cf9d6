import { TinkerError } from "../../errors.js";
import type { Renderer } from "../../renderers/index.js";
import { ModelInput, type OptionsOf, oneOf, option, optionTable, withDefault } from "../../wire/index.js";
import { CHAT_OPTIONS } from "../chat/chat.js";
import { type ChatSampler, rendererOf } from "../chat/renderer-of.js";
import { type Comparison, swapComparison } from "./comparison.js";
import { type RenderedComparison, renderComparison } from "./comparison-format.js";

/** Options of a comparison: a signal that aborts it. */
export interface CompareOptions {
  readonly signal?: AbortSignal | undefined;
}

/** Compares two answers: from -1, if the first is better, over 0 to 1, if the second is. */
export type Compare = (comparison: Comparison, options?: CompareOptions) => number | Promise<number>;

/** How to ask a preference model. */
export interface PreferenceModelOptions {
  /** Renderer that the model was trained with, or its name. Default: the one that fits the sampler's base model. */
  readonly renderer?: Renderer | string | undefined;
  /**
   * Scoring. `probability` (default): P(B) - P(A) among A, B and Tie, which also expresses confidence. `greedy`: -1, 0
   * or 1 for the likeliest token; 0 if it is not a label.
   */
  readonly scoring?: "probability" | "greedy" | undefined;
}

const SCORINGS = { probability: scoreByProbability, greedy: scoreGreedily };
/** The option table of `preferenceModel`. */
export const PREFERENCE_OPTIONS = optionTable({
  renderer: CHAT_OPTIONS.renderer,
  scoring: option(withDefault(oneOf("probability", "greedy"), "probability"), "how an answer is scored"),
} satisfies OptionsOf<PreferenceModelOptions>);

/** Makes a judge of answers from a model trained by `trainPreferenceModel`. */
export function preferenceModel(sampler: ChatSampler, given: PreferenceModelOptions = {}): Compare {
  const { renderer, scoring } = PREFERENCE_OPTIONS.check(given, "preferenceModel");
  return async (comparison, options = {}) => {
    const format = typeof renderer === "object" ? renderer : await rendererOf(sampler, renderer);
    return SCORINGS[scoring](sampler, renderComparison(comparison, format), options);
  };
}

/** One request: all labels are scored at the label's position. */
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
    throw new TinkerError('The server does not score tokens of a prompt: use scoring "greedy".');
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

/** Asks in both orders, so that the order of the answers does not matter; needs twice the calls. */
export function bothWays(compare: Compare): Compare {
  return async (comparison, options) => {
    const [forth, back] = await Promise.all([
      compare(comparison, options),
      compare(swapComparison(comparison), options),
    ]);
    return (forth - back) / 2;
  };
}
