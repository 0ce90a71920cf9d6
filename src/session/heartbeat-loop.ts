import { APIError, messageOf } from "../errors.js";
import type { HttpClient } from "../transport/index.js";
import { encodeRequest, endpoints } from "../wire/index.js";

export const HEARTBEAT_INTERVAL_MS = 10_000;
export const HEARTBEAT_TIMEOUT_MS = 10_000;

/** How one heartbeat ended. */
export interface Beat {
  /** null when no answer came. */
  status: number | null;
  durationMs: number;
  /** Time since the last heartbeat that the server took, or since the start; 0 after a success. */
  failedForMs: number;
  /** Why it failed. */
  reason?: string | undefined;
}

/** The session of a heartbeat, and its callbacks. */
export interface HeartbeatOptions {
  http: HttpClient;
  sessionId: string;
  /** Called after every heartbeat, in order. A status of 410 is the last one. */
  onBeat: (beat: Beat) => void;
  intervalMs?: number;
  timeoutMs?: number;
}

/** A running heartbeat. */
export interface HeartbeatLoop {
  /** Resolves when nothing of the loop is left. */
  stop(): Promise<void>;
}

/** Sends heartbeats from a timer of this event loop, for platforms without a second thread. */
export async function startHeartbeat(options: HeartbeatOptions): Promise<HeartbeatLoop> {
  const { http, sessionId, onBeat, intervalMs = HEARTBEAT_INTERVAL_MS } = options;
  const { clock } = http;
  const abort = new AbortController();
  let lastSuccessMs = clock.now();
  let cancelTimer = clock.setTimer(() => void beat(), intervalMs, { background: true });

  async function beat(): Promise<void> {
    const startedMs = clock.now();
    const failure = await send();
    if (abort.signal.aborted) return;
    const endedMs = clock.now();
    if (failure === undefined) lastSuccessMs = endedMs;
    onBeat({
      status: failure === undefined ? 200 : failure.status,
      durationMs: endedMs - startedMs,
      failedForMs: endedMs - lastSuccessMs,
      reason: failure?.reason,
    });
    if (failure?.status === 410 || abort.signal.aborted) return;
    const waitMs = Math.max(0, startedMs + intervalMs - endedMs);
    cancelTimer = clock.setTimer(() => void beat(), waitMs, { background: true });
  }

  async function send(): Promise<{ status: number | null; reason: string } | undefined> {
    try {
      const timeout = options.timeoutMs ?? HEARTBEAT_TIMEOUT_MS;
      const request = { timeout, maxRetries: 0, signal: abort.signal };
      await http.exchange({ ...encodeRequest(endpoints.sessionHeartbeat, { sessionId }), ...request });
      return undefined;
    } catch (error) {
      return {
        status: error instanceof APIError ? error.status : null,
        reason: messageOf(error),
      };
    }
  }

  return {
    async stop() {
      abort.abort();
      cancelTimer();
    },
  };
}
