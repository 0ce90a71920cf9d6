import type { SessionInfo } from "tinkerts";
import type { CommandModule } from "../context.js";
import { found } from "../failure.js";
import { type Column, printItem } from "../output/index.js";
import { metadataColumn } from "./metadata.js";

type SessionDetails = SessionInfo & { readonly sessionId: string };

const columns: readonly Column<SessionDetails>[] = [
  { header: "Session", name: "sessionId", value: ({ sessionId }) => sessionId },
  { header: "Name", name: "displayName", value: ({ displayName }) => displayName },
  { header: "Runs", name: "trainingRunIds", value: ({ trainingRunIds }) => trainingRunIds, none: "none" },
  { header: "Samplers", name: "samplerIds", value: ({ samplerIds }) => samplerIds, none: "none" },
  metadataColumn(),
];

export const define: CommandModule["define"] = (command, context) => {
  command.argument("<id>", "the session's id").action(async (sessionId: string) => {
    const rest = await context.restClient();
    const session = await found(
      context,
      rest.getSession(sessionId, { accessScope: "accessible" }),
      `session ${sessionId}`,
      "`tinkerts session list` shows those it has",
    );
    printItem(context, { sessionId, ...session }, columns);
  });
};
