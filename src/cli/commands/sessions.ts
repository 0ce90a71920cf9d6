import { Option } from "commander";
import { NotFoundError, type SessionInfo, type SessionStatus, type SessionSummary } from "tinkerts";
import { CREATED_BY } from "../clients.js";
import type { CommandContext, CommandModule } from "../context.js";
import { explainNotFound } from "../failure.js";
import { type Column, metadataColumn, printItem, printList } from "../output/index.js";
import { DEFAULT_LIMIT, limitValue, pageSize, takeItems } from "./take-items.js";

interface SessionListOptions {
  readonly limit: number;
  readonly accessScope: "owned" | "accessible";
  readonly name?: string;
  readonly all?: true;
}

/** A server without the search knows the ids alone. */
type Listed = Pick<SessionSummary, "sessionId"> & Partial<SessionSummary>;

const COLUMNS: readonly Column<Listed>[] = [
  {
    header: "Session",
    name: "sessionId",
    value: ({ sessionId }) => sessionId,
    importance: 9,
    takesOwnLine: true,
  },
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

export const list: CommandModule = {
  define: (command, context) => {
    command
      .option("--limit <number>", "how many at most; 0 for all", limitValue, DEFAULT_LIMIT)
      .option("--name <text>", "only sessions whose name contains these words, in any case")
      .option("--all", "also the sessions of single commands, such as sample, chat and doctor")
      .addOption(
        new Option("--access-scope <scope>", "your own sessions, or all you may see")
          .choices(["owned", "accessible"])
          .default("owned"),
      )
      .action((options: SessionListOptions) => listSessions(context, options));
  },
};

async function listSessions(
  context: CommandContext,
  { limit, accessScope, name, all }: SessionListOptions,
): Promise<void> {
  const rest = await context.restClient();
  const { project } = context.globals();
  const search = rest.searchSessions({
    limit: pageSize(limit),
    owner: { type: accessScope === "owned" ? "own" : "accessible" },
    displayName: name,
    projectIds: project === undefined ? undefined : [project],
  });
  let hidden = 0;
  const accepts = (session: Listed) => {
    const isHidden = !all && name === undefined && isOfSingleCommand(session);
    if (isHidden) hidden += 1;
    return !isHidden;
  };
  const sessions = await takeItems<Listed>(context, search, { limit, accepts }).catch(
    async (error: unknown) => {
      const isPlain = name === undefined && project === undefined;
      if (!(error instanceof NotFoundError) || !isPlain) throw error;
      const ids = rest.listSessions({ limit: pageSize(limit), accessScope });
      return (await takeItems(context, ids, { limit })).map((sessionId) => ({ sessionId }));
    },
  );
  printList(context, sessions, { columns: COLUMNS, empty: "no sessions" });
  if (hidden > 0) {
    const left =
      hidden === 1 ? "1 session of a single command is" : `${hidden} sessions of single commands are`;
    context.notify(`${left} not shown; --all shows all`);
  }
}

/** Opened by a command such as `tinkerts sample`, over when it ended, and nothing is left of it. */
function isOfSingleCommand({ userMetadata, checkpointsCount }: Listed): boolean {
  return userMetadata?.[CREATED_BY]?.startsWith("tinkerts ") === true && !checkpointsCount;
}

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

type SessionDetails = SessionInfo & { readonly sessionId: string };

const INFO_COLUMNS: readonly Column<SessionDetails>[] = [
  { header: "Session", name: "sessionId", value: ({ sessionId }) => sessionId },
  { header: "Name", name: "displayName", value: ({ displayName }) => displayName },
  { header: "Runs", name: "trainingRunIds", value: ({ trainingRunIds }) => trainingRunIds, none: "none" },
  { header: "Samplers", name: "samplerIds", value: ({ samplerIds }) => samplerIds, none: "none" },
  metadataColumn(),
];

export const info: CommandModule = {
  define: (command, context) => {
    command.argument("<id>", "the session's id").action(async (sessionId: string) => {
      const rest = await context.restClient();
      const session = await explainNotFound(
        context,
        rest.getSession(sessionId, { accessScope: "accessible" }),
        `session ${sessionId}`,
        "`tinkerts session list` shows those it has",
      );
      printItem(context, { sessionId, ...session }, INFO_COLUMNS);
    });
  },
};
