import { TinkerError } from "../../errors.js";
import { type Clock, timeLimit, untilAborted } from "../../transport/index.js";

/** A sample, an episode or a grade exceeded its time limit. */
export class RolloutTimeoutError extends TinkerError {
  override readonly name = "RolloutTimeoutError";
}

/** Result of the work, or an error if it takes longer or the signal aborts, even if the work ignores the signal. */
export async function withinTime<T>(
  what: string,
  timeoutMs: number | undefined,
  { signal, clock }: { readonly signal?: AbortSignal | undefined; readonly clock?: Clock | undefined },
  work: (signal: AbortSignal) => T | Promise<T>,
): Promise<T> {
  const tooLong = () => new RolloutTimeoutError(`${what} took more than ${timeoutMs} ms.`);
  const time = timeLimit(timeoutMs, signal, tooLong, clock);
  try {
    return await untilAborted(
      settled(() => work(time.signal)),
      time.signal,
    );
  } catch (error) {
    throw time.isOver ? time.signal.reason : error;
  } finally {
    time.end();
  }
}

/** Turns an error thrown synchronously into a rejection. */
export async function settled<T>(work: () => T | Promise<T>): Promise<T> {
  return await work();
}
