import { APIConnectionError, APIError } from "../errors.js";
import { isRetryableStatus } from "../transport/index.js";
import type { FutureContext } from "./context.js";

const MAX_TOTAL_MS = 5 * 60_000;

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
  context: Pick<FutureContext, "clock" | "billing" | "telemetry">,
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
        await context.billing.wait(options.signal);
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
      if (!retryable || leftMs <= 0) throw error;
      mayHaveArrived ||= isDoubtful(error);
      await context.clock.sleep(Math.min(2 ** retries * 1000, 30_000, leftMs), options.signal);
      retries += 1;
    }
  }
}

/** Whether the request that ended so may have reached the server all the same. */
export function isDoubtful(error: unknown): boolean {
  if (error instanceof APIError) return error.status === 408 || error.status >= 500;
  return error instanceof APIConnectionError;
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
