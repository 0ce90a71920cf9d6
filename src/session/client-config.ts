import { APIError, messageOf } from "../errors.js";
import {
  type AuthProvider,
  type HttpClient,
  JwtAuthProvider,
  type SendOptions,
  StaticKeyAuth,
} from "../transport/index.js";
import { PROTOCOL_VERSION } from "../version.js";
import {
  type ClientConfig,
  type ClientDynamicConfig,
  DEFAULT_CLIENT_CONFIG,
  DEFAULT_CLIENT_DYNAMIC_CONFIG,
  type Endpoint,
  endpoints,
} from "../wire/index.js";
import { startupCall } from "./billing-pause.js";

const MIN_REFRESH_INTERVAL_MS = 10_000;
const MAX_REFRESH_INTERVAL_MS = 24 * 3600 * 1000;
const DYNAMIC_CONFIG_TIMEOUT_MS = 10_000;

/** A duration of zero is a meaningful answer; a size or a count of zero would stop the client. */
const MAY_BE_ZERO: ReadonlySet<string> = new Set(["billingExceptionMaxPauseDurationSec"]);

/** The first two steps of every client: ask for the settings, then get the credential that the server needs. */
export async function introduce(http: HttpClient): Promise<ClientConfig> {
  const config = await fetchClientConfig(http);
  installAuth(http, config);
  // A credential the server does not take is better met here than in the middle of the work.
  if (config.pjwtAuthEnabled) await http.auth.token();
  return config;
}

/** Where the server works with JWTs: every request from here on carries one, got in exchange for the credential. */
export function installAuth(http: HttpClient, config: ClientConfig): void {
  if (config.pjwtAuthEnabled) http.auth = new JwtAuthProvider(http, exchangeCredential(http, config));
}

/** A server may ask for the credential command where a plain key is given. */
function exchangeCredential(http: HttpClient, config: ClientConfig): AuthProvider {
  const enforceCommand = config.credentialDefaultSource === "credential_cmd";
  return enforceCommand && http.auth instanceof StaticKeyAuth
    ? http.resolveAuth({ enforceCommand })
    : http.auth;
}

/** The flags of the server; the defaults when it has no such endpoint. */
export async function fetchClientConfig(http: HttpClient): Promise<ClientConfig> {
  return readFlags(DEFAULT_CLIENT_CONFIG, await fetchFlags(http, endpoints.clientConfig, {}));
}

/** The changeable flags of the server; `known` when it has no such endpoint. */
export async function fetchDynamicConfig(
  http: HttpClient,
  options: SendOptions = {},
  known = DEFAULT_CLIENT_DYNAMIC_CONFIG,
): Promise<ClientDynamicConfig> {
  const timed = { timeout: DYNAMIC_CONFIG_TIMEOUT_MS, ...options };
  const flags = await fetchFlags(http, endpoints.dynamicConfig, timed);
  return flags === undefined ? known : readFlags(DEFAULT_CLIENT_DYNAMIC_CONFIG, flags);
}

async function fetchFlags<Flags>(
  http: HttpClient,
  endpoint: Endpoint<typeof endpoints.clientConfig.request.shape, Flags>,
  options: SendOptions,
): Promise<Flags | undefined> {
  try {
    return await startupCall(http, endpoint, { sdkVersion: PROTOCOL_VERSION }, options);
  } catch (error) {
    if (!(error instanceof APIError && error.status === 404)) throw error;
    http.logger.debug(`the server has no ${endpoint.path}; using the default settings`);
    return undefined;
  }
}

/** Takes the flags we know and whose value has the right kind; everything else keeps its default. */
function readFlags<T extends object>(defaults: Readonly<T>, body: unknown): T {
  const given = (typeof body === "object" && body !== null ? body : {}) as Record<string, unknown>;
  const entries = Object.entries(defaults).map(([key, fallback]) => {
    const value = given[key];
    return [key, isUsableFlag(key, value, fallback) ? value : fallback];
  });
  return Object.fromEntries(entries) as T;
}

function isUsableFlag(key: string, value: unknown, fallback: unknown): boolean {
  if (typeof value !== typeof fallback) return false;
  if (typeof value !== "number") return true;
  return Number.isFinite(value) && (value > 0 || (value === 0 && MAY_BE_ZERO.has(key)));
}

/** Keeps the changeable flags fresh in the background; a failed refresh leaves the last good ones in place. */
export class DynamicConfigRefresher {
  readonly #http: HttpClient;
  readonly #abort = new AbortController();
  #current: ClientDynamicConfig;
  #cancelTimer: (() => void) | undefined;

  constructor(http: HttpClient, initial: ClientDynamicConfig) {
    this.#http = http;
    this.#current = initial;
    this.#schedule();
  }

  get current(): ClientDynamicConfig {
    return this.#current;
  }

  stop(): void {
    this.#abort.abort();
    this.#cancelTimer?.();
  }

  #schedule(): void {
    if (this.#abort.signal.aborted) return;
    const wantedMs = this.#current.refreshIntervalSec * 1000;
    const intervalMs = Math.min(Math.max(wantedMs, MIN_REFRESH_INTERVAL_MS), MAX_REFRESH_INTERVAL_MS);
    this.#cancelTimer = this.#http.clock.setTimer(() => void this.#refresh(), intervalMs, {
      background: true,
    });
  }

  async #refresh(): Promise<void> {
    try {
      const options = { maxRetries: 0, signal: this.#abort.signal };
      this.#current = await fetchDynamicConfig(this.#http, options, this.#current);
    } catch (error) {
      const reason = messageOf(error);
      this.#http.logger.debug(`refreshing the client settings failed, the last ones stay: ${reason}`);
    }
    this.#schedule();
  }
}
