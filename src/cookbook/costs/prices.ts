import type { ServiceClient } from "../../clients/index.js";
import { HOSTED_BASE_URL } from "../../transport/index.js";
import * as f from "../../wire/fields/index.js";
import { isRecord } from "../../wire/index.js";
import { PRICE_TABLE, type PriceTable } from "./price-table.js";
import { dollarsOf, type TokenCounts, type TokenPrices, type TokensByModel } from "./token-counts.js";

/** Your own prices, which replace the published ones of the same models. */
export interface PriceOverrides {
  /** Day (YYYY-MM-DD) on which they were valid; older than 90 days, a run warns. */
  readonly asOf?: string | undefined;
  /** Dollars per million tokens, by model. */
  readonly models: Readonly<Record<string, TokenPrices>>;
}

const DAY_MS = 86_400_000;
/** Prices that are older are shown with a warning. */
const MAX_AGE_DAYS = 90;

const TOKEN_PRICES = f.message({
  prefill: f.nonNegative,
  cachedPrefill: f.nonNegative,
  sample: f.nonNegative,
  train: f.nonNegative,
} satisfies f.FieldsOf<TokenPrices>);

const day = f.value<string>(
  "a day such as 2026-09-29",
  (given) =>
    typeof given === "string" && /^\d{4}-\d{2}-\d{2}$/.test(given) && !Number.isNaN(Date.parse(given)),
);

const modelPrices = f.customField<Readonly<Record<string, TokenPrices>>>((given, path) => {
  if (!isRecord(given)) throw f.wrongValue(path, "an object of models and their prices", given);
  return Object.fromEntries(
    Object.entries(given).map(([model, prices]) => [model, TOKEN_PRICES.check(prices, `${path}[${model}]`)]),
  );
});

/** The format of your own prices. */
export const PRICE_OVERRIDES = f.message({
  asOf: f.optional(day),
  models: modelPrices,
} satisfies f.FieldsOf<PriceOverrides>);

/** The `prices` option: your own prices, or the JSON file that has them. */
export const pricesField: f.Field<string | PriceOverrides> = f.eitherOf(isRecord, PRICE_OVERRIDES, f.text);

/** Prices that a run is charged by. */
export class PriceList {
  readonly #models: (model: string) => TokenPrices | undefined;
  /** Why a model has no price here. */
  readonly #reason: (model: string) => string;
  readonly #asOf: string | undefined;
  readonly #source: string;

  constructor(parts: {
    models: (model: string) => TokenPrices | undefined;
    reason: (model: string) => string;
    asOf: string | undefined;
    source: string;
  }) {
    this.#models = parts.models;
    this.#reason = parts.reason;
    this.#asOf = parts.asOf;
    this.#source = parts.source;
  }

  /** Prices of a model, exactly as it is named: a longer context has prices of its own. */
  of(model: string): TokenPrices | undefined {
    return this.#models(model);
  }

  /** Cost of tokens in dollars; undefined if one of the models has no known price. */
  dollars(tokens: TokensByModel): number | undefined {
    let sum = 0;
    for (const [model, counts] of tokens) {
      const cost = this.#cost(model, counts);
      if (cost === undefined) return undefined;
      sum += cost;
    }
    return sum;
  }

  #cost(model: string, counts: TokenCounts): number | undefined {
    const prices = this.of(model);
    return prices && dollarsOf(counts, prices);
  }

  /** Says why there are only tokens and no dollars; undefined if every model has a price. */
  whyUnknown(models: Iterable<string>): string | undefined {
    for (const model of models) if (this.of(model) === undefined) return this.#reason(model);
    return undefined;
  }

  /** Says that the prices are old, if they are. */
  warning(nowMs = Date.now()): string | undefined {
    if (this.#asOf === undefined) return undefined;
    const days = Math.floor((nowMs - Date.parse(this.#asOf)) / DAY_MS);
    if (days <= MAX_AGE_DAYS) return undefined;
    return (
      `the prices are of ${this.#asOf}, ${days} days ago: compare them with ${this.#source}, ` +
      "and give newer ones as prices (--prices FILE)"
    );
  }
}

/** The prices of a service: your own first, then the hosted service's. The built-in backend costs nothing. */
export async function priceList(
  service: Pick<ServiceClient, "baseURL"> & { readonly runData?: object | undefined },
  given: string | PriceOverrides | undefined,
  nowMs = Date.now(),
): Promise<PriceList> {
  const own = typeof given === "string" ? await pricesFrom(given) : given;
  const isHosted = service.baseURL === HOSTED_BASE_URL;
  const isFree = service.runData !== undefined;
  const free = { prefill: 0, cachedPrefill: 0, sample: 0, train: 0 };
  const published = (model: string) => {
    if (isFree) return free;
    return isHosted || PRICE_TABLE.models[model]?.train === 0 ? publishedPrices(model, nowMs) : undefined;
  };
  return new PriceList({
    models: (model) => (own && Object.hasOwn(own.models, model) ? own.models[model] : published(model)),
    reason: (model) => {
      if (!isHosted)
        return `the prices of ${service.baseURL} are unknown: give them as prices (--prices FILE)`;
      const why = Object.hasOwn(PRICE_TABLE.unknown, model)
        ? PRICE_TABLE.unknown[model]
        : "not in the price list";
      return `the price of ${model} is unknown (${why}): give it as prices (--prices FILE)`;
    },
    asOf: own === undefined ? (isHosted ? PRICE_TABLE.asOf : undefined) : own.asOf,
    source: own === undefined ? PRICE_TABLE.source : "what you pay",
  });
}

/** The published prices of a model on a day; undefined if they are unknown. */
export function publishedPrices(
  model: string,
  nowMs: number,
  table: PriceTable = PRICE_TABLE,
): TokenPrices | undefined {
  const found = Object.hasOwn(table.models, model) ? table.models[model] : undefined;
  if (found === undefined) return undefined;
  const { withoutDiscount, discountEnds, ...prices } = found;
  const isOver = discountEnds !== undefined && nowMs >= Date.parse(discountEnds);
  return isOver ? (withoutDiscount ?? prices) : prices;
}

async function pricesFrom(path: string): Promise<PriceOverrides> {
  const { readPrices } = await import("./price-file.node.js");
  return readPrices(path);
}
