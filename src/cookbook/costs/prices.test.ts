import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { knownModels } from "../../renderers/models.js";
import { HOSTED_BASE_URL } from "../../transport/index.js";
import { describeBudget } from "./budget.js";
import { describeEstimate, dollarText, estimateOf, exactly, shortCount } from "./estimate.js";
import { PRICE_TABLE, type PriceTable } from "./price-table.js";
import { priceList, publishedPrices } from "./prices.js";

const HOSTED = { baseURL: HOSTED_BASE_URL };
const OTHER = { baseURL: "http://127.0.0.1:8000" };
const TODAY = Date.parse(PRICE_TABLE.asOf);
const DAY_MS = 86_400_000;

const folder = await mkdtemp(join(tmpdir(), "tinkerts-prices-"));
afterAll(() => rm(folder, { recursive: true }));
const file = async (name: string, content: unknown) => {
  const path = join(folder, name);
  await writeFile(path, typeof content === "string" ? content : JSON.stringify(content));
  return path;
};

describe("the table of prices", () => {
  it("has a source and a day that was, and positive prices that fall in the usual order", () => {
    expect(new URL(PRICE_TABLE.source).protocol).toBe("https:");
    expect(PRICE_TABLE.asOf).toMatch(/^\d{4}-\d{2}-\d{2}$/);
    expect(TODAY).toBeLessThan(Date.now());
    expect(TODAY).toBeGreaterThan(Date.parse("2026-01-01"));
    for (const [model, { withoutDiscount, discountEnds, ...prices }] of Object.entries(PRICE_TABLE.models)) {
      if (model.startsWith("tinkerts/")) continue;
      for (const price of Object.values(prices)) expect(price, model).toBeGreaterThan(0);
      expect(prices.cachedPrefill, model).toBeLessThan(prices.prefill);
      expect(prices.sample, model).toBeGreaterThan(prices.prefill);
      if (withoutDiscount !== undefined)
        for (const kind of ["prefill", "cachedPrefill", "sample", "train"] as const)
          expect(withoutDiscount[kind], model).toBeGreaterThan(prices[kind]);
      if (discountEnds !== undefined) expect(Date.parse(discountEnds), model).toBeGreaterThan(TODAY);
    }
  });

  it("has a row for every model of the model table, or says why there is none", () => {
    const missing = knownModels().filter(
      (model) => !(model in PRICE_TABLE.models) && !(model in PRICE_TABLE.unknown),
    );
    expect(missing).toEqual([]);
    const both = Object.keys(PRICE_TABLE.models).filter((model) => model in PRICE_TABLE.unknown);
    expect(both).toEqual([]);
    for (const reason of Object.values(PRICE_TABLE.unknown)) expect(reason.length).toBeGreaterThan(10);
  });

  it("ends a discount on its day", () => {
    const full = { prefill: 2, cachedPrefill: 1, sample: 6, train: 4 };
    const half = { prefill: 1, cachedPrefill: 0.5, sample: 3, train: 2 };
    const table: PriceTable = {
      ...PRICE_TABLE,
      models: { m: { ...half, withoutDiscount: full, discountEnds: "2026-12-01" } },
    };
    expect(publishedPrices("m", Date.parse("2026-11-30T23:59:59Z"), table)).toEqual(half);
    expect(publishedPrices("m", Date.parse("2026-12-01"), table)).toEqual(full);
    expect(publishedPrices("other", 0, table)).toBeUndefined();
    expect(publishedPrices("toString", 0, table)).toBeUndefined();
  });
});

