import { createWriteStream } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { resolve } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { Option } from "commander";
import { conversationRows, datumRows, type ExportedThreads } from "../../gateway/recording/export-rows.js";
import { type RecordedSummary, readSessions } from "../../gateway/recording/read-sessions.js";
import { type CommandModule, UsageError } from "../context.js";
import { addFilterFlags, type FilterFlags, filterOf } from "../gateway/session-filter.js";
import { gathered } from "../option-values.js";
import { printDone } from "../output/index.js";

interface ExportFlags extends FilterFlags {
  readonly output?: string;
  readonly as: "conversations" | "datums";
  readonly threads?: ExportedThreads;
  readonly session?: readonly string[];
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<folder>", "the folder that a gateway has recorded in")
    .option("-o, --output <file>", "file for the rows (default: standard output)")
    .addOption(
      new Option("--as <rows>", "conversations to read, or datums of the sampled tokens")
        .choices(["conversations", "datums"])
        .default("conversations"),
    )
    .addOption(
      new Option(
        "--threads <which>",
        "the thread that a session is about, or also side requests and abandoned ones (default: main; all for datums)",
      ).choices(["main", "all"]),
    )
    .option("--session <name>", "only this session (repeatable)", gathered(String));
  addFilterFlags(command).action(
    async (folder: string, { output, as, threads, session: ids, ...flags }: ExportFlags) => {
      const isChosen = filterOf(flags);
      const wanted = (session: RecordedSummary) =>
        (ids === undefined || ids.includes(session.id)) && isChosen(session);
      const counts = { rows: 0, sessions: 0, empty: 0 };
      async function* lines() {
        for await (const session of readSessions(folder, wanted)) {
          const rows = as === "datums" ? datumRows(session, threads) : conversationRows(session, threads);
          counts.sessions += 1;
          counts.rows += rows.length;
          if (rows.length === 0) counts.empty += 1;
          for (const row of rows) yield `${JSON.stringify(row)}\n`;
        }
      }
      if (output === undefined) {
        for await (const line of lines()) context.stdout.write(line);
      } else await writeWhole(resolve(output), lines());
      if (counts.rows === 0)
        throw new UsageError(
          counts.sessions === 0
            ? "no session of the recording fits these options"
            : `${counts.sessions} sessions fit, and none has ${as === "datums" ? "sampled tokens" : "a whole answer to learn from"}`,
        );
      if (output !== undefined)
        printDone(
          context,
          `${resolve(output)} holds ${counts.rows} ${as} of ${counts.sessions} sessions` +
            (counts.empty > 0 ? `, ${counts.empty} of which have none` : ""),
          { file: resolve(output), ...counts },
        );
    },
  );
};

/** The file appears when it is whole. */
async function writeWhole(file: string, lines: AsyncIterable<string>): Promise<void> {
  const partial = `${file}.part`;
  try {
    await pipeline(Readable.from(lines), createWriteStream(partial));
    await rename(partial, file);
  } finally {
    await rm(partial, { force: true });
  }
}
