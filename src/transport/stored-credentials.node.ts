import { TinkerError } from "../errors.js";
import { HOSTED_BASE_URL } from "./auth.js";
import { isLoopbackHost } from "./request-encoding.js";

/** Where `auth login`, of this command line and of the official one, keeps keys. */
export function storedCredentialsPath(): string {
  const { homedir } = process.getBuiltinModule("node:os");
  return `${homedir()}/.tinker/credentials.json`;
}

/** Parses the file without checking its shape. Errors of the file system are thrown as they are. */
export function readStoredCredentials(): unknown {
  // Not imported at the top: as a module, node:fs alone costs several milliseconds of start-up time.
  const { readFileSync } = process.getBuiltinModule("node:fs");
  const path = storedCredentialsPath();
  const text = readFileSync(path, "utf8");
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // Not the parser's own words: they quote the file.
    throw new TinkerError(
      `${path} is not valid JSON. Move it away and store the key again with \`tinkerts auth login\`.`,
    );
  }
}

/** The part of the file that says which key is for which server. */
export interface StoredKeys {
  readonly default?: string | null | undefined;
  readonly keys?: Readonly<Record<string, { readonly key?: unknown; readonly base_url?: unknown } | null>>;
}

/** The address each stored key is for, by its id. The default key of a file without addresses is the hosted service's. */
export function storedAddresses({ default: chosen, keys = {} }: StoredKeys): Map<string, string> {
  return new Map(
    Object.entries(keys).flatMap(([keyId, record]) => {
      const address = record?.base_url ?? (keyId === chosen ? HOSTED_BASE_URL : undefined);
      return typeof address === "string" ? [[keyId, address]] : [];
    }),
  );
}

/** The id of the key that was stored for a server; undefined also where it would travel unencrypted to another machine. */
export function storedKeyId(stored: StoredKeys, baseURL: string): string | undefined {
  if (!isPrivateRoute(baseURL)) return undefined;
  return [...storedAddresses(stored)].find(([, address]) => address === baseURL)?.[0];
}

/** Whether requests to this address cannot be read on the network. */
export function isPrivateRoute(baseURL: string): boolean {
  const { protocol, hostname } = new URL(baseURL);
  return protocol === "https:" || isLoopbackHost(hostname);
}
