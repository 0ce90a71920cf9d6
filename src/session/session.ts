import { APIError, messageOf, TinkerError } from "../errors.js";
import { type ExchangeHook, type HttpClient, platform, requestTo } from "../transport/index.js";
import {
  type ClientConfig,
  type ClientDynamicConfig,
  DEFAULT_CLIENT_DYNAMIC_CONFIG,
  endpoints,
  type SessionFinishStatus,
} from "../wire/index.js";
import { DynamicConfigRefresher, fetchDynamicConfig, installAuth, introduce } from "./client-config.js";
import { type ClientSessionOptions, createSession } from "./create-session.js";
import type { Beat, HeartbeatLoop } from "./heartbeat-loop.js";
import { ClientMetrics } from "./metrics.js";
import { Telemetry, telemetryEnabled } from "./telemetry.js";
import { loadTraceContextHook } from "./trace-context.js";

/** Plain data with which another thread or process can use a session; carries no credential. */
export interface AttachOptions {
  sessionId: string;
  config: ClientConfig;
  dynamicConfig: ClientDynamicConfig;
}

const HEARTBEAT_WARNING_MS = 120_000;
const FINISH_TIMEOUT_MS = 10_000;
const FINISH_MAX_RETRIES = 2;

/** Hooks of a session on its HttpClient, with a way to remove them. */
interface Preparation {
  metrics: ClientMetrics;
  undo(): void;
}

interface SessionParts {
  http: HttpClient;
  preparation: Preparation;
  config: ClientConfig;
  dynamicConfig: ClientDynamicConfig;
  id: string | undefined;
  /** True when this object created the session, and so keeps it alive and ends it. */
  owned: boolean;
}

/** One client's relation with the server, from its first request to its last. */
export class Session {
  readonly http: HttpClient;
  /** undefined for clients that only read and manage, which need no session. */
  readonly id: string | undefined;
  readonly config: ClientConfig;
  readonly metrics: ClientMetrics;
  readonly telemetry: Telemetry;
  readonly #preparation: Preparation;
  readonly #owned: boolean;
  readonly #dynamicConfig: ClientDynamicConfig;
  /** Absent without a session: nothing long-lived depends on the changeable settings then. */
  readonly #refresher: DynamicConfigRefresher | undefined;
  readonly #lostCallbacks = new Set<() => void>();
  #heartbeat: HeartbeatLoop | undefined;
  #nextModelSeqId = 0;
  #nextSamplingSessionSeqId = 0;
  #nextCustomLossSeqId = 0;
  #finished = false;
  #heartbeatWarned = false;
  #closing: Promise<void> | undefined;

  private constructor(parts: SessionParts) {
    const { http, preparation } = parts;
    this.#preparation = preparation;
    this.#owned = parts.owned;
    this.#dynamicConfig = parts.dynamicConfig;
    this.http = http;
    this.id = parts.id;
    this.config = parts.config;
    this.metrics = preparation.metrics;
    this.telemetry = new Telemetry({
      http,
      metrics: preparation.metrics,
      enabled: telemetryEnabled(platform.env("TINKER_TELEMETRY")),
      platform: new Headers(platform.userAgentHeaders()).get("x-stainless-os") ?? "Unknown",
      sessionId: parts.id,
      ownsSession: parts.owned,
    });
    if (parts.id !== undefined) this.#refresher = new DynamicConfigRefresher(http, parts.dynamicConfig);
  }

  /** Settings, credential, changeable settings, a new session, its heartbeat: in this order. */
  static open(
    http: HttpClient,
    options: ClientSessionOptions = {},
    metrics = new ClientMetrics(),
  ): Promise<Session> {
    return prepared(http, metrics, async (preparation) => {
      const config = await introduce(http);
      const dynamicConfig = await fetchDynamicConfig(http);
      const { startHeartbeat } = await import("#heartbeat");
      const id = await createSession(http, options);
      const session = new Session({ http, preparation, config, dynamicConfig, id, owned: true });
      const onBeat = (beat: Beat) => session.#onBeat(id, beat);
      session.#heartbeat = await startHeartbeat({ http, sessionId: id, onBeat });
      return session;
    });
  }

  /** Settings and credential alone: no session is created. */
  static connect(http: HttpClient, metrics = new ClientMetrics()): Promise<Session> {
    return prepared(http, metrics, async (preparation) => {
      const config = await introduce(http);
      const dynamicConfig = DEFAULT_CLIENT_DYNAMIC_CONFIG;
      return new Session({ http, preparation, config, dynamicConfig, id: undefined, owned: false });
    });
  }

