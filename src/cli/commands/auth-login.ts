import { hostname } from "node:os";
import { text as readAll } from "node:stream/consumers";
import { consoleUrls } from "../../clients/console-urls.js";
import { AuthenticationError } from "../../errors.js";
import { normalizeBaseURL } from "../../transport/request-encoding.js";
import { isPrivateRoute, storedCredentialsPath } from "../../transport/stored-credentials.node.js";
import { keyTitle, storedCredential, storeKey } from "../auth/credential-file.js";
import { describeKey } from "../auth/key-requests.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { isHosted, serverURL, variableInUse } from "../credential.js";
import { askSecret, canAsk, printable, printDone } from "../output/index.js";

export const define: CommandModule["define"] = (command, context) => {
  command.action(() => login(context));
};

async function login(context: CommandContext): Promise<void> {
  const server = normalizeBaseURL(serverURL(context.globals()));
  const ofServer = isHosted(context.globals()) ? "" : ` --base-url ${server}`;
  if (!isPrivateRoute(server)) {
    throw new Error(
      `${server} is another machine without https, where the network could read the key: use its https address, or set TINKER_API_KEY if you trust the network`,
    );
  }
  const before = storedCredential(server);
  if (before !== undefined) {
    throw new Error(
      `there is a stored key for ${server} already, ${printable(keyTitle(before.record))}: run \`tinkerts auth logout${ofServer}\` first`,
    );
  }
  const key = checkKey(await readKey(context), context);
  const described = await describeKey(context, key).catch((error: unknown) => {
    if (!(error instanceof AuthenticationError)) throw error;
    throw new Error(`${server} does not accept this key, so it was not stored: is it all of the key?`);
  });
  // A server that cannot tell whose key it is has no name for it either.
  const { keyId: id, ...owner } = described ?? { keyId: server, name: `key of ${server}` };
  // Ids of different servers may be the same number.
  const keyId = isHosted(context.globals()) ? id : server;
  await storeKey(server, keyId, { type: "manual", key, ...owner });

  const path = storedCredentialsPath();
  const { name, details } = described ?? { name: owner.name, details: undefined };
  printDone(
    context,
    `logged in: key ${printable(keyTitle({ name, details }))} for ${server} is stored in ${path}`,
    {
      keyId,
      name,
      email: details?.user_details.email ?? null,
      organization: details?.org_details.name ?? null,
      server,
      path,
    },
  );
  const variable = variableInUse();
  if (variable !== undefined) {
    context.notify(`note: ${variable} is set and goes before the stored key`);
  }
}

/** Reads the key from the command line, the terminal or a pipe. */
async function readKey(context: CommandContext): Promise<string> {
  const { stdin } = context;
  const globals = context.globals();
  if (globals.apiKey) return globals.apiKey;
  if (!stdin.isTTY) return readAll(stdin);
  if (!canAsk(context)) throw new UsageError("there is no terminal to ask for the key: pipe it in");
  if (!isHosted(globals)) return askSecret(context, `API key for ${serverURL(globals)} (it is not shown): `);
  const machine = hostname().split(".")[0] || "unknown";
  context.notify(`Create an API key at ${consoleUrls.newApiKey(`tinkerts-${machine}`)}`);
  return askSecret(context, "Paste it here (it is not shown): ");
}

function checkKey(text: string, context: CommandContext): string {
  const key = text.trim();
  if (key === "") throw new UsageError("there is no key: paste it at the terminal, or pipe it in");
  if (!/^[\x21-\x7e]+$/.test(key)) {
    throw new Error("that is not a key: a key is one word of plain letters, digits and signs");
  }
  if (/^(tml-|eyJ)/.test(key)) return key;
  if (isHosted(context.globals())) throw new Error('that is not a key: keys begin with "tml-"');
  context.notify('note: the official Python package takes only keys that begin with "tml-"');
  return key;
}
