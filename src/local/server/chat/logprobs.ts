import type { SampleEvent, ScoredToken } from "./sampled-tokens.js";
import type { TokenNames } from "./token-names.js";

/** The logprob of one place of a text, and of what could have stood there. */
export type ScoredPlace = Pick<Extract<SampleEvent, { type: "token" }>, "scored" | "top">;

/** Logprobs as chats show them. */
export function chatLogprobs(names: TokenNames, places: readonly ScoredPlace[]): object {
  const entry = ([token, logprob]: ScoredToken) => {
    const { text, bytes } = names.of(token);
    return { token: text, logprob, bytes };
  };
  const content = places.map(({ scored, top }) => ({ ...entry(scored), top_logprobs: top.map(entry) }));
  return { content, refusal: null };
}

/** A place of a plain completion: where its text begins, and no logprob for the first token of all. */
export interface TextPlace {
  readonly token: number;
  readonly logprob: number | null;
  readonly top: readonly ScoredToken[] | null;
  readonly textOffset: number;
}

/** Logprobs as plain completions show them: lists side by side. */
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

/** By their texts; of two tokens with one text the likelier. */
function byText(names: TokenNames, scored: readonly ScoredToken[]): Record<string, number> {
  const rising = scored.toSorted(([, one], [, other]) => one - other);
  return Object.fromEntries(rising.map(([token, logprob]) => [names.of(token).text, logprob]));
}
