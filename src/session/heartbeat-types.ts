import type { HttpClient } from "../transport/index.js";

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

export interface HeartbeatOptions {
  http: HttpClient;
  sessionId: string;
  /** Told of every heartbeat, in order. A status of 410 is the last one. */
  onBeat: (beat: Beat) => void;
  intervalMs?: number;
  timeoutMs?: number;
}

export interface HeartbeatLoop {
  /** Resolves when nothing of the loop is left. */
  stop(): Promise<void>;
}
