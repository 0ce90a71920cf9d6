import type { Identity } from "tinkerts";
import type { CredentialSource } from "../../transport/auth.js";
import { keyTitle, type StoredCredential, storedCredential } from "../auth/credential-file.js";
import type { CommandContext, CommandModule } from "../context.js";
import { CREDENTIAL_PLACES, credentialOf, serversWithKeys, serverURL } from "../credential.js";
import { explainFailure } from "../failure.js";
import { type Column, printItem } from "../output/index.js";

interface Status {
  readonly server: string;
  readonly credential: CredentialSource;
  /** The key stored for this server, even if another credential is used. */
  readonly storedKey: string | null;
  /** Every server with a stored key. */
  readonly storedFor: readonly string[];
  readonly accessible: boolean;
  readonly error: string | null;
}

const COLUMNS: readonly Column<Status>[] = [
  { header: "Server", name: "server" },
  {
    header: "API key",
    name: "credential",
    value: ({ credential }) => (credential === "none" ? credential : CREDENTIAL_PLACES[credential]),
  },
  { header: "Stored key", name: "storedKey" },
  { header: "Stored for", name: "storedFor" },
  { header: "Accessible", name: "accessible", kind: "flag" },
];

export const status: CommandModule = {
  define: (command, context) => {
    command.action(() => showStatus(context));
  },
};

async function showStatus(context: CommandContext): Promise<void> {
  const globals = context.globals();
  const signal = context.interruption();
  let credential: CredentialSource = "none";
  let failure: unknown;
  try {
    const rest = await context.restClient();
    credential = credentialOf(globals).source ?? "none";
    // Not the method of that name: it waits until an account without funds is paid for.
    await rest.get("/api/v1/get_server_capabilities", { signal, maxRetries: 0 });
  } catch (error) {
    signal.throwIfAborted();
    failure = error;
  }
  const stored = readable(() => storedCredential(serverURL(globals)));
  printItem(
    context,
    {
      server: serverURL(globals),
      credential,
      storedKey: stored === undefined ? null : keyTitle(stored.record),
      storedFor: serversWithKeys(),
      accessible: failure === undefined,
      error: failure === undefined ? null : explainFailure(failure, globals),
    },
    COLUMNS,
  );
  if (failure !== undefined) throw failure;
}

/** A broken file matters only if its key is needed, and then it was already reported. */
function readable(read: () => StoredCredential | undefined): StoredCredential | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

const IDENTITY_COLUMNS: readonly Column<Identity>[] = [
  { header: "Email", name: "email" },
  { header: "User", name: "userUrn" },
  { header: "Organization", name: "orgUrn" },
];

export const whoami: CommandModule = {
  define: (command, context) => {
    command.action(async () => {
      const rest = await context.restClient();
      printItem(context, await rest.whoami(), IDENTITY_COLUMNS);
    });
  },
};