describe("the prices of a service", () => {
  it("are the published ones of the hosted service, by model and context", async () => {
    const list = await priceList(HOSTED, undefined, TODAY);
    const tokens = { prefill: 1e6, cachedPrefill: 2e6, sample: 3e6, train: 4e6 };
    const { prefill, cachedPrefill, sample, train } = PRICE_TABLE.models["Qwen/Qwen3-8B"]!;
    const usd = prefill + 2 * cachedPrefill + 3 * sample + 4 * train;
    expect(list.dollars(new Map([["Qwen/Qwen3-8B", tokens]]))).toBeCloseTo(usd, 10);
    expect(list.of("Qwen/Qwen3.8-27B:peft:262144")!.train).toBeGreaterThan(
      list.of("Qwen/Qwen3.8-27B")!.train,
    );
    // A context without a row does not get the price of another one.
    expect(list.of("Qwen/Qwen3-8B:peft:262144")).toBeUndefined();
    expect(list.whyUnknown(["meta-llama/Llama-3.1-8B"])).toMatch(/no longer offered/);
    expect(list.whyUnknown(["other/model"])).toMatch(/price of other\/model is unknown.*--prices/);
    expect(list.whyUnknown(["Qwen/Qwen3-8B"])).toBeUndefined();
  });

  it("are unknown for another server, and nothing for the built-in backend", async () => {
    const other = await priceList(OTHER, undefined);
    expect(other.of("Qwen/Qwen3-8B")).toBeUndefined();
    expect(other.whyUnknown(["Qwen/Qwen3-8B"])).toContain("the prices of http://127.0.0.1:8000 are unknown");
    const builtIn = await priceList({ ...OTHER, runData: {} }, undefined);
    expect(builtIn.dollars(new Map([["m", { prefill: 1, cachedPrefill: 1, sample: 1, train: 1 }]]))).toBe(0);
  });

  it("are your own where you give some, also from a file and from a copy of the service's list", async () => {
    const own = { prefill: 1, cachedPrefill: 0.5, sample: 2, train: 3 };
    const models = { "Qwen/Qwen3-8B": own };
    for (const given of [{ models }, await file("own.json", { asOf: "2026-11-01", models })]) {
      const list = await priceList(HOSTED, given, TODAY);
      expect(list.of("Qwen/Qwen3-8B")).toEqual(own);
      expect(list.of("openai/gpt-oss-20b")).toEqual(PRICE_TABLE.models["openai/gpt-oss-20b"]);
    }
    const row = {
      tinker_id: "org/new",
      prefill: "$1.87",
      cached_prefill: "$0.374",
      sample: "$4.68",
      train: "$1,005.61",
    };
    const copy = await file("models.json", [row, { tinker_id: "org/incomplete", prefill: "$1" }]);
    const list = await priceList(OTHER, copy);
    expect(list.of("org/new")).toEqual({ prefill: 1.87, cachedPrefill: 0.374, sample: 4.68, train: 1005.61 });
    expect(list.of("org/incomplete")).toBeUndefined();
  });

  it("warn when they are old", async () => {
    const list = await priceList(HOSTED, undefined, TODAY);
    expect(list.warning(TODAY + 90 * DAY_MS)).toBeUndefined();
    expect(list.warning(TODAY + 91 * DAY_MS)).toMatch(/91 days ago: compare them with https:.*--prices FILE/);
    const own = await priceList(OTHER, { asOf: "2026-01-01", models: {} });
    expect(own.warning(Date.parse("2026-11-01"))).toContain("2026-01-01, 304 days ago");
    expect((await priceList(OTHER, undefined)).warning(TODAY + 1000 * DAY_MS)).toBeUndefined();
  });

  it.each([
    [
      "a file that is not there",
      () => join(folder, "missing.json"),
      /prices: .*missing\.json cannot be read/,
    ],
    ["no JSON", () => file("text.json", "hello"), /text\.json is not JSON/],
    ["an empty list", () => file("list.json", []), /has no models with prices; it must be https/],
    ["no models", () => file("empty.json", { asOf: "2026-11-01" }), /models must/],
    [
      "a price that is none",
      () => file("bad.json", { models: { m: { prefill: "1" } } }),
      /models\[m\]\.prefill must be/,
    ],
    ["a day that is none", () => file("day.json", { asOf: "yesterday", models: {} }), /asOf must be a day/],
  ])("refuse %s with a sentence", async (_, given, message) => {
    await expect(priceList(OTHER, await given())).rejects.toThrow(message);
  });
});

describe("an estimate", () => {
  it("is described in tokens and dollars, with what it supposes", async () => {
    const list = await priceList(HOSTED, undefined, TODAY);
    const tokens = (train: number) =>
      new Map([["Qwen/Qwen3-8B", { prefill: 0, cachedPrefill: 0, sample: 0, train }]]);
    const one = estimateOf(exactly(tokens(2e6)), list);
    expect(one).toMatchObject({ isExact: true, usd: { least: 0.88, most: 0.88 } });
    expect(describeEstimate(one, list).slice(0, 2)).toEqual([
      ["in all", "2M trained tokens"],
      ["cost", "about $0.88"],
    ]);
    const range = estimateOf({ least: tokens(2e6), most: tokens(4e6), assumptions: ["this"] }, list);
    expect(describeEstimate(range, list).slice(0, 3)).toEqual([
      ["in all", "2M to 4M trained tokens"],
      ["cost", "from $0.88 to $1.76"],
      ["supposed", "this"],
    ]);
    const unknown = estimateOf(
      exactly(new Map([["m", { prefill: 0, cachedPrefill: 0, sample: 0, train: 5 }]])),
      list,
    );
    expect(unknown.usd).toBeUndefined();
    expect(describeEstimate(unknown, list)[1]![1]).toMatch(/^unknown: the price of m is unknown/);
  });

  it("says whether a budget is enough", async () => {
    const list = await priceList(HOSTED, undefined, TODAY);
    const tokens = (train: number, model = "Qwen/Qwen3-8B") =>
      new Map([[model, { prefill: 0, cachedPrefill: 0, sample: 0, train }]]);
    const range = estimateOf({ least: tokens(2e6), most: tokens(4e6), assumptions: [] }, list);
    expect(describeBudget(undefined, range)).toEqual([]);
    expect(describeBudget({ usd: 5, tokens: 1e6 }, range)).toEqual([
      ["budget", "$5.00, which is enough"],
      ["budget", "1M tokens: the run will stop early, with a checkpoint"],
    ]);
    expect(describeBudget({ usd: 1 }, range)).toEqual([
      ["budget", "$1.00: the run may stop early, with a checkpoint"],
    ]);
    const unknown = estimateOf(exactly(tokens(5, "m")), list);
    expect(describeBudget({ usd: 1 }, unknown)).toEqual([["budget", "$1.00"]]);
  });

  it("is written for people", () => {
    expect([950, 12_345, 1_234_567, 9999.6].map(shortCount)).toEqual(["950", "12.3k", "1.23M", "10k"]);
    expect([0, 0.00123, 0.5, 12.345].map(dollarText)).toEqual(["$0.00", "$0.0012", "$0.50", "$12.35"]);
  });
});
