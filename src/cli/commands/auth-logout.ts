import { consoleUrls } from "../../clients/console-urls.js";
import { AuthenticationError } from "../../errors.js";
import { storedCredentialsPath } from "../../transport/stored-credentials.node.js";
import { defaultKey, forgetKey, keyTitle } from "../auth/credential-file.js";
import { deleteKey } from "../auth/key-requests.js";
import type { CommandContext, CommandModule } from "../context.js";
import { isHosted, serverURL, variableInUse } from "../credential.js";
import { explainFailure } from "../failure.js";
import { printable, printDone } from "../output/index.js";

export const define: CommandModule["define"] = (command, context) => {
  command.action(() => logout(context));
};

async function logout(context: CommandContext): Promise<void> {
  const stored = defaultKey();
  if (stored === undefined) {
    throw new Error(
      `there is nothing to log out from: ${storedCredentialsPath()} has no key in use (\`tinkerts auth login\` stores one)`,
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
    { keyId, name: record.name, deletedOnServer: isGenerated },
  );
  const variable = variableInUse();
  if (variable !== undefined) context.notify(`note: ${variable} is set, and stays in use`);
}

/** Nobody but this machine ever had a generated key. What keeps the server from deleting it does not keep us. */
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
