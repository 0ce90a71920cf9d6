import { platform } from "#platform";
import { type AuthProvider, type CredentialSource, HOSTED_BASE_URL, resolveAuth } from "../transport/auth.js";
import { normalizeBaseURL } from "../transport/request-encoding.js";
import {
  isPrivateRoute,
  readStoredCredentials,
  type StoredKeys,
  storedAddresses,
} from "../transport/stored-credentials.node.js";
import type { GlobalOptions } from "./global-options.js";

/** The address of the server that a command uses; an invalid URL is returned unchanged. */
export function serverURL({ baseURL }: Pick<GlobalOptions, "baseURL">): string {
  const given = baseURL || process.env["TINKER_BASE_URL"] || HOSTED_BASE_URL;
  try {
    return normalizeBaseURL(given);
  } catch {
    return given;
  }
}

/** Whether that server is the hosted service. */
export function isHosted(options: Pick<GlobalOptions, "baseURL">): boolean {
  return serverURL(options) === HOSTED_BASE_URL;
}

/** The credential for a server. Throws if one is needed and none is found. */
export function credentialOf(options: Pick<GlobalOptions, "baseURL" | "apiKey">): AuthProvider {
  return resolveAuth({ apiKey: options.apiKey, baseURL: normalizeBaseURL(serverURL(options)), platform });
}

/** The servers with a stored key; empty if the file is missing or broken. */
export function serversWithKeys(): readonly string[] {
  try {
    return [...storedAddresses((readStoredCredentials() ?? {}) as StoredKeys).values()];
  } catch {
    return [];
  }
}

/** Says how to set the key of a server, and why no stored key is used. */
export function missingKeyAdvice(options: Pick<GlobalOptions, "baseURL">): string {
  const server = serverURL(options);
  const login = isHosted(options) ? "" : ` --base-url ${server}`;
  const ways = [
    ...(isPrivateRoute(server) ? [`store one with \`tinkerts auth login${login}\``] : []),
    "set TINKER_API_KEY",
  ];
  const others = serversWithKeys().filter((address) => address !== server);
  const kept =
    others.length === 0 ? "" : ` (the stored key for ${others.join(", ")} is not sent to other servers)`;
  return `${ways.join(", ")} or give --api-key${kept}`;
}

/** Source of the key, as text to put after the word "key". */
export const CREDENTIAL_PLACES: Readonly<Record<Exclude<CredentialSource, "none">, string>> = {
  apiKey: "from --api-key",
  TINKER_API_KEY: "from TINKER_API_KEY",
  TINKER_CREDENTIAL_CMD: "printed by the command in TINKER_CREDENTIAL_CMD",
  "stored key": "stored in ~/.tinker/credentials.json",
};

/** The environment variable that overrides the stored key, if one is set. */
export function variableInUse(): string | undefined {
  return ["TINKER_API_KEY", "TINKER_CREDENTIAL_CMD"].find((name) => process.env[name]);
}
