import type { CheckpointStorageUsageItem } from "tinkerts";
import type { CommandModule } from "../context.js";
import { type Column, printList } from "../output/index.js";
import { writeCsv } from "./write-csv.js";

const columns: readonly Column<CheckpointStorageUsageItem>[] = [
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

export const define: CommandModule["define"] = (command, context) => {
  command
    .option("--csv <file>", "write it as CSV to a file instead; - is standard output")
    .action(async ({ csv }: { readonly csv?: string }) => {
      const rest = await context.restClient();
      const usage = await rest.getCurrentCheckpointStorageUsage({ projectId: context.globals().project });
      if (csv !== undefined) await writeCsv(context, csv, usage.data, columns);
      else printList(context, usage.data, { columns, json: usage, empty: "no checkpoints are stored" });
    });
};
