import {
  type BillingUsageEvent,
  type BillingUsageSession,
  type CheckpointStorageUsageItem,
  ValidationError,
} from "tinkerts";
import { endpoints } from "../../wire/index.js";
import { type CommandModule, UsageError } from "../context.js";
import { type Cell, type Column, printList, writeCsv } from "../output/index.js";

interface UsageOptions {
  readonly csv?: string;
  readonly sessionsCsv?: string;
}

const field =
  (name: "tokenCount" | "count" | "gigabyteHours" | "cached") =>
  ({ eventInfo }: BillingUsageEvent): Cell =>
    (eventInfo as Partial<Record<typeof name, number | boolean>>)[name];

const COLUMNS: readonly Column<BillingUsageEvent>[] = [
  {
    header: "Hour (UTC)",
    name: "bucketStart",
    value: ({ bucketStart }) => bucketStart.slice(0, 16).replace("T", " "),
    importance: 8,
  },
  { header: "Usage", name: "type", value: usageText, importance: 9 },
  { header: "Amount", name: "amount", value: amountText, importance: 9 },
  {
    header: "Cost",
    name: "estimatedCostUsd",
    value: ({ estimatedCostUsd }) => estimatedCostUsd,
    kind: "dollars",
    importance: 7,
    isOptional: true,
  },
  {
    header: "Base model",
    name: "baseModel",
    value: ({ baseModel }) => baseModel,
    importance: 6,
    leastWidth: 10,
  },
  {
    header: "Session",
    name: "sessionId",
    value: ({ sessionId }) => sessionId,
    importance: 5,
    leastWidth: 8,
    isOptional: true,
  },
  {
    header: "User",
    name: "userName",
    value: ({ userName }) => userName,
    importance: 4,
    leastWidth: 8,
    isOptional: true,
  },
  {
    header: "Project",
    name: "projectId",
    value: ({ projectId }) => projectId,
    importance: 3,
    leastWidth: 8,
    isOptional: true,
  },
];

const plain = (name: keyof BillingUsageEvent) => ({
  header: name,
  name,
  value: (event: BillingUsageEvent) => event[name] as Cell,
});

/** Everything there is, flat. */
const CSV_COLUMNS: readonly Column<BillingUsageEvent>[] = [
  plain("bucketStart"),
  plain("bucketEnd"),
  { header: "type", name: "type", value: ({ eventInfo }) => eventInfo.type },
  ...(["tokenCount", "cached", "count", "gigabyteHours"] as const).map((name) => ({
    header: name,
    name,
    value: field(name),
  })),
  plain("baseModel"),
  plain("userId"),
  plain("userName"),
  plain("sessionId"),
  plain("projectId"),
  plain("estimatedCostUsd"),
  plain("effectiveRateUsdPerMillionTokens"),
  plain("effectiveRateUsdPerGigabyteMonth"),
];

const SESSION_COLUMNS: readonly Column<[string, BillingUsageSession]>[] = [
  { header: "sessionId", name: "sessionId", value: ([id]) => id },
  {
    header: "userMetadata",
    name: "userMetadata",
    value: ([, { userMetadata }]) => (userMetadata ? JSON.stringify(userMetadata) : ""),
  },
];

export const usage: CommandModule = {
  define: (command, context) => {
    command
      .argument("<start>", "the first hour (UTC), as in 2026-01-31 or 2026-01-31T08:00:00Z")
      .argument("<end>", "the hour before which to stop, 14 days later at most")
      .option("--csv <file>", "write the usage as CSV to a file instead; - is standard output")
      .option("--sessions-csv <file>", "write the sessions' metadata as CSV to a file; - is standard output")
      .action(async (start: string, end: string, { csv, sessionsCsv }: UsageOptions) => {
        const window = readWindow(start, end);
        const rest = await context.restClient();
        const usage = await rest.getBillingUsage(window);
        if (sessionsCsv !== undefined) {
          await writeCsv(context, sessionsCsv, Object.entries(usage.sessions ?? {}), SESSION_COLUMNS);
        }
        if (csv !== undefined) await writeCsv(context, csv, usage.data, CSV_COLUMNS);
        if ((csv ?? sessionsCsv) !== undefined) return;
        printList(context, usage.data, {
          columns: COLUMNS,
          csvColumns: CSV_COLUMNS,
          json: usage,
          empty: "no usage in this time",
        });
      });
  },
};

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
  if (eventInfo.type === "storage") return `${eventInfo.gigabyteHours.toPrecision(3)} GB hours`;
  if (eventInfo.type === "checkpoint") return `${eventInfo.count.toLocaleString("en-US")} saved`;
  return `${eventInfo.tokenCount?.toLocaleString("en-US") ?? "?"} tokens`;
}

const STORAGE_COLUMNS: readonly Column<CheckpointStorageUsageItem>[] = [
  { header: "Project", name: "projectId", value: (item) => item.projectId, importance: 3, leastWidth: 8 },
  {
    header: "Owner",
    name: "orgUserUrn",
    value: (item) => item.userEmail ?? item.userName ?? item.orgUserUrn,
    importance: 4,
    leastWidth: 8,
  },
  {
    header: "Checkpoints",
    name: "checkpointCount",
    value: (item) => item.checkpointCount,
    kind: "number",
    importance: 5,
  },
  { header: "Size", name: "sizeBytes", value: (item) => item.sizeBytes, kind: "bytes", importance: 6 },
  {
    header: "Cost per month",
    name: "estimatedMonthlyCostUsd",
    value: (item) => item.estimatedMonthlyCostUsd,
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
