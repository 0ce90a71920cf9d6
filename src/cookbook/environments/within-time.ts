import { TinkerError } from "../../errors.js";
import { type Clock, timeLimit, untilAborted } from "../../transport/index.js";

/** A sample, an episode or a grade took longer than it may. */
export class RolloutTimeoutError extends TinkerError {
  override readonly name = "RolloutTimeoutError";
}

/** What the work comes to; an error when it takes longer, or as soon as the signal aborts, whether it listens or not. */
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

/** What is thrown at once becomes a rejection too. */
export async function settled<T>(work: () => T | Promise<T>): Promise<T> {
  return await work();
}
