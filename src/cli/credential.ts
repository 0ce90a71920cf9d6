import { platform } from "#platform";
import { type AuthProvider, type CredentialSource, HOSTED_BASE_URL, resolveAuth } from "../transport/auth.js";
import { normalizeBaseURL } from "../transport/request-encoding.js";
import type { GlobalOptions } from "./global-options.js";

/** The server that a command speaks to; what is no URL stays as it was given. */
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

/** The credential that clients find for that server. Throws where one is needed and there is none. */
export function credentialOf(options: Pick<GlobalOptions, "baseURL" | "apiKey">): AuthProvider {
  return resolveAuth({ apiKey: options.apiKey, baseURL: normalizeBaseURL(serverURL(options)), platform });
}

/** Where a key comes from, to be put behind the word "key". */
export const CREDENTIAL_PLACES: Readonly<Record<Exclude<CredentialSource, "none">, string>> = {
  apiKey: "from --api-key",
  TINKER_API_KEY: "from TINKER_API_KEY",
  TINKER_CREDENTIAL_CMD: "printed by the command in TINKER_CREDENTIAL_CMD",
  "stored key": "stored in ~/.tinker/credentials.json",
};

/** The variable that goes before the stored key, where one is set. */
export function variableInUse(): string | undefined {
  return ["TINKER_API_KEY", "TINKER_CREDENTIAL_CMD"].find((name) => process.env[name]);
}
