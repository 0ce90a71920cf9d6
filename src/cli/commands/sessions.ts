import { NotFoundError, type SessionInfo, type SessionStatus, type SessionSummary } from "tinkerts";
import { CREATED_BY } from "../clients.js";
import type { CommandContext, CommandModule } from "../context.js";
import { explainNotFound } from "../failure.js";
import { type Column, metadataColumn, printItem, printList } from "../output/index.js";
import { accessScopeFlag, addLimitFlag, type ListPart, pageSize, takeItems } from "./take-items.js";

interface SessionListOptions extends ListPart {
  readonly accessScope: "owned" | "accessible";
  readonly name?: string;
  readonly all?: true;
}

/** A server that cannot search for sessions lists only ids. */
type Listed = Pick<SessionSummary, "sessionId"> & Partial<SessionSummary>;

const COLUMNS: readonly Column<Listed>[] = [
  { header: "Session", name: "sessionId", importance: 9, takesOwnLine: true },
  { header: "Name", name: "displayName", importance: 5, leastWidth: 8, isOptional: true },
  { header: "Created", name: "createdAt", kind: "time", importance: 6, isOptional: true },
  {
    header: "Status",
    name: "status",
    value: ({ status }) => statusText(status),
    importance: 7,
    isOptional: true,
  },
  { header: "Checkpoints", name: "checkpointsCount", kind: "number", importance: 3, isOptional: true },
  { header: "Stored", name: "checkpointStorageBytes", kind: "bytes", importance: 4, isOptional: true },
  { header: "Project", name: "projectId", importance: 2, leastWidth: 8, isOptional: true },
  { header: "Owner", name: "owner", importance: 1, leastWidth: 8, isOptional: true },
];

export const list: CommandModule = {
  define: (command, context) => {
    addLimitFlag(command)
      .option("--name <text>", "only sessions whose name contains this text (ignoring case)")
      .option("--all", "also the sessions of single commands, such as sample, chat and doctor")
      .addOption(accessScopeFlag("your own sessions, or all that you may see"))
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
  printList<Listed>(context, sessions, { columns: COLUMNS, empty: "no sessions" });
  if (hidden > 0) {
    const left =
      hidden === 1 ? "1 session of a single command is" : `${hidden} sessions of single commands are`;
    context.notify(`${left} not shown; --all shows all`);
  }
}

/** A session that a command such as `tinkerts sample` opened and closed, with nothing left of it. */
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
  { header: "Session", name: "sessionId" },
  { header: "Name", name: "displayName" },
  { header: "Runs", name: "trainingRunIds", none: "none" },
  { header: "Samplers", name: "samplerIds", none: "none" },
  metadataColumn(),
];

export const info: CommandModule = {
  define: (command, context) => {
    command.argument("<id>", "the session's id").action(async (sessionId: string) => {
      const rest = await context.restClient();
      const found = rest.getSession(sessionId, { accessScope: "accessible" });
      const session = await explainNotFound(context, found, "session", sessionId);
      printItem(context, { sessionId, ...session }, INFO_COLUMNS);
    });
  },
};
