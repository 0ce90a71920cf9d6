import { recordJson } from "../../gateway/record-json.js";
import { listSessions, readSessions } from "../../gateway/recording/read-sessions.js";
import { type CommandModule, UsageError } from "../context.js";
import { sessionLines } from "../gateway/session-text.js";
import { printJson, stylesFor } from "../output/index.js";

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<folder>", "the folder that a gateway has recorded in")
    .argument("<session>", "the session's name; where several had it, the last")
    .action(async (folder: string, id: string) => {
      const found = (await listSessions(folder)).sessions.findLast((session) => session.id === id);
      if (found === undefined)
        throw new UsageError(
          `${folder} has no session ${id}: \`tinkerts gateway sessions ${folder}\` lists them`,
        );
      for await (const { key: _, ...record } of readSessions(folder, ({ key }) => key === found.key)) {
        if (context.globals().format === "table")
          for (const line of sessionLines(record, stylesFor(context, context.stdout)))
            context.stdout.write(`${line}\n`);
        else printJson(context, recordJson(record));
      }
    });
};
