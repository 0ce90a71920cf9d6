import { listSessions, type RecordedSummary } from "../../gateway/recording/read-sessions.js";
import type { CommandModule } from "../context.js";
import { addFilterFlags, type FilterFlags, filterOf } from "../gateway/session-filter.js";
import { type Column, printList } from "../output/index.js";
import { addLimitFlag } from "./take-items.js";

const time = (value: number | undefined) => (value === undefined ? undefined : new Date(value).toISOString());

const COLUMNS: readonly Column<RecordedSummary>[] = [
  { header: "Session", name: "id", importance: 9, leastWidth: 12, cutAt: "middle" },
  {
    header: "Started",
    name: "startedAt",
    kind: "time",
    value: ({ startedAt }) => time(startedAt),
    importance: 6,
  },
  { header: "Reward", name: "reward", importance: 8, isOptional: true },
  { header: "Turns", name: "turns", kind: "number", importance: 7 },
  { header: "Threads", name: "threads", kind: "number", importance: 4 },
  { header: "Tokens", name: "sampledTokens", kind: "number", importance: 5 },
  { header: "End", name: "end", none: "not ended", importance: 6 },
  { header: "Tags", name: "tags", importance: 3, leastWidth: 8, isOptional: true },
  { header: "Model", name: "model", importance: 2, leastWidth: 8, cutAt: "middle" },
];

export const define: CommandModule["define"] = (command, context) => {
  command.argument("<folder>", "the folder that a gateway has recorded in");
  addLimitFlag(addFilterFlags(command)).action(
    async (folder: string, { limit, ...flags }: FilterFlags & { readonly limit: number }) => {
      const filter = filterOf(flags);
      const { sessions, badLines } = await listSessions(folder);
      const found = sessions.filter((session) => filter(session)).toReversed();
      const shown = limit === 0 ? found : found.slice(0, limit);
      printList(context, shown, { columns: COLUMNS, empty: "no such sessions" });
      if (shown.length < found.length)
        context.notify(`${found.length - shown.length} earlier sessions are not listed; --limit 0 lists all`);
      if (badLines > 0) context.notify(`${badLines} lines of the recording could not be read`);
    },
  );
};
