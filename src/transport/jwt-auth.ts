import { TinkerError } from "../errors.js";
import type { AuthProvider } from "./auth.js";
import type { Clock } from "./clock.js";
import type { Logger } from "./logger.js";
import type { APIRequest, APIResponse } from "./types.js";

const REFRESH_BEFORE_EXPIRY_MS = 300_000;
const REFRESH_ON_DEMAND_MS = 60_000;
const PAUSE_AFTER_FAILURE_MS = 60_000;
const SHORTEST_REFRESH_MS = 5_000;

/** The claims of a JWT, not verified: it came from the server over TLS. */
export function jwtClaims(jwt: string): Record<string, unknown> {
  try {
    const payload = (jwt.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/");
    const bytes = Uint8Array.from(atob(payload), (character) => character.charCodeAt(0));
    const claims: unknown = JSON.parse(new TextDecoder().decode(bytes));
    if (typeof claims === "object" && claims !== null) return claims as Record<string, unknown>;
  } catch {
    // The parser's own message would quote the token.
  }
  throw new TinkerError("The token is not a JWT whose claims can be read.");
}

/** The part of HttpClient that the exchange needs. */
export interface TokenExchanger {
  readonly clock: Clock;
  readonly logger: Logger;
  exchange(request: APIRequest): Promise<APIResponse>;
}

/** Exchanges a credential for a short-lived JWT and keeps it fresh. */
export class JwtAuthProvider implements AuthProvider {
  readonly #http: TokenExchanger;
  readonly #credential: AuthProvider;
  #jwt: string | undefined;
  #expiresAtMs = 0;
  #refreshing: Promise<string> | undefined;
  #failedAtMs = Number.NEGATIVE_INFINITY;
  #cancelTimer: (() => void) | undefined;
  #closed = false;

  constructor(http: TokenExchanger, credential: AuthProvider) {
    this.#http = http;
    this.#credential = credential;
  }

  async token(): Promise<string> {
    const jwt = this.#jwt;
    if (jwt === undefined) return this.#refresh();
    const leftMs = this.#expiresAtMs - this.#http.clock.wallNow();
    if (leftMs > REFRESH_ON_DEMAND_MS) return jwt;
    // A token that still works is used while a failing server is left in peace.
    const pausing = this.#http.clock.now() - this.#failedAtMs < PAUSE_AFTER_FAILURE_MS;
    if (leftMs > 0 && pausing) return jwt;
    try {
      return await this.#refresh();
    } catch (error) {
      this.#http.logger.warn(`Refreshing the JWT failed, the old one is used: ${String(error)}`);
      return jwt;
    }
  }

  /** The claims of the current JWT; the token is fetched when there is none yet. */
  async claims(): Promise<Record<string, unknown>> {
    return jwtClaims(await this.token());
  }

  close(): void {
    this.#closed = true;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#credential.close?.();
  }

  #refresh(): Promise<string> {
    this.#refreshing ??= this.#exchange().finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #exchange(): Promise<string> {
    try {
      const response = await this.#http.exchange({
        method: "POST",
        path: "/api/v1/auth/token",
        pool: "session",
        expect: "json",
        auth: this.#credential,
      });
      const answer = response.json() as { jwt?: unknown } | null | undefined;
      if (typeof answer?.jwt !== "string" || answer.jwt === "") {
        throw new TinkerError(
          'POST /api/v1/auth/token must answer with {"jwt": "…"}, but the answer had no jwt.',
        );
      }
      this.#jwt = answer.jwt;
      this.#expiresAtMs = expiryMs(answer.jwt) ?? 0;
      this.#failedAtMs = Number.NEGATIVE_INFINITY;
      this.#schedule(this.#delayToNextRefreshMs());
      return answer.jwt;
    } catch (error) {
      this.#failedAtMs = this.#http.clock.now();
      if (this.#jwt !== undefined) this.#schedule(PAUSE_AFTER_FAILURE_MS);
      throw error;
    }
  }

  #delayToNextRefreshMs(): number {
    const leftMs = this.#expiresAtMs - this.#http.clock.wallNow();
    if (this.#expiresAtMs === 0) return PAUSE_AFTER_FAILURE_MS;
    // A token that expires within the margin must not make us ask without pause.
    return leftMs > REFRESH_BEFORE_EXPIRY_MS + SHORTEST_REFRESH_MS
      ? leftMs - REFRESH_BEFORE_EXPIRY_MS
      : Math.max(leftMs / 2, SHORTEST_REFRESH_MS);
  }

  #schedule(delayMs: number): void {
    this.#cancelTimer?.();
    if (this.#closed) return;
    this.#cancelTimer = this.#http.clock.setTimer(
      () => {
        this.#refresh().catch((error: unknown) => {
          this.#http.logger.debug(`Refreshing the JWT failed, next try in 60 s: ${String(error)}`);
        });
      },
      delayMs,
      { background: true },
    );
  }
}

function expiryMs(jwt: string): number | undefined {
  try {
    const seconds = Number(jwtClaims(jwt)["exp"]);
    return Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : undefined;
  } catch {
    return undefined;
  }
}
