import { TinkerError, ValidationError } from "../errors.js";
import type { Platform } from "./platform-types.js";

/** Where a credential was found. */
export type CredentialSource = "apiKey" | "TINKER_API_KEY" | "TINKER_CREDENTIAL_CMD" | "stored key" | "none";

/** Where the credential of a request comes from. */
export interface AuthProvider {
  readonly source?: CredentialSource;
  /** The value for X-API-Key, asked before every attempt; undefined sends none. */
  token(): Promise<string | undefined> | string | undefined;
  close?(): void;
}

/** A key, or a function that returns the one to use now. */
export type APIKeyOption = string | (() => string | Promise<string>);

/** Where the hosted service is. */
export const HOSTED_BASE_URL = "https://tinker.thinkingmachines.dev/services/tinker-prod";

/** A key that never changes. */
export class StaticKeyAuth implements AuthProvider {
  readonly apiKey: string;
  readonly source: CredentialSource;

  constructor(apiKey: string, source: CredentialSource = "apiKey") {
    this.apiKey = apiKey;
    this.source = source;
  }

  token(): string {
    return this.apiKey;
  }
}

/** For servers that need no credential. */
export const noAuth: AuthProvider = { source: "none", token: () => undefined };

function keyFunctionAuth(keyFunction: () => string | Promise<string>): AuthProvider {
  return {
    source: "apiKey",
    async token() {
      const key: unknown = await keyFunction();
      if (typeof key === "string" && key.trim() !== "") return key.trim();
      throw new TinkerError("The apiKey function must return a key, a non-empty string.");
    },
  };
}

function commandAuth(command: string, platform: Platform): AuthProvider {
  return {
    source: "TINKER_CREDENTIAL_CMD",
    async token() {
      if (platform.runCommand === undefined) {
        throw new TinkerError(
          "TINKER_CREDENTIAL_CMD is set, but this runtime cannot run commands. Pass apiKey.",
        );
      }
      const credential = (await platform.runCommand(command)).trim();
      if (credential === "") throw new TinkerError("TINKER_CREDENTIAL_CMD printed no credential.");
      return credential;
    },
  };
}

/** Where a credential may come from. */
export interface CredentialSources {
  readonly apiKey: APIKeyOption | undefined;
  readonly baseURL: string;
  readonly platform: Platform;
  /** The organisation requires TINKER_CREDENTIAL_CMD: a plain key no longer counts. */
  readonly enforceCommand?: boolean;
}

/**
 * Chooses the credential: a key function or JWT given by the caller, else the enforced command, else the key
 * (apiKey, TINKER_API_KEY), else TINKER_CREDENTIAL_CMD, else the key that `auth login` stored for this server.
 */
export function resolveAuth(sources: CredentialSources): AuthProvider {
  const { apiKey, platform } = sources;
  if (typeof apiKey === "function") return keyFunctionAuth(apiKey);
  if (apiKey !== undefined && typeof apiKey !== "string") {
    throw new ValidationError("apiKey", `apiKey must be a string or a function, got ${typeof apiKey}`);
  }
  const key = (apiKey || platform.env("TINKER_API_KEY") || "").trim();
  const source = apiKey ? "apiKey" : "TINKER_API_KEY";
  const command = platform.env("TINKER_CREDENTIAL_CMD") || undefined;
  if (key.startsWith("eyJ")) return new StaticKeyAuth(key, source);
  if (sources.enforceCommand) {
    if (command !== undefined) return commandAuth(command, platform);
    throw new TinkerError(
      "Your organization requires dynamic credentials: set TINKER_CREDENTIAL_CMD to a command that prints one.",
    );
  }
  const hosted = sources.baseURL === HOSTED_BASE_URL;
  const usable = key !== "" && (!hosted || key.startsWith("tml-"));
  if (usable) return new StaticKeyAuth(key, source);
  if (command !== undefined) return commandAuth(command, platform);
  if (key !== "") {
    throw new ValidationError(
      "apiKey",
      'The API key must start with "tml-" (or be a JWT, which starts with "eyJ").',
    );
  }
  const stored = platform.readStoredCredential?.(sources.baseURL);
  if (stored !== undefined) return new StaticKeyAuth(stored, "stored key");
  // Self-hosted servers (SkyRL, the built-in backend) know no keys.
  if (!hosted) return noAuth;
  throw new TinkerError(
    "No API key: pass the apiKey option, set TINKER_API_KEY, or store a key with `tinkerts auth login`.",
  );
}
