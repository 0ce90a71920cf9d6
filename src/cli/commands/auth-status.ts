import type { Identity } from "tinkerts";
import type { CredentialSource } from "../../transport/auth.js";
import { type DefaultKey, defaultKey, keyTitle } from "../auth/credential-file.js";
import type { CommandContext, CommandModule } from "../context.js";
import { CREDENTIAL_PLACES, credentialOf, serverURL } from "../credential.js";
import { explainFailure } from "../failure.js";
import { type Column, printItem } from "../output/index.js";

interface Status {
  readonly server: string;
  readonly credential: CredentialSource;
  /** Also when it is not the credential in use. */
  readonly storedKey: string | null;
  readonly accessible: boolean;
  readonly error: string | null;
}

const COLUMNS: readonly Column<Status>[] = [
  { header: "Server", name: "server", value: ({ server }) => server },
  {
    header: "API key",
    name: "credential",
    value: ({ credential }) => (credential === "none" ? credential : CREDENTIAL_PLACES[credential]),
  },
  { header: "Stored key", name: "storedKey", value: ({ storedKey }) => storedKey },
  { header: "Accessible", name: "accessible", value: ({ accessible }) => accessible, kind: "flag" },
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
    // Not the method of that name: it would wait for an account without means to be filled up.
    await rest.get("/api/v1/get_server_capabilities", { signal, maxRetries: 0 });
  } catch (error) {
    signal.throwIfAborted();
    failure = error;
  }
  const stored = readable(defaultKey);
  printItem(
    context,
    {
      server: serverURL(globals),
      credential,
      storedKey: stored === undefined ? null : keyTitle(stored.record),
      accessible: failure === undefined,
      error: failure === undefined ? null : explainFailure(failure, globals),
    },
    COLUMNS,
  );
  if (failure !== undefined) throw failure;
}

/** A broken file matters only where its key is needed, and then that has been noticed. */
function readable(read: () => DefaultKey | undefined): DefaultKey | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

const IDENTITY_COLUMNS: readonly Column<Identity>[] = [
  { header: "Email", name: "email", value: ({ email }) => email },
  { header: "User", name: "userUrn", value: ({ userUrn }) => userUrn },
  { header: "Organization", name: "orgUrn", value: ({ orgUrn }) => orgUrn },
];

export const whoami: CommandModule = {
  define: (command, context) => {
    command.action(async () => {
      const rest = await context.restClient();
      printItem(context, await rest.whoami(), IDENTITY_COLUMNS);
    });
  },
};
