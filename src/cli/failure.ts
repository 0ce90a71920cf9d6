import {
  APIConnectionError,
  type APIError,
  APITimeoutError,
  AuthenticationError,
  BadRequestError,
  messageOf,
  NotFoundError,
  PermissionDeniedError,
  UnprocessableEntityError,
  ValidationError,
} from "../errors.js";
import type { CommandContext } from "./context.js";
import { CREDENTIAL_PLACES, credentialOf, missingKeyAdvice, serverURL } from "./credential.js";
import type { GlobalOptions } from "./global-options.js";

/** Describes an error and the next step, with its causes. */
export function explainFailure(error: unknown, options: GlobalOptions): string {
  const explained = explain(error, options);
  return [explained, ...causesOf(error, explained)].join("\n");
}

/** The messages of an error's causes, one per line, without repetitions. */
function causesOf(error: unknown, explained: string): string[] {
  const lines: string[] = [];
  const seen = new Set([error]);
  let said = explained;
  for (let cause = causeOf(error); cause !== undefined && !seen.has(cause); cause = causeOf(cause)) {
    seen.add(cause);
    const message = messageOf(cause);
    if (!said.includes(message)) lines.push(`caused by: ${message}`);
    said += message;
  }
  return lines;
}

const causeOf = (error: unknown) => (error instanceof Error ? error.cause : undefined);

/** Describes an error and the next step, in one sentence. */
function explain(error: unknown, options: GlobalOptions): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof ValidationError && error.field === "baseURL") {
    return error.message.replace("baseURL", options.baseURL ? "--base-url" : "TINKER_BASE_URL");
  }
  if (error instanceof ValidationError) {
    // The call names its option, and the user has typed a flag.
    const [name = ""] = error.field.split(/[.[]/);
    const flag = options.flags.get(name);
    return flag === undefined ? error.message : error.message.replace(new RegExp(`\\b${name}\\b`), flag);
  }
  const server = serverNameOf(options);
  if (error instanceof APITimeoutError && isExchange(error)) {
    return `${server} did not answer in time: try again, or give more with --timeout (${firstSentence(error.message)})`;
  }
  if (error instanceof APIConnectionError && isExchange(error)) {
    return `${server} cannot be reached (${reason(error)}): check --base-url or TINKER_BASE_URL, or start a server with \`tinkerts serve\``;
  }
  if (error instanceof AuthenticationError) {
    const { source } = credentialOf(options);
    if (source === undefined || source === "none") {
      return `${server} needs an API key: ${missingKeyAdvice(options)}`;
    }
    const advice =
      source === "stored key"
        ? "forget it with `tinkerts auth logout`, then log in with another one"
        : "check it, or make a new one";
    return `${server} does not accept the key ${CREDENTIAL_PLACES[source]}: ${advice}`;
  }
  if (error instanceof PermissionDeniedError) {
    return `${server} does not allow this with the key in use: ${detail(error, options)}`;
  }
  if (error instanceof NotFoundError) return `${server} has no such thing: ${detail(error, options)}`;
  if (error instanceof BadRequestError || error instanceof UnprocessableEntityError) {
    return `${server} refuses this: ${detail(error, options)}`;
  }
  return error.message;
}

/** Commands that list the possible values. */
const LISTED_BY = { checkpoint: "checkpoint list", "training run": "run list", session: "session list" };

/** Turns "not found" into a sentence that names the missing thing. */
export async function explainNotFound<T>(
  { globals }: CommandContext,
  answer: PromiseLike<T>,
  kind: keyof typeof LISTED_BY,
  id: string,
): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    if (!(error instanceof NotFoundError)) throw error;
    // Without its cause, which repeats it in the API's words.
    const advice = `\`tinkerts ${LISTED_BY[kind]}\` shows those it has`;
    throw new Error(`${serverNameOf(globals())} has no ${kind} ${id}: ${advice}`);
  }
}

/** Only messages of exchanges with the server begin with the request; downloads have their own. */
function isExchange(error: Error): boolean {
  return /^[A-Z]+ \//.test(error.message);
}

/** The network error, without the request. */
function reason(error: Error): string {
  return firstSentence(error.message).replace(/^.*? failed: /, "");
}

function firstSentence(text: string): string {
  return text.split(". ")[0]!.replace(/\.$/, "");
}

/** How messages name the server: by its address, or as the built-in backend of this process. */
function serverNameOf(options: GlobalOptions): string {
  return options.serverName ?? serverURL(options);
}

/** The server's message, without the request. */
function detail(error: APIError, { texts }: GlobalOptions): string {
  const [, found] = /^\S+ \S+ answered \d+: (.*?)\.?$/s.exec(error.message) ?? [];
  const said = found ?? error.message;
  // The server names fields of the request; the user knows options, and set one of them to this value.
  const given = [...texts].filter(([, text]) => text !== "");
  const [flag] =
    // A value that the server received is quoted; unquoted values may also be choices.
    given.find(([, text]) => said.includes(JSON.stringify(text))) ??
    given.find(([, text]) => said.includes(text)) ??
    [];
  return said.replaceAll(/\b(?:base(?:_m|M)odel|model(?:_p|P)ath)\b/g, flag ?? "the model");
}
