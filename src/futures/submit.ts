import { APIConnectionError, APIError, TinkerError } from "../errors.js";
import { isDoubtful, isRetryableStatus, markDoubtful } from "../transport/index.js";
import type { FutureContext } from "./context.js";
import { linkSignals } from "./link-signals.js";

const MAX_TOTAL_MS = 5 * 60_000;

type SubmitContext = Pick<FutureContext, "clock" | "billing" | "telemetry" | "closed" | "http">;

export interface SubmitOptions {
  signal?: AbortSignal | undefined;
  /** Statuses that this request wants to see at once, whatever the general rule. */
  finalStatuses?: readonly number[];
}

/**
 * Sends a request until the server takes it: on top of the transport's own retries, for up to five minutes.
 * `attempt` is told whether an earlier attempt may have reached the server without our knowing.
 */
export async function submitWithRetries<T>(
  context: SubmitContext,
  attempt: (state: { mayHaveArrived: boolean }) => Promise<T>,
  options: SubmitOptions = {},
): Promise<T> {
  const startedAt = context.clock.now();
  let mayHaveArrived = false;
  for (let retries = 0; ; ) {
    try {
      return await attempt({ mayHaveArrived });
    } catch (error) {
      if (context.billing.shouldPause(error)) {
        await pause(context, options.signal, (signal) => context.billing.wait(signal));
        continue;
      }
      const leftMs = startedAt + MAX_TOTAL_MS - context.clock.now();
      const retryable = isRetryableSubmitError(error, options.finalStatuses ?? []);
      context.telemetry.log("submit.exception", {
        errorType: error instanceof Error ? error.name : typeof error,
        message: error instanceof Error ? error.message : String(error),
        retryable,
        attempt: retries,
      });
      if (!retryable || leftMs <= 0) throw mayHaveArrived ? markDoubtful(error) : error;
      mayHaveArrived ||= isDoubtful(error);
      if (error instanceof Error) context.http.trouble.tell(retries + 1, error);
      const delayMs = Math.min(2 ** retries * 1000, 30_000, leftMs);
      await pause(context, options.signal, (signal) => context.clock.sleep(delayMs, signal));
      retries += 1;
    }
  }
}

/** Waits between two tries, but not longer than the caller wants or the client lives. */
async function pause(
  context: SubmitContext,
  userSignal: AbortSignal | undefined,
  wait: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const link = linkSignals(context.closed, userSignal);
  try {
    await wait(link.signal);
  } catch (error) {
    throw link.signal.reason instanceof TinkerError ? link.signal.reason : error;
  } finally {
    link.release();
  }
}

function isRetryableSubmitError(error: unknown, finalStatuses: readonly number[]): boolean {
  if (error instanceof APIConnectionError) return true;
  return (
    error instanceof APIError &&
    !finalStatuses.includes(error.status) &&
    error.headers.get("x-should-retry") !== "false" &&
    isRetryableStatus(error.status)
  );
}
