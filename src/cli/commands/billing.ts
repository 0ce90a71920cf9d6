import {
  type BillingUsageEvent,
  type BillingUsageSession,
  type CheckpointStorageUsageItem,
  ValidationError,
} from "tinkerts";
import {
  addTokens,
  dollarText,
  NO_TOKENS,
  PRICE_TABLE,
  type PriceList,
  priceList,
  type TokenCounts,
} from "../../cookbook/costs/index.js";
import { endpoints } from "../../wire/index.js";
import { type CommandModule, UsageError } from "../context.js";
import { type Column, plainColumns, printList, writeCsv } from "../output/index.js";

/** An hour of one kind of usage, with what the price list makes of it. */
interface PricedEvent extends BillingUsageEvent {
  readonly priceListUsd: number | undefined;
}

interface UsageOptions {
  readonly prices?: string;
  readonly csv?: string;
  readonly sessionsCsv?: string;
}

const COLUMNS: readonly Column<PricedEvent>[] = [
  {
    header: "Hour (UTC)",
    name: "bucketStart",
    value: ({ bucketStart }) => bucketStart.slice(0, 16).replace("T", " "),
    importance: 8,
  },
  { header: "Usage", name: "type", value: usageText, importance: 9 },
  { header: "Amount", name: "amount", value: amountText, importance: 9 },
  { header: "Cost", name: "estimatedCostUsd", kind: "dollars", importance: 7, isOptional: true },
  { header: "By price list", name: "priceListUsd", kind: "dollars", importance: 6, isOptional: true },
  { header: "Base model", name: "baseModel", importance: 6, leastWidth: 10 },
  { header: "Session", name: "sessionId", importance: 5, leastWidth: 8, isOptional: true },
  { header: "User", name: "userName", importance: 4, leastWidth: 8, isOptional: true },
  { header: "Project", name: "projectId", importance: 3, leastWidth: 8, isOptional: true },
];

/** Every usage record, flat. */
const CSV_COLUMNS: readonly Column<PricedEvent>[] = [
  ...plainColumns<PricedEvent>("bucketStart", "bucketEnd"),
  { name: "type", value: ({ eventInfo }) => eventInfo.type },
  ...(["tokenCount", "cached", "count", "gigabyteHours"] as const).map((name) => ({
    name,
    value: ({ eventInfo }: PricedEvent) =>
      (eventInfo as Partial<Record<typeof name, number | boolean>>)[name],
  })),
  ...plainColumns<PricedEvent>("baseModel", "userId", "userName", "sessionId", "projectId"),
  ...plainColumns<PricedEvent>("estimatedCostUsd", "effectiveRateUsdPerMillionTokens"),
  ...plainColumns<PricedEvent>("effectiveRateUsdPerGigabyteMonth", "priceListUsd"),
];

const SESSION_COLUMNS: readonly Column<[string, BillingUsageSession]>[] = [
  { name: "sessionId", value: ([id]) => id },
  {
    name: "userMetadata",
    value: ([, { userMetadata }]) => (userMetadata ? JSON.stringify(userMetadata) : ""),
  },
];

export const usage: CommandModule = {
  define: (command, context) => {
    command
      .argument("<start>", "the first hour (UTC), as in 2026-01-31 or 2026-01-31T08:00:00Z")
      .argument("<end>", "the hour to stop before, at most 14 days later")
      .option("--csv <file>", "write the usage as CSV to a file instead; - is standard output")
      .option("--sessions-csv <file>", "write the sessions' metadata as CSV to a file; - is standard output")
      .option("--prices <file>", "JSON file of prices, to set beside the costs (default: the published ones)")
      .action(async (start: string, end: string, { csv, sessionsCsv, prices }: UsageOptions) => {
        const window = readWindow(start, end);
        const rest = await context.restClient();
        const usage = await rest.getBillingUsage(window);
        const list = await priceList(rest, prices);
        const data = usage.data.map((event) => ({ ...event, priceListUsd: listedUsd(event, list) }));
        if (sessionsCsv !== undefined) {
          await writeCsv(context, sessionsCsv, Object.entries(usage.sessions ?? {}), SESSION_COLUMNS);
        }
        if (csv !== undefined) await writeCsv(context, csv, data, CSV_COLUMNS);
        if ((csv ?? sessionsCsv) !== undefined) return;
        printList(context, data, {
          columns: COLUMNS,
          csvColumns: CSV_COLUMNS,
          json: { ...usage, data },
          empty: "no usage in this time",
        });
        for (const line of totals(data, list)) context.notify(line);
      });
  },
};

const HOURS_PER_MONTH = 720;

