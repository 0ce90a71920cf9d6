import type { AnswerToken } from "../renderers/answer-events.js";
import type { ScoredToken } from "../renderers/token-source.js";
import type { TokenNames } from "./token-names.js";

/** Logprobs in the format of chat completions. */
export function chatLogprobs(
  names: TokenNames,
  tokens: readonly AnswerToken[],
): { readonly content: readonly object[]; readonly refusal: null } {
  const entry = ([token, logprob]: ScoredToken) => {
    const { text, bytes } = names.of(token);
    return { token: text, logprob, bytes };
  };
  const content = tokens.map(({ scored, top }) => ({ ...entry(scored), top_logprobs: top.map(entry) }));
  return { content, refusal: null };
}

/** An empty entry for the first token, which has no logprob. */
export interface TextPlace {
  readonly token: number;
  readonly logprob: number | null;
  readonly top: readonly ScoredToken[] | null;
  readonly textOffset: number;
}

/** Logprobs in the format of plain completions: parallel lists. */
export function completionLogprobs(names: TokenNames, places: readonly TextPlace[]): object {
  return {
    tokens: places.map(({ token }) => names.of(token).text),
    token_logprobs: places.map(({ logprob }) => logprob),
    top_logprobs: places.map(({ token, logprob, top }) =>
      logprob === null || top === null ? null : byText(names, [[token, logprob], ...top]),
    ),
    text_offset: places.map(({ textOffset }) => textOffset),
  };
}

/** Logprobs by token text; of two tokens with the same text, the likelier counts. */
function byText(names: TokenNames, scored: readonly ScoredToken[]): Record<string, number> {
  const rising = scored.toSorted(([, one], [, other]) => one - other);
  return Object.fromEntries(rising.map(([token, logprob]) => [names.of(token).text, logprob]));
}
