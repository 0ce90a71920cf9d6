import {
  APIConnectionError,
  type APIError,
  APITimeoutError,
  AuthenticationError,
  BadRequestError,
  NotFoundError,
  PermissionDeniedError,
  UnprocessableEntityError,
} from "../errors.js";
import { HOSTED_BASE_URL } from "../transport/auth.js";
import type { CommandContext } from "./context.js";
import type { GlobalOptions } from "./global-options.js";

/** What went wrong and what to do next, in one sentence. */
export function explainFailure(error: unknown, options: GlobalOptions): string {
  if (!(error instanceof Error)) return String(error);
  const server = serverName(options);
  if (error instanceof APITimeoutError && isExchange(error)) {
    return `${server} did not answer in time: try again, or give more with --timeout (${firstSentence(error.message)})`;
  }
  if (error instanceof APIConnectionError && isExchange(error)) {
    return `${server} cannot be reached (${reason(error)}): check --base-url or TINKER_BASE_URL, or start a server with \`tinkerts serve\``;
  }
  if (error instanceof AuthenticationError) {
    const source =
      options.apiKey !== undefined
        ? "--api-key"
        : process.env["TINKER_API_KEY"]
          ? "TINKER_API_KEY"
          : "any key";
    return source === "any key"
      ? `${server} wants an API key: set TINKER_API_KEY or give --api-key`
      : `${server} does not accept the key from ${source}: check it, or make a new one`;
  }
  if (error instanceof PermissionDeniedError) {
    return `${server} does not allow this with the key in use: ${detail(error)}`;
  }
  if (error instanceof NotFoundError) return `${server} does not know that: ${detail(error)}`;
  if (error instanceof BadRequestError || error instanceof UnprocessableEntityError) {
    return `${server} refuses this: ${detail(error)}`;
  }
  return error.message;
}

/** Turns "not found" into a sentence that names what was looked for. */
export async function found<T>(
  { globals }: CommandContext,
  answer: PromiseLike<T>,
  what: string,
  advice: string,
): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    if (!(error instanceof NotFoundError)) throw error;
    throw new Error(`${serverName(globals())} has no ${what}: ${advice}`, { cause: error });
  }
}

function serverName({ baseURL }: GlobalOptions): string {
  return baseURL || process.env["TINKER_BASE_URL"] || HOSTED_BASE_URL;
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
  return said ?? error.message;
}
