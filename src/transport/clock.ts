import { abortError, onAbort } from "./abort.js";

/** Time as the SDK sees it; injected, so that tests decide when it passes. */
export interface Clock {
  /** Monotonic milliseconds: for durations and deadlines. */
  now(): number;
  /** Milliseconds since 1970: for dates that travel. */
  wallNow(): number;
  /** Resolves after `delayMs`; rejects with APIUserAbortError as soon as the signal aborts. */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
  /** Calls back once after `delayMs`; the returned function cancels. A background timer keeps no process alive. */
  setTimer(callback: () => void, delayMs: number, options?: TimerOptions): () => void;
}

/** How a timer behaves besides firing. */
export interface TimerOptions {
  readonly background?: boolean;
}

/** `sleep` over any `setTimer`: whichever side wins removes the other's timer or listener. */
export function sleepWith(
  setTimer: Clock["setTimer"],
  delayMs: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  if (signal === undefined) {
    return new Promise((resolve) => {
      setTimer(resolve, delayMs);
    });
  }
  if (signal.aborted) return Promise.reject(abortError(signal));
  return new Promise((resolve, reject) => {
    const cancelTimer = setTimer(() => {
      unsubscribe();
      resolve();
    }, delayMs);
    const unsubscribe = onAbort(signal, () => {
      cancelTimer();
      reject(abortError(signal));
    });
  });
}

// setTimeout fires at once when asked for more than this.
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** The time of this machine. */
export const systemClock: Clock = {
  now: () => performance.now(),
  wallNow: () => Date.now(),
  sleep: (delayMs, signal) => sleepWith(systemClock.setTimer, delayMs, signal),
  setTimer(callback, delayMs, options) {
    const timer: unknown = setTimeout(callback, Math.min(Math.max(delayMs, 0), MAX_TIMEOUT_MS));
    if (options?.background && typeof timer === "object" && timer !== null && "unref" in timer) {
      (timer as { unref(): void }).unref();
    }
    return () => clearTimeout(timer as ReturnType<typeof setTimeout>);
  },
};
