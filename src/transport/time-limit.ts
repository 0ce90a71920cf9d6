import { onAbort } from "./abort.js";
import { type Clock, systemClock } from "./clock.js";

/** A signal for something that may take so long. */
export interface TimeLimit {
  readonly signal: AbortSignal;
  /** True once it was the time that aborted the signal. */
  readonly isOver: boolean;
  /** Gives back the timer and the listener. */
  end(): void;
  /** Ends it, and all work that listens to its signal. */
  abort(reason: Error): void;
}

/** Its signal aborts with `source`, and with an error of `tooLong` when the time is over; without a time only with the source. */
export function timeLimit(
  timeoutMs: number | undefined,
  source: AbortSignal | undefined,
  tooLong: () => Error,
  clock: Clock = systemClock,
): TimeLimit {
  const controller = new AbortController();
  let isOver = false;
  const abortWithSource = () => controller.abort(source?.reason);
  const expire = () => {
    isOver = !controller.signal.aborted;
    if (isOver) controller.abort(tooLong());
  };
  if (source?.aborted) abortWithSource();
  const unsubscribe = onAbort(source, abortWithSource);
  const cancelTimer = timeoutMs === undefined ? () => {} : clock.setTimer(expire, timeoutMs);
  const end = () => {
    cancelTimer();
    unsubscribe();
  };
  return {
    signal: controller.signal,
    get isOver() {
      return isOver;
    },
    end,
    abort: (reason) => {
      end();
      controller.abort(reason);
    },
  };
}
