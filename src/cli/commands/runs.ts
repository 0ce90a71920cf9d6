import { InvalidArgumentError, Option } from "commander";
import type { RestClient, TrainingRun } from "tinkerts";
import type { CommandContext, CommandModule } from "../context.js";
import { explainNotFound } from "../failure.js";
import { type Column, metadataColumn, printItem, printList } from "../output/index.js";
import {
  accessScopeFlag,
  addLimitFlag,
  addOffsetFlag,
  type ListPart,
  pageSize,
  takeItems,
} from "./take-items.js";

interface RunListOptions extends ListPart {
  readonly columns: readonly ColumnName[];
  readonly accessScope: "owned" | "accessible";
  readonly prices?: string;
}

interface NamedRun extends TrainingRun {
  /** The name in its metadata, else the name of its session. */
  readonly name: string | null;
  /** Costs of the sessions of the last two weeks, from the service, else from the price list. */
  readonly costUsd?: number | null;
}

/** Columns of a list of runs, by the names that --columns takes. */
const COLUMNS = {
  id: { header: "Run", name: "trainingRunId", importance: 9, takesOwnLine: true },
  name: { header: "Name", name: "name", importance: 6, leastWidth: 8, isOptional: true },
  model: { header: "Base model", name: "baseModel", importance: 5, leastWidth: 12 },
  owner: { header: "Owner", name: "modelOwner", leastWidth: 8 },
  lora: { header: "LoRA", name: "lora", value: loraText, importance: 2 },
  updated: { header: "Last request", name: "lastRequestTime", kind: "time", importance: 4 },
  status: {
    header: "Status",
    name: "status",
    value: (run) => (run.corrupted ? "failed" : "ok"),
    importance: 3,
  },
  checkpoint: {
    header: "Last checkpoint",
    name: "lastCheckpoint",
    value: (run) => run.lastCheckpoint?.checkpointId,
    importance: 1,
    leastWidth: 12,
  },
  cost: {
    header: "Cost",
    name: "costUsd",
    value: (run) => run.costUsd,
    kind: "dollars",
    importance: 4,
  },
  "checkpoint-time": {
    header: "Checkpoint saved",
    name: "lastCheckpointTime",
    value: (run) => run.lastCheckpoint?.time,
    kind: "time",
    importance: 1,
  },
} as const satisfies Record<string, Column<NamedRun>>;

type ColumnName = keyof typeof COLUMNS;

const COLUMN_NAMES = Object.keys(COLUMNS) as ColumnName[];
const DEFAULT_COLUMNS: readonly ColumnName[] = ["id", "name", "model", "lora", "updated", "status"];
/** Names are searched in this many of the latest sessions. */
const MAX_SEARCHED_SESSIONS = 600;

export const list: CommandModule = {
  define: (command, context) => {
    addOffsetFlag(addLimitFlag(command))
      .addOption(
        new Option("-c, --columns <names>", `what tables and CSV show: of ${COLUMN_NAMES.join(", ")}`)
          .argParser(readColumns)
          .default(DEFAULT_COLUMNS, DEFAULT_COLUMNS.join(",")),
      )
      .addOption(accessScopeFlag("your own runs, or all you may see"))
      .option("--prices <file>", "JSON file of prices for the column cost (default: the published ones)")
      .action((options: RunListOptions) => listRuns(context, options));
  },
};

async function listRuns(
  context: CommandContext,
  { limit, offset, columns, accessScope, prices }: RunListOptions,
): Promise<void> {
  const rest = await context.restClient();
  const { format, project } = context.globals();
  const pages = rest.listTrainingRuns({ limit: pageSize(limit), offset, accessScope, projectId: project });
  const runs: TrainingRun[] = await takeItems(context, pages, { limit, offset });
  const named = format === "json" || columns.includes("name") ? await withNames(context, rest, runs) : runs;
  const shown = columns.includes("cost") ? await withCosts(rest, named, prices) : named;
  printList(context, shown as NamedRun[], {
    columns: columns.map((name) => COLUMNS[name]),
    empty: "no runs",
  });
}