  /** Uses a session that was opened elsewhere, where it is also kept alive and ended. Sends nothing yet. */
  static attach(http: HttpClient, options: AttachOptions): Promise<Session> {
    return prepared(http, new ClientMetrics(), async (preparation) => {
      const { sessionId: id, config, dynamicConfig } = options;
      installAuth(http, config);
      return new Session({ http, preparation, config, dynamicConfig, id, owned: false });
    });
  }

  /** The latest changeable settings: read it at each use, it is replaced in the background. */
  get dynamicConfig(): ClientDynamicConfig {
    return this.#refresher?.current ?? this.#dynamicConfig;
  }

  /** True once the server has said that the session is over. */
  get finished(): boolean {
    return this.#finished;
  }

  /** Calls back once if the server ends the session; the returned function unsubscribes. */
  onLost(callback: () => void): () => void {
    this.#lostCallbacks.add(callback);
    return () => {
      this.#lostCallbacks.delete(callback);
    };
  }

  nextModelSeqId(): number {
    this.#requireOwned("models");
    return this.#nextModelSeqId++;
  }

  nextSamplingSessionSeqId(): number {
    this.#requireOwned("sampling sessions");
    return this.#nextSamplingSessionSeqId++;
  }

  nextCustomLossSeqId(): number {
    this.#requireOwned("custom losses");
    return this.#nextCustomLossSeqId++;
  }

  /** Tells the server how the session ended, drains telemetry and releases everything; never rejects. */
  close(status: SessionFinishStatus = "success", detail?: string): Promise<void> {
    this.#closing ??= this.#close(status, detail);
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(status: SessionFinishStatus, detail: string | undefined): Promise<void> {
    this.#refresher?.stop();
    await this.#heartbeat?.stop();
    if (this.#owned && !this.#finished) await this.#finish(status, detail);
    this.#finished ||= this.#owned;
    await this.telemetry.close();
    this.#lostCallbacks.clear();
    this.#preparation.undo();
    await this.http.close();
  }

  async #finish(status: SessionFinishStatus, detail: string | undefined): Promise<void> {
    try {
      const ending = { sessionId: this.id ?? "", reason: { type: status }, detail };
      const limits = { timeout: FINISH_TIMEOUT_MS, maxRetries: FINISH_MAX_RETRIES };
      await this.http.exchange(requestTo(endpoints.finishSession, ending, limits));
    } catch (error) {
      const message = `telling the server that session ${this.id} ended failed: ${messageOf(error)}`;
      // Servers that do not keep a finish reason, and sessions that already have one, do not matter.
      const expected = error instanceof APIError && [404, 405, 409, 410].includes(error.status);
      if (expected) this.http.logger.debug(message);
      else this.http.logger.warn(message);
    }
  }

  #onBeat(sessionId: string, beat: Beat): void {
    if (beat.status === 410) {
      this.#finished = true;
      this.http.logger.warn(`session ${sessionId} has finished on the server; its heartbeat stops`);
      for (const callback of this.#lostCallbacks) callback();
      this.#lostCallbacks.clear();
    } else if (beat.failedForMs === 0) {
      this.#heartbeatWarned = false;
    } else if (beat.failedForMs >= HEARTBEAT_WARNING_MS && !this.#heartbeatWarned) {
      this.#heartbeatWarned = true;
      this.http.logger.warn(
        `the heartbeat of session ${sessionId} has failed for ${Math.round(beat.failedForMs / 1000)} s ` +
          `(last: ${beat.reason ?? "no reason known"}); if this continues, the server will end the session. ` +
          "Check the connection to the server.",
      );
    }
  }

  #requireOwned(what: string): void {
    if (this.#owned) return;
    throw new TinkerError(
      this.id === undefined
        ? `This client has no session, so it cannot create ${what}; use a ServiceClient.`
        : `Session ${this.id} belongs to another client, which alone can create ${what} in it.`,
    );
  }
}

/** Measuring and tracing begin before the first request; a start that fails leaves the HttpClient as it was. */
async function prepared(
  http: HttpClient,
  metrics: ClientMetrics,
  start: (preparation: Preparation) => Promise<Session>,
): Promise<Session> {
  const traceHook = await loadTraceContextHook();
  const hooks: ExchangeHook[] = [{ afterExchange: (event) => metrics.recordExchange(event) }];
  if (traceHook !== undefined) hooks.push(traceHook);
  http.hooks.push(...hooks);
  const credential = http.auth;
  const undo = () => {
    for (const hook of hooks) {
      const place = http.hooks.indexOf(hook);
      if (place >= 0) http.hooks.splice(place, 1);
    }
    if (http.auth === credential) return;
    http.auth.close?.();
    http.auth = credential;
  };
  try {
    return await start({ metrics, undo });
  } catch (error) {
    undo();
    throw error;
  }
}
