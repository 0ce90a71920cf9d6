import { DecodeStream, type TextTokenizer } from "../../tokenizers/index.js";
import type { TopkLogprobs } from "../../wire/index.js";
import type { ShownToken } from "../api.js";

/** Numbers that stand beside tokens, one each; anything else counts as absent. */
export interface TokenNumbers {
  readonly logprobs?: unknown;
  readonly advantages?: unknown;
  /** How much each token counts in the loss. */
  readonly weights?: unknown;
  /** The likeliest tokens at each place. */
  readonly top?: TopkLogprobs | undefined;
}

/** Tokens with their texts; a character that lies in several tokens stands at its last. Without a tokenizer, they have none. */
export function shownTokens(
  tokens: ArrayLike<number>,
  tokenizer: TextTokenizer | undefined,
  { logprobs, advantages, weights, top }: TokenNumbers = {},
): readonly ShownToken[] {
  const decoder = tokenizer && new DecodeStream(tokenizer);
  const at = (numbers: unknown, place: number) => {
    const value = (numbers as ArrayLike<unknown> | undefined)?.[place];
    return typeof value === "number" && Number.isFinite(value) ? value : undefined;
  };
  return Array.from(tokens, (id, place) => {
    const isLast = place === tokens.length - 1;
    const text = decoder === undefined ? "" : textOf(decoder, id, isLast);
    const alternatives = top?.[place]?.map(([other, likelihood]) => ({
      id: other,
      text: tokenizer?.decode([other]) ?? "",
      logprob: likelihood,
    }));
    const [logprob, advantage, weight] = [at(logprobs, place), at(advantages, place), at(weights, place)];
    return {
      id,
      text,
      ...(logprob === undefined ? {} : { logprob }),
      ...(advantage === undefined ? {} : { advantage }),
      ...(weight === undefined ? {} : { weight }),
      ...(alternatives === undefined ? {} : { alternatives }),
    };
  });
}

/** A number that is not a token of this tokenizer has no text. */
function textOf(decoder: DecodeStream, id: number, isLast: boolean): string {
  try {
    const text = decoder.push(id);
    return isLast ? text + decoder.end() : text;
  } catch {
    return "";
  }
}