const INFO_COLUMNS: readonly Column<NamedRun>[] = [
  COLUMNS.id,
  COLUMNS.name,
  COLUMNS.model,
  COLUMNS.owner,
  COLUMNS.lora,
  COLUMNS.updated,
  COLUMNS.status,
  {
    header: "Last checkpoint",
    name: "lastCheckpoint",
    value: (run) => run.lastCheckpoint?.tinkerPath,
    none: "none",
  },
  { header: "  saved", name: "lastCheckpointTime", value: (run) => run.lastCheckpoint?.time, kind: "time" },
  {
    header: "Last for sampling",
    name: "lastSamplerCheckpoint",
    value: (run) => run.lastSamplerCheckpoint?.tinkerPath,
    none: "none",
  },
  {
    header: "  saved",
    name: "lastSamplerCheckpointTime",
    value: (run) => run.lastSamplerCheckpoint?.time,
    kind: "time",
  },
  metadataColumn(),
];

export const info: CommandModule = {
  define: (command, context) => {
    command
      .argument("<id>", "the run's id, as `tinkerts run list` shows it")
      .action(async (runId: string) => {
        const rest = await context.restClient();
        const found = rest.getTrainingRun(runId, { accessScope: "accessible" });
        const run = await explainNotFound(context, found, "training run", runId);
        const [named] = await withNames(context, rest, [run]);
        printItem(context, named!, INFO_COLUMNS);
      });
  },
};

async function withNames(
  context: CommandContext,
  rest: RestClient,
  runs: readonly TrainingRun[],
): Promise<NamedRun[]> {
  const nameless = new Set(runs.filter((run) => ownName(run) === null).map(sessionIdOf));
  const names = await sessionNames(context, rest, nameless);
  return runs.map((run) => ({ ...run, name: ownName(run) ?? names.get(sessionIdOf(run)) ?? null }));
}

/** Billing reaches back this far in one request. */
const BILLING_DAYS = 14;
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;

/** Adds what the session of each run has cost in the last two weeks; a session may have several runs. */
async function withCosts(
  rest: RestClient,
  runs: readonly TrainingRun[],
  priceFile: string | undefined,
): Promise<readonly TrainingRun[]> {
  const { priceList } = await import("../../cookbook/costs/index.js");
  const { listedUsd } = await import("./billing.js");
  const end = (Math.floor(Date.now() / HOUR_MS) + 1) * HOUR_MS;
  const window = { startingOn: new Date(end - BILLING_DAYS * DAY_MS), endingBefore: new Date(end) };
  const [{ data }, prices] = await Promise.all([rest.getBillingUsage(window), priceList(rest, priceFile)]);
  const costs = new Map<string, number>();
  for (const event of data) {
    const usd = event.estimatedCostUsd ?? listedUsd(event, prices);
    if (event.sessionId && usd !== undefined)
      costs.set(event.sessionId, (costs.get(event.sessionId) ?? 0) + usd);
  }
  return runs.map((run) => ({ ...run, costUsd: costs.get(sessionIdOf(run)) ?? null }));
}

const ownName = ({ userMetadata }: TrainingRun): string | null => userMetadata?.["name"] || null;

/** A run's id begins with its session's id. */
const sessionIdOf = ({ trainingRunId }: TrainingRun): string => trainingRunId.split(":", 1)[0]!;

/** The display names of sessions that have one; empty if the server cannot search for sessions. */
async function sessionNames(
  context: CommandContext,
  rest: RestClient,
  sessionIds: ReadonlySet<string>,
): Promise<Map<string, string>> {
  const names = new Map<string, string>();
  if (sessionIds.size === 0) return names;
  const missing = new Set(sessionIds);
  const [only] = sessionIds.size === 1 ? sessionIds : [];
  let searched = 0;
  try {
    const owner = { type: "accessible" } as const;
    for await (const session of rest.searchSessions({ owner, sessionId: only, limit: 200 })) {
      if (session.displayName) names.set(session.sessionId, session.displayName);
      searched += 1;
      missing.delete(session.sessionId);
      if (missing.size === 0 || searched === MAX_SEARCHED_SESSIONS) break;
    }
  } catch {
    context.interruption().throwIfAborted();
  }
  return names;
}

function readColumns(text: string): ColumnName[] {
  const names = text.split(",").map((name) => name.trim());
  const wrong = names.filter((name) => !Object.hasOwn(COLUMNS, name));
  if (wrong.length > 0) {
    throw new InvalidArgumentError(
      `There is no column ${wrong.join(", ")}; there are ${COLUMN_NAMES.join(", ")}.`,
    );
  }
  return names as ColumnName[];
}

function loraText({ isLora, loraRank }: TrainingRun): string {
  if (!isLora) return "no";
  return loraRank ? `rank ${loraRank}` : "yes";
}
