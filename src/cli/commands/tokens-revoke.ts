import { endpoints } from "../../wire/index.js";
import { isUnknownRoute } from "../auth/key-requests.js";
import type { CommandContext, CommandModule } from "../context.js";
import { serverURL } from "../credential.js";
import { printDone } from "../output/index.js";

export const define: CommandModule["define"] = (command, context) => {
  command.action(() => revoke(context));
};

async function revoke(context: CommandContext): Promise<void> {
  const server = serverURL(context.globals());
  const rest = await context.restClient();
  try {
    await rest.delete(endpoints.revokeTokens.path, { signal: context.interruption() });
  } catch (error) {
    if (!isUnknownRoute(error)) throw error;
    throw new Error(`${server} cannot revoke tokens: only servers of tinkerts can`, { cause: error });
  }
  printDone(context, `all tokens for this key have ended at ${server}`, { server });
}
