import type { Identity } from "tinkerts";
import type { CommandModule } from "../context.js";
import { type Column, printItem } from "../output/index.js";

const columns: readonly Column<Identity>[] = [
  { header: "Email", name: "email", value: ({ email }) => email },
  { header: "User", name: "userUrn", value: ({ userUrn }) => userUrn },
  { header: "Organization", name: "orgUrn", value: ({ orgUrn }) => orgUrn },
];

export const define: CommandModule["define"] = (command, context) => {
  command.action(async () => {
    const rest = await context.restClient();
    printItem(context, await rest.whoami(), columns);
  });
};
