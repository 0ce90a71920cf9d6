import { Option } from "commander";
import { NotFoundError, type PagePromise, type SessionStatus, type SessionSummary } from "tinkerts";
import type { CommandModule } from "../context.js";
import { type Column, printList } from "../output/index.js";
import { DEFAULT_LIMIT, limitValue, pageSize, takeItems } from "./take-items.js";

interface SessionListOptions {
  readonly limit: number;
  readonly accessScope: "owned" | "accessible";
  readonly name?: string;
}

/** A server without the search knows the ids alone. */
type Listed = Pick<SessionSummary, "sessionId"> & Partial<SessionSummary>;

const columns: readonly Column<Listed>[] = [
  { header: "Session", name: "sessionId", value: ({ sessionId }) => sessionId, importance: 9 },
  {
    header: "Name",
    name: "displayName",
    value: ({ displayName }) => displayName,
    importance: 5,
    leastWidth: 8,
    isOptional: true,
  },
  {
    header: "Created",
    name: "createdAt",
    value: ({ createdAt }) => createdAt,
    kind: "time",
    importance: 6,
    isOptional: true,
  },
  {
    header: "Status",
    name: "status",
    value: ({ status }) => statusText(status),
    importance: 7,
    isOptional: true,
  },
  {
    header: "Checkpoints",
    name: "checkpointsCount",
    value: ({ checkpointsCount }) => checkpointsCount,
    kind: "number",
    importance: 3,
    isOptional: true,
  },
  {
    header: "Stored",
    name: "checkpointStorageBytes",
    value: ({ checkpointStorageBytes }) => checkpointStorageBytes,
    kind: "bytes",
    importance: 4,
    isOptional: true,
  },
  {
    header: "Project",
    name: "projectId",
    value: ({ projectId }) => projectId,
    importance: 2,
    leastWidth: 8,
    isOptional: true,
  },
  {
    header: "Owner",
    name: "owner",
    value: ({ owner }) => owner,
    importance: 1,
    leastWidth: 8,
    isOptional: true,
  },
];

export const define: CommandModule["define"] = (command, context) => {
  command
    .option("--limit <number>", "how many at most; 0 for all", limitValue, DEFAULT_LIMIT)
    .option("--name <text>", "only sessions whose name contains these words, in any case")
    .addOption(
      new Option("--access-scope <scope>", "your own sessions, or all you may see")
        .choices(["owned", "accessible"])
        .default("owned"),
    )
    .action(async ({ limit, accessScope, name }: SessionListOptions) => {
      const rest = await context.restClient();
      const { project } = context.globals();
      const found: PagePromise<SessionSummary> = rest.searchSessions({
        limit: pageSize(limit),
        owner: { type: accessScope === "owned" ? "own" : "accessible" },
        displayName: name,
        projectIds: project === undefined ? undefined : [project],
      });
      const sessions = await takeItems<Listed>(context, found, { limit }).catch(async (error: unknown) => {
        const isPlain = name === undefined && project === undefined;
        if (!(error instanceof NotFoundError) || !isPlain) throw error;
        const ids = rest.listSessions({ limit: pageSize(limit), accessScope });
        return (await takeItems(context, ids, { limit })).map((sessionId) => ({ sessionId }));
      });
      printList(context, sessions, { columns, empty: "no sessions" });
    });
};

function statusText(status: SessionStatus | null | undefined): string | undefined {
  switch (status?.type) {
    case undefined:
      return undefined;
    case "active":
    case "cancelled":
      return status.type;
    case "failed":
      return `failed (${status.category})`;
    case "client_finished":
      return status.reason.type;
    default:
      return status satisfies never;
  }
}
