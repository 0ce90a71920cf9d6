import { readFile } from "node:fs/promises";
import { ValidationError } from "../../errors.js";
import { isRecord } from "../../wire/index.js";
import { PRICE_TABLE } from "./price-table.js";
import { PRICE_OVERRIDES, type PriceOverrides } from "./prices.js";
import type { TokenPrices } from "./token-counts.js";

/** Reads a file of prices: our own format, or a copy of the service's `models.json`. */
export async function readPrices(path: string): Promise<PriceOverrides> {
  const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    throw new ValidationError("prices", `prices: ${path} cannot be read (${error.code ?? error.message})`);
  });
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new ValidationError("prices", `prices: ${path} is not JSON`);
  }
  if (Array.isArray(json)) return { models: pricesOfService(json, path) };
  return PRICE_OVERRIDES.check(json, "prices");
}

/** The service's list has prices as texts: "$1.87". */
function pricesOfService(rows: readonly unknown[], path: string): Readonly<Record<string, TokenPrices>> {
  const dollars = (value: unknown) => Number(String(value).replace(/[$,]/g, ""));
  const models = rows.flatMap((row): [string, TokenPrices][] => {
    if (!isRecord(row) || typeof row["tinker_id"] !== "string") return [];
    const prices = {
      prefill: dollars(row["prefill"]),
      cachedPrefill: dollars(row["cached_prefill"]),
      sample: dollars(row["sample"]),
      train: dollars(row["train"]),
    };
    return Object.values(prices).every(Number.isFinite) ? [[row["tinker_id"], prices]] : [];
  });
  if (models.length > 0) return Object.fromEntries(models);
  throw new ValidationError(
    "prices",
    `prices: ${path} has no models with prices; it must be ${PRICE_TABLE.source}, or { "models": { "NAME": { "prefill": 1, "cachedPrefill": 0.2, "sample": 3, "train": 4 } } }`,
  );
}
