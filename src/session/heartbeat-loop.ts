import { APIError } from "../errors.js";
import { encodeRequest, endpoints } from "../wire/index.js";
import {
  HEARTBEAT_INTERVAL_MS,
  HEARTBEAT_TIMEOUT_MS,
  type HeartbeatLoop,
  type HeartbeatOptions,
} from "./heartbeat-types.js";

/** Heartbeats from a timer of this event loop: right wherever there is no second thread to send them from. */
export async function startHeartbeat(options: HeartbeatOptions): Promise<HeartbeatLoop> {
  const { http, sessionId, onBeat } = options;
  const { clock } = http;
  const intervalMs = options.intervalMs ?? HEARTBEAT_INTERVAL_MS;
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
        reason: error instanceof Error ? error.message : String(error),
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
