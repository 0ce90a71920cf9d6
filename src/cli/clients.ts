import type { HttpClientOptions, RestClient, ServiceClient } from "tinkerts";
import type { CommandContext } from "./context.js";

/** A person waits at the terminal: rather an error soon than one more attempt. */
const MAX_RETRIES = 2;

/** Marks a session that a command opened for itself, for lists to leave out. */
export const CREATED_BY = "createdBy";

/** How a command ended, for its session to say. */
export type Ending = "success" | "errored" | "interrupted";

/** Makes the clients of one command line when they are asked for, and ends them. */
export function commandClients(
  context: Pick<CommandContext, "stderr" | "globals" | "interruption">,
  commandName: () => string,
) {
  let rest: Promise<RestClient> | undefined;
  let service: Promise<ServiceClient> | undefined;

  const openRest = async () => {
    const { RestClient } = await import("tinkerts");
    const client = withKeyAdvice(() => new RestClient(clientOptions(context)));
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
    // A missing key is noticed here, and not with the first request.
    withKeyAdvice(() => client.createRestClient());
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

/** What the global options say to any client. */
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

function withKeyAdvice<T>(create: () => T): T {
  try {
    return create();
  } catch (error) {
    if (!(error instanceof Error) || !error.message.startsWith("No API key")) throw error;
    throw new Error(
      "there is no API key: store one with `tinkerts auth login`, set TINKER_API_KEY or give --api-key; " +
        "or work without one on a server of your own " +
        "(`tinkerts serve` starts it, TINKER_BASE_URL or --base-url names it)",
      { cause: error },
    );
  }
}

/** Lines of every level go where no data goes. */
function lineLogger(stderr: NodeJS.WriteStream): NonNullable<HttpClientOptions["logger"]> {
  const line =
    (prefix: string) =>
    (message: string, ...details: unknown[]) => {
      const rest = details.map((detail) => (typeof detail === "string" ? detail : JSON.stringify(detail)));
      stderr.write(`${prefix}${[message, ...rest].join(" ")}\n`);
    };
  return { error: line("error: "), warn: line("warning: "), info: line(""), debug: line("") };
}
