/** Tokens by what the service charges for. */
export interface TokenCounts {
  /** Prompt tokens that were not in the cache. */
  readonly prefill: number;
  /** Prompt tokens that the server had in its cache. */
  readonly cachedPrefill: number;
  /** Sampled tokens. */
  readonly sample: number;
  /** Tokens of forward and backward passes; a forward pass alone counts too. */
  readonly train: number;
}

/** Prices in dollars per million tokens. */
export type TokenPrices = TokenCounts;

/** Tokens of each model. */
export type TokensByModel = ReadonlyMap<string, TokenCounts>;

export const NO_TOKENS: TokenCounts = { prefill: 0, cachedPrefill: 0, sample: 0, train: 0 };

/** The kinds of tokens, in the order in which they are shown. */
export const TOKEN_KINDS = Object.keys(NO_TOKENS) as readonly (keyof TokenCounts)[];

function eachKind(count: (kind: keyof TokenCounts) => number): TokenCounts {
  return {
    prefill: count("prefill"),
    cachedPrefill: count("cachedPrefill"),
    sample: count("sample"),
    train: count("train"),
  };
}

/** The sum of two counts. */
export function addTokens(one: TokenCounts, other: Partial<TokenCounts>): TokenCounts {
  return eachKind((kind) => one[kind] + (other[kind] ?? 0));
}

/** Every count times a factor. */
export function scaleTokens(counts: TokenCounts, factor: number): TokenCounts {
  return eachKind((kind) => counts[kind] * factor);
}

/** Tokens of all kinds. */
export function totalTokens(counts: TokenCounts): number {
  return TOKEN_KINDS.reduce((sum, kind) => sum + counts[kind], 0);
}

/** Tokens of all models. */
export function sumOfModels(tokens: TokensByModel): TokenCounts {
  return [...tokens.values()].reduce(addTokens, NO_TOKENS);
}

/** Tokens of both, model by model. */
export function addModels(one: TokensByModel, other: TokensByModel): TokensByModel {
  const sum = new Map(one);
  for (const [model, counts] of other) sum.set(model, addTokens(sum.get(model) ?? NO_TOKENS, counts));
  return sum;
}

/** Cost of tokens in dollars. */
export function dollarsOf(counts: TokenCounts, prices: TokenPrices): number {
  return TOKEN_KINDS.reduce((sum, kind) => sum + counts[kind] * prices[kind], 0) / 1e6;
}
