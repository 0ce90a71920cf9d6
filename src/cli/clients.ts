import type { HttpClientOptions, RestClient, ServiceClient } from "tinkerts";
import type { CommandContext } from "./context.js";
import { printableLines } from "./output/text.js";

/** A person waits at the terminal: an early error is better than one more attempt. */
const MAX_RETRIES = 2;

/** Marks a session that a command opened for itself; lists leave it out. */
export const CREATED_BY = "createdBy";

/** How a command ended, reported to its session. */
export type Ending = "success" | "errored" | "interrupted";

/** Creates the clients of one command line on demand, and closes them. */
export function commandClients(
  context: Pick<CommandContext, "stderr" | "globals" | "interruption">,
  commandName: () => string,
) {
  let rest: Promise<RestClient> | undefined;
  let service: Promise<ServiceClient> | undefined;

  const openRest = async () => {
    const { RestClient } = await import("tinkerts");
    const client = await withKeyAdvice(context, () => new RestClient(clientOptions(context)));
    context.interruption().addEventListener("abort", () => void client.close(), { once: true });
    return client;
  };

  const openService = async () => {
    const { ServiceClient } = await import("tinkerts");
    const client = new ServiceClient({
      ...clientOptions(context),
      projectId: context.globals().project,
      displayName: commandName(),
      userMetadata: { [CREATED_BY]: commandName() },
    });
    // Reports a missing key now, and not with the first request.
    await withKeyAdvice(context, () => client.createRestClient());
    return client;
  };

  return {
    restClient: () => (rest ??= openRest()),
    serviceClient: () => (service ??= openService()),
    close: async (ending: Ending) => {
      const [openedRest, openedService] = await Promise.all([
        rest?.catch(() => undefined),
        service?.catch(() => undefined),
      ]);
      await Promise.allSettled([openedRest?.close(), openedService?.close(ending)]);
    },
  };
}

/** Client options from the global options. */
export function clientOptions(context: Pick<CommandContext, "stderr" | "globals">): HttpClientOptions {
  const { baseURL, apiKey, timeoutMs, verbose } = context.globals();
  return {
    baseURL,
    apiKey,
    timeout: timeoutMs,
    maxRetries: MAX_RETRIES,
    logger: lineLogger(context.stderr),
    ...(verbose && { logLevel: "debug" }),
  };
}

async function withKeyAdvice<T>(context: Pick<CommandContext, "globals">, create: () => T): Promise<T> {
  try {
    return create();
  } catch (error) {
    if (!(error instanceof Error) || !error.message.startsWith("No API key")) throw error;
    // Loaded late: commands that need no key load none of it.
    const { missingKeyAdvice } = await import("./credential.js");
    throw new Error(
      `there is no API key: ${missingKeyAdvice(context.globals())}; ` +
        "or work without one on a server of your own " +
        "(`tinkerts serve` starts it, TINKER_BASE_URL or --base-url names it)",
    );
  }
}

/** All log lines go to standard error. */
function lineLogger(stderr: NodeJS.WriteStream): NonNullable<HttpClientOptions["logger"]> {
  const line =
    (prefix: string) =>
    (message: string, ...details: unknown[]) => {
      const rest = details.map((detail) => (typeof detail === "string" ? detail : JSON.stringify(detail)));
      stderr.write(`${prefix}${printableLines([message, ...rest].join(" "))}\n`);
    };
  return { error: line("error: "), warn: line("warning: "), info: line(""), debug: line("") };
}
