import {
  APIConnectionError,
  type APIError,
  APITimeoutError,
  AuthenticationError,
  BadRequestError,
  NotFoundError,
  PermissionDeniedError,
  UnprocessableEntityError,
  ValidationError,
} from "../errors.js";
import type { CommandContext } from "./context.js";
import { CREDENTIAL_PLACES, credentialOf, serverURL } from "./credential.js";
import type { GlobalOptions } from "./global-options.js";

/** What went wrong and what to do next, in one sentence. */
export function explainFailure(error: unknown, options: GlobalOptions): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof ValidationError && error.field === "baseURL") {
    return error.message.replace("baseURL", options.baseURL ? "--base-url" : "TINKER_BASE_URL");
  }
  const server = serverURL(options);
  if (error instanceof APITimeoutError && isExchange(error)) {
    return `${server} did not answer in time: try again, or give more with --timeout (${firstSentence(error.message)})`;
  }
  if (error instanceof APIConnectionError && isExchange(error)) {
    return `${server} cannot be reached (${reason(error)}): check --base-url or TINKER_BASE_URL, or start a server with \`tinkerts serve\``;
  }
  if (error instanceof AuthenticationError) {
    const { source } = credentialOf(options);
    if (source === undefined || source === "none") {
      return `${server} wants an API key: store one with \`tinkerts auth login\`, set TINKER_API_KEY or give --api-key`;
    }
    const advice =
      source === "stored key"
        ? "forget it with `tinkerts auth logout`, then log in with another one"
        : "check it, or make a new one";
    return `${server} does not accept the key ${CREDENTIAL_PLACES[source]}: ${advice}`;
  }
  if (error instanceof PermissionDeniedError) {
    return `${server} does not allow this with the key in use: ${detail(error)}`;
  }
  if (error instanceof NotFoundError) return `${server} has no such thing: ${detail(error)}`;
  if (error instanceof BadRequestError || error instanceof UnprocessableEntityError) {
    return `${server} refuses this: ${detail(error)}`;
  }
  return error.message;
}

/** Turns "not found" into a sentence that names what was looked for. */
export async function explainNotFound<T>(
  { globals }: CommandContext,
  answer: PromiseLike<T>,
  what: string,
  advice: string,
): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    if (!(error instanceof NotFoundError)) throw error;
    throw new Error(`${serverURL(globals())} has no ${what}: ${advice}`, { cause: error });
  }
}

/** Only the messages of exchanges with the server begin with the request; a download has its own. */
function isExchange(error: Error): boolean {
  return /^[A-Z]+ \//.test(error.message);
}

/** What the network said, without the request it said it to. */
function reason(error: Error): string {
  return firstSentence(error.message).replace(/^.*? failed: /, "");
}

function firstSentence(text: string): string {
  return text.split(". ")[0]!.replace(/\.$/, "");
}

/** What the server said, without the request it said it to. */
function detail(error: APIError): string {
  const [, said] = /^\S+ \S+ answered \d+: (.*?)\.?$/s.exec(error.message) ?? [];
  // The server names fields of the request; the person at the terminal knows options.
  return (said ?? error.message)
    .replaceAll(/\bbase(_m|M)odel\b/g, "--base-model")
    .replaceAll(/\bmodel(_p|P)ath\b/g, "--model-path");
}
