import { InvalidArgumentError, Option } from "commander";
import type { TrainingRun } from "tinkerts";
import type { CommandModule } from "../context.js";
import { printList } from "../output/index.js";
import { DEFAULT_COLUMNS, RUN_COLUMNS, type RunColumn } from "./run-columns.js";
import { DEFAULT_LIMIT, limitValue, offsetValue, pageSize, takeItems } from "./take-items.js";

interface RunListOptions {
  readonly limit: number;
  readonly offset: number;
  readonly columns: readonly RunColumn[];
  readonly accessScope: "owned" | "accessible";
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .option("--limit <number>", "how many at most; 0 for all", limitValue, DEFAULT_LIMIT)
    .option("--offset <number>", "how many of the latest to leave out", offsetValue, 0)
    .addOption(
      new Option(
        "-c, --columns <names>",
        `what tables and CSV show: of ${Object.keys(RUN_COLUMNS).join(",")}`,
      )
        .argParser(readColumns)
        .default(DEFAULT_COLUMNS, DEFAULT_COLUMNS.join(",")),
    )
    .addOption(
      new Option("--access-scope <scope>", "your own runs, or all you may see")
        .choices(["owned", "accessible"])
        .default("owned"),
    )
    .action(async ({ limit, offset, columns, accessScope }: RunListOptions) => {
      const rest = await context.restClient();
      const list = rest.listTrainingRuns({
        limit: pageSize(limit),
        offset,
        accessScope,
        projectId: context.globals().project,
      });
      const runs: TrainingRun[] = await takeItems(context, list, { limit, offset });
      printList(context, runs, { columns: columns.map((name) => RUN_COLUMNS[name]), empty: "no runs" });
    });
};

function readColumns(text: string): RunColumn[] {
  const names = text.split(",").map((name) => name.trim());
  const wrong = names.filter((name) => !Object.hasOwn(RUN_COLUMNS, name));
  if (wrong.length > 0) {
    const known = Object.keys(RUN_COLUMNS).join(", ");
    throw new InvalidArgumentError(`There is no column ${wrong.join(", ")}; there are ${known}.`);
  }
  return names as RunColumn[];
}
