import { onAbort } from "./abort.js";
import { type Clock, systemClock } from "./clock.js";

/** A signal for something that may take so long. */
export interface TimeLimit {
  readonly signal: AbortSignal;
  /** True once it was the time that aborted the signal. */
  readonly isOver: boolean;
  /** Gives back the timer and the listener. */
  end(): void;
  /** Ends it, and whatever still goes on under its signal. */
  abort(reason: Error): void;
}

/** Its signal aborts with `source`, and with `reason` when the time is over; without a time only with the source. */
export function timeLimit(
  timeoutMs: number | undefined,
  source: AbortSignal | undefined,
  reason: Error,
  clock: Clock = systemClock,
): TimeLimit {
  const controller = new AbortController();
  const abortWithSource = () => controller.abort(source?.reason);
  if (source?.aborted) abortWithSource();
  const unsubscribe = onAbort(source, abortWithSource);
  const cancelTimer =
    timeoutMs === undefined ? () => {} : clock.setTimer(() => controller.abort(reason), timeoutMs);
  const end = () => {
    cancelTimer();
    unsubscribe();
  };
  return {
    signal: controller.signal,
    get isOver() {
      return controller.signal.reason === reason;
    },
    end,
    abort: (why) => {
      end();
      controller.abort(why);
    },
  };
}
