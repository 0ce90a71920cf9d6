// Time that passes faster than it does, so that a back-off of a minute does not cost a test one.
import { sleepWith } from "../../../dist/transport/clock.js";

/** Ten times as fast: timeouts keep their distance from what a busy machine takes for a request. */
const SPEED = 10;
/** Waits between tries, which only cost time here, are ten times shorter still. */
const SLEEP_SPEED = 100;
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

/** A `clock` for the SDK and for the backend. */
export function scaledClock() {
  const startedMs = performance.now();
  const startedWallMs = Date.now();
  const now = () => (performance.now() - startedMs) * SPEED;
  const timerAt = (speed) => (callback, delayMs, options) => {
    const timer = setTimeout(callback, Math.min(Math.max(delayMs / speed, 0), LONGEST_TIMEOUT_MS));
    if (options?.background) timer.unref();
    return () => clearTimeout(timer);
  };
  return {
    now,
    wallNow: () => startedWallMs + now(),
    setTimer: timerAt(SPEED),
    sleep: (delayMs, signal) => sleepWith(timerAt(SLEEP_SPEED), delayMs, signal),
  };
}
