import type { SessionOptions } from "./gateway.js";

/** Names of sessions: parts of addresses and of file names. */
export const SESSION_ID = /^(?!\.+$)[\w.-]{1,100}$/;
export const SESSION_HEADER = "x-tinkerts-session";

/** Where a request is sent: the path of its API, and the session that its address names. */
export interface Address {
  readonly path: string;
  readonly session?: string | undefined;
  /** Properties that the address gives to a new session. */
  readonly options?: Pick<SessionOptions, "group" | "step" | "tags"> | undefined;
}

const OWN_SESSION = /^\/s\/([^/]+)(\/.*)?$/;
const SCOPED = /^\/r\/(.+?)(\/(?:v1|anthropic|oai)(?:\/.*)?)$/;

/**
 * Reads `/s/SESSION/...` and the Python cookbook's `/r/KEY/VALUE/...`, each followed by the path of an API.
 * `/v1/messages` belongs to Anthropic's API, also without `/anthropic`.
 */
export function readAddress(path: string): Address {
  const [, session, rest] = OWN_SESSION.exec(path) ?? [];
  if (session !== undefined) return { path: apiPath(rest ?? "/"), session: decoded(session) };
  const [, scope, scopedRest] = SCOPED.exec(path) ?? [];
  if (scope === undefined || scopedRest === undefined) return { path: apiPath(path) };
  return { path: apiPath(scopedRest), ...scopeOf(scope.split("/").map(decoded)) };
}

function apiPath(path: string): string {
  return path.startsWith("/v1/messages") ? `/anthropic${path}` : path;
}

/** A session for each set of values; `iter`, `group` and so on are the scopes of the Python cookbook. */
function scopeOf(parts: readonly string[]): Omit<Address, "path"> {
  const values = new Map<string, string>();
  for (let at = 0; at + 1 < parts.length; at += 2) values.set(parts[at]!, parts[at + 1]!);
  const session = [...values].map(([key, value]) => `${key}-${value}`.replaceAll(/[^\w.-]/g, "_")).join(".");
  const tags = [...values].filter(([key]) => key !== "iter" && key !== "group").map((pair) => pair.join("="));
  return {
    session,
    options: { group: wholeNumber(values.get("group")), step: wholeNumber(values.get("iter")), tags },
  };
}

function wholeNumber(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,9}$/.test(text) ? Number(text) : undefined;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
