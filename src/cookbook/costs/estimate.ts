import type { PriceList } from "./prices.js";
import { addModels, sumOfModels, TOKEN_KINDS, type TokenCounts, type TokensByModel } from "./token-counts.js";

/** The least and the most of something. */
export interface LeastAndMost<T> {
  readonly least: T;
  readonly most: T;
}

/** Tokens and dollars of a run before it starts. */
export interface RunEstimate {
  /** Whether the tokens are known exactly: the least are the most. */
  readonly isExact: boolean;
  readonly tokens: LeastAndMost<TokenCounts>;
  /** Absent where the price of a model is unknown. */
  readonly usd?: LeastAndMost<number> | undefined;
  /** Why there are no dollars. */
  readonly whyNoUsd?: string | undefined;
  /** Assumptions behind the numbers, one sentence each. */
  readonly assumptions: readonly string[];
}

/** The tokens of a run by model, and what was supposed in counting them. */
export interface PlannedTokens {
  readonly least: TokensByModel;
  readonly most: TokensByModel;
  readonly assumptions: readonly string[];
}

/** Tokens that are known exactly. */
export function exactly(tokens: TokensByModel, assumptions: readonly string[] = []): PlannedTokens {
  return { least: tokens, most: tokens, assumptions };
}

/** Tokens of both. */
export function addPlanned(one: PlannedTokens, other: PlannedTokens): PlannedTokens {
  return {
    least: addModels(one.least, other.least),
    most: addModels(one.most, other.most),
    assumptions: [...new Set([...one.assumptions, ...other.assumptions])],
  };
}

/** Tokens and dollars of a plan. */
export function estimateOf({ least, most, assumptions }: PlannedTokens, prices: PriceList): RunEstimate {
  const [leastUsd, mostUsd] = [prices.dollars(least), prices.dollars(most)];
  const tokens = { least: sumOfModels(least), most: sumOfModels(most) };
  return {
    isExact: TOKEN_KINDS.every((kind) => tokens.least[kind] === tokens.most[kind]),
    tokens,
    ...(leastUsd === undefined || mostUsd === undefined
      ? { whyNoUsd: prices.whyUnknown(most.keys()) }
      : { usd: { least: leastUsd, most: mostUsd } }),
    assumptions,
  };
}

const KIND_NAMES: Readonly<Record<keyof TokenCounts, string>> = {
  train: "trained",
  sample: "sampled",
  prefill: "read",
  cachedPrefill: "read from the cache",
};

/** Lines of a description: the tokens, and what they cost. */
export function describeEstimate(
  { isExact, tokens, usd, whyNoUsd, assumptions }: RunEstimate,
  prices: PriceList,
): readonly (readonly [name: string, text: string])[] {
  const { least, most } = tokens;
  const counts = (["train", "sample", "prefill", "cachedPrefill"] as const)
    .filter((kind) => most[kind] > 0)
    .map((kind) => `${range(least[kind], most[kind], shortCount)} ${KIND_NAMES[kind]}`);
  const warning = prices.warning();
  return [
    ["in all", `${counts.join(", ")} tokens`],
    ["cost", costText(usd, whyNoUsd, isExact)],
    ...assumptions.map((assumption) => ["supposed", assumption] as const),
    ...(warning === undefined ? [] : [["note", warning] as const]),
  ];
}

function costText(usd: RunEstimate["usd"], whyNoUsd: string | undefined, isExact: boolean): string {
  if (usd === undefined) return `unknown: ${whyNoUsd}`;
  if (usd.most === 0) return "nothing: the built-in backend is free";
  return isExact ? `about ${dollarText(usd.most)}` : `from ${range(usd.least, usd.most, dollarText, " to ")}`;
}

function range(least: number, most: number, text: (value: number) => string, between = " to "): string {
  const [low, high] = [text(least), text(most)];
  return low === high ? low : `${low}${between}${high}`;
}

/** A number of tokens for people: 950, 12.3k, 4.56M. */
export function shortCount(count: number): string {
  const rounded = Math.round(count);
  if (rounded < 10_000) return rounded.toLocaleString("en-US");
  if (rounded < 1_000_000) return `${Number((rounded / 1e3).toPrecision(3))}k`;
  return `${Number((rounded / 1e6).toPrecision(3)).toLocaleString("en-US")}M`;
}

/** Dollars for people: as many digits as say something. */
export function dollarText(usd: number): string {
  if (usd === 0 || usd >= 0.1) return `$${usd.toFixed(2)}`;
  return `$${Number(usd.toPrecision(2))}`;
}
