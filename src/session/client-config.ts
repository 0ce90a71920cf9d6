import { APIError } from "../errors.js";
import type { CallOptions, HttpClient } from "../transport/index.js";
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

/** The flags of the server; the defaults when it has no such endpoint. */
export async function fetchClientConfig(http: HttpClient): Promise<ClientConfig> {
  return readFlags(DEFAULT_CLIENT_CONFIG, await fetchFlags(http, endpoints.clientConfig, {}));
}

/** The changeable flags of the server; the defaults when it has no such endpoint. */
export async function fetchDynamicConfig(http: HttpClient): Promise<ClientDynamicConfig> {
  const flags = await fetchFlags(http, endpoints.dynamicConfig, { timeout: DYNAMIC_CONFIG_TIMEOUT_MS });
  return readFlags(DEFAULT_CLIENT_DYNAMIC_CONFIG, flags);
}

async function fetchFlags<Flags>(
  http: HttpClient,
  endpoint: Endpoint<typeof endpoints.clientConfig.request.shape, Flags>,
  options: CallOptions,
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
export function readFlags<T extends object>(defaults: Readonly<T>, body: unknown): T {
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
      const flags = await fetchFlags(this.#http, endpoints.dynamicConfig, {
        timeout: DYNAMIC_CONFIG_TIMEOUT_MS,
        maxRetries: 0,
        signal: this.#abort.signal,
      });
      if (flags !== undefined) this.#current = readFlags(DEFAULT_CLIENT_DYNAMIC_CONFIG, flags);
    } catch (error) {
      this.#http.logger.debug(
        `refreshing the client settings failed, the last ones stay: ${error instanceof Error ? error.message : String(error)}`,
      );
    }
    this.#schedule();
  }
}
