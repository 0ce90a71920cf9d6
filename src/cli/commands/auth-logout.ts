import { consoleUrls } from "../../clients/console-urls.js";
import { AuthenticationError } from "../../errors.js";
import { normalizeBaseURL } from "../../transport/request-encoding.js";
import { storedCredentialsPath } from "../../transport/stored-credentials.node.js";
import { forgetKey, keyTitle, storedCredential } from "../auth/credential-file.js";
import { deleteKey } from "../auth/key-requests.js";
import type { CommandContext, CommandModule } from "../context.js";
import { isHosted, serversWithKeys, serverURL, variableInUse } from "../credential.js";
import { explainFailure } from "../failure.js";
import { printable, printDone } from "../output/index.js";

export const define: CommandModule["define"] = (command, context) => {
  command.action(() => logout(context));
};

async function logout(context: CommandContext): Promise<void> {
  const server = normalizeBaseURL(serverURL(context.globals()));
  const stored = storedCredential(server);
  if (stored === undefined) {
    const others = serversWithKeys().map((address) => `--base-url ${printable(address)}`);
    const advice =
      others.length > 0 ? `there are keys for ${others.join(", ")}` : "`tinkerts auth login` stores one";
    throw new Error(
      `there is nothing to log out from: ${storedCredentialsPath()} has no key for ${server} (${advice})`,
    );
  }
  const { keyId, record } = stored;
  const title = printable(keyTitle(record));
  const isGenerated = record.type === "generated";
  const problem = isGenerated ? await deletionProblem(context, record.key) : undefined;
  await forgetKey(keyId);
  const remedy = isHosted(context.globals()) ? `: delete it at ${consoleUrls.apiKey(keyId)}` : "";
  if (problem !== undefined) {
    throw new Error(
      `key ${title} (id ${printable(keyId)}) is forgotten, but was not deleted on the server (${problem})${remedy}`,
    );
  }
  printDone(
    context,
    isGenerated
      ? `logged out: key ${title} is forgotten, and deleted on the server`
      : `logged out: key ${title} is forgotten, but still valid${remedy}`,
    { keyId, name: record.name, server, deletedOnServer: isGenerated },
  );
  const variable = variableInUse();
  if (variable !== undefined) context.notify(`note: ${variable} is set, and stays in use`);
}

/** A generated key is stored only here. If the server fails to delete it, it is deleted here anyway. */
async function deletionProblem(context: CommandContext, key: string): Promise<string | undefined> {
  const signal = context.interruption();
  try {
    await deleteKey(context, key);
    return undefined;
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof AuthenticationError) return `${serverURL(context.globals())} does not accept it`;
    return explainFailure(error, context.globals());
  }
}