/** Price of an hour of usage by the price list; undefined if it is unknown. */
export function listedUsd({ baseModel, eventInfo }: BillingUsageEvent, list: PriceList): number | undefined {
  switch (eventInfo.type) {
    case "training":
      return tokensUsd(baseModel, { train: eventInfo.tokenCount ?? 0 }, list);
    case "sampling_prefill": {
      const kind = eventInfo.cached ? "cachedPrefill" : "prefill";
      return tokensUsd(baseModel, { [kind]: eventInfo.tokenCount ?? 0 }, list);
    }
    case "sampling_sample":
      return tokensUsd(baseModel, { sample: eventInfo.tokenCount ?? 0 }, list);
    case "storage":
      if (eventInfo.free) return 0;
      return (eventInfo.gigabyteHours / HOURS_PER_MONTH) * PRICE_TABLE.storageUsdPerGigabyteMonth;
    case "checkpoint":
      return undefined;
    default:
      return eventInfo satisfies never;
  }
}

function tokensUsd(
  model: string | null | undefined,
  counts: Partial<TokenCounts>,
  list: PriceList,
): number | undefined {
  return list.dollars(new Map([[model ?? "", addTokens(NO_TOKENS, counts)]]));
}

/** The sums of both, where there are dollars, and what to know of the price list. */
function totals(data: readonly PricedEvent[], list: PriceList): readonly string[] {
  const sum = (values: readonly (number | null | undefined)[]) =>
    values.reduce<number>((total, value) => total + (value ?? 0), 0);
  const [billed, listed] = [sum(data.map((e) => e.estimatedCostUsd)), sum(data.map((e) => e.priceListUsd))];
  const unknown = [...new Set(data.flatMap((e) => (e.priceListUsd === undefined && e.baseModel) || []))];
  const warning = list.warning();
  return [
    ...(billed + listed > 0
      ? [`In all ${dollarText(billed)} by the service, ${dollarText(listed)} by the price list.`]
      : []),
    ...(unknown.length > 0 && billed + listed > 0
      ? [`Without a price in the list: ${unknown.join(", ")}.`]
      : []),
    ...(warning === undefined ? [] : [`Note: ${warning}.`]),
  ];
}

function readWindow(start: string, end: string) {
  try {
    return endpoints.getBillingUsage.request.check({ startingOn: start, endingBefore: end }, "");
  } catch (error) {
    if (!(error instanceof ValidationError)) throw error;
    const message = error.message.replaceAll("startingOn", "start").replaceAll("endingBefore", "end");
    throw new UsageError(message);
  }
}

function usageText({ eventInfo }: BillingUsageEvent): string {
  switch (eventInfo.type) {
    case "training":
      return "training";
    case "sampling_prefill":
      return eventInfo.cached ? "prompts (cached)" : "prompts";
    case "sampling_sample":
      return "samples";
    case "checkpoint":
      return "checkpoints";
    case "storage":
      return "storage";
    default:
      return String((eventInfo satisfies never as { type: string }).type);
  }
}

function amountText({ eventInfo }: BillingUsageEvent): string {
  if (eventInfo.type === "storage")
    return `${eventInfo.gigabyteHours.toPrecision(3)} GB hours${eventInfo.free ? ", free" : ""}`;
  if (eventInfo.type === "checkpoint") return `${eventInfo.count.toLocaleString("en-US")} saved`;
  return `${eventInfo.tokenCount?.toLocaleString("en-US") ?? "?"} tokens`;
}

const STORAGE_COLUMNS: readonly Column<CheckpointStorageUsageItem>[] = [
  { header: "Project", name: "projectId", importance: 3, leastWidth: 8 },
  {
    header: "Owner",
    name: "orgUserUrn",
    value: (item) => item.userEmail ?? item.userName ?? item.orgUserUrn,
    importance: 4,
    leastWidth: 8,
  },
  { header: "Checkpoints", name: "checkpointCount", kind: "number", importance: 5 },
  { header: "Size", name: "sizeBytes", kind: "bytes", importance: 6 },
  {
    header: "Cost per month",
    name: "estimatedMonthlyCostUsd",
    kind: "dollars",
    importance: 5,
    isOptional: true,
  },
];

export const checkpointStorage: CommandModule = {
  define: (command, context) => {
    command
      .option("--csv <file>", "write it as CSV to a file instead; - is standard output")
      .action(async ({ csv }: { readonly csv?: string }) => {
        const rest = await context.restClient();
        const usage = await rest.getCurrentCheckpointStorageUsage({ projectId: context.globals().project });
        if (csv !== undefined) await writeCsv(context, csv, usage.data, STORAGE_COLUMNS);
        else
          printList(context, usage.data, {
            columns: STORAGE_COLUMNS,
            json: usage,
            empty: "no checkpoints are stored",
          });
      });
  },
};
