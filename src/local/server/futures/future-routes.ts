import type { CompleteMetadataResponse, TryAgainResponse } from "../../../wire/endpoints/futures.js";
import { endpoints } from "../../../wire/endpoints/index.js";
import { toWireJson } from "../../../wire/json-keys.js";
import { HttpError, isPythonSdk } from "../http/http-error.js";
import { type Call, type Identity, mayAccess, type Route } from "../http/route.js";
import type { Future, FutureStore, Outcome } from "./future-store.js";

/** Clients give a poll 45 s. */
export const MAX_LONG_POLL_MS = 25_000;
// Sooner when something holds the queue up, so that it can be shown; not at once, or clients would spin.
const MAX_BLOCKED_POLL_MS = 3_000;

/** Is told of polls: they are signs of life. */
interface PollWatcher {
  whilePolling<T>(requestId: string, signal: AbortSignal, poll: () => Promise<T>): Promise<T>;
}

/** Results, one at a time, by long polls. */
export function addFutureRoutes(
  route: Route,
  services: {
    readonly futures: FutureStore;
    /** Results above this are announced by size first when the client allows it. */
    readonly limits: { readonly inlineResultBytes: number };
    /** Tells the session of a request that somebody waits for it. */
    readonly sessions: PollWatcher & { noteSeen(requestId: string): void };
    /** Tells the same to samples that are of no session. */
    readonly sampleRuns: PollWatcher;
    /** Whether somebody may have sent a request that is no longer known. */
    readonly maySend: (identity: Identity, requestId: string) => boolean;
  },
): void {
  const { futures, limits, sessions, sampleRuns, maySend } = services;

  route(endpoints.retrieveFuture, async ({ requestId, allowMetadataOnly }, call) => {
    const future = find(call.get("identity"), requestId);
    const { signal } = call.req.raw;
    const wait = async () => {
      if (future.queueInfo().state !== "active") await futures.wait(future, MAX_BLOCKED_POLL_MS, signal);
      if (future.queueInfo().state === "active") await futures.wait(future, MAX_LONG_POLL_MS, signal);
    };
    await sessions.whilePolling(requestId, signal, () => sampleRuns.whilePolling(requestId, signal, wait));
    if (future.outcome !== undefined) return answer(call, future, future.outcome, allowMetadataOnly);
    const { state, reason } = future.queueInfo();
    const tryAgain = toWireJson({
      type: "try_again",
      requestId,
      queueState: state,
      queueStateReason: reason ?? null,
    } satisfies TryAgainResponse);
    // The Python package prints a warning at a 200 that is no result, and reads the same in a 408 without a word.
    return isPythonSdk(call.req.raw) ? call.json(tryAgain, 408) : tryAgain;
  });

  route(endpoints.cancelFuture, ({ requestId }, call) => {
    const future = futures.get(requestId);
    // Cancelling what has already ended, or is unknown, has nothing left to do.
    if (future !== undefined && mayAccess(call.get("identity"), future.owner)) {
      future.cancel();
      sessions.noteSeen(requestId);
    }
    return { type: "cancel_future", requestId };
  });

  function find(identity: Identity, requestId: string): Future {
    const future = futures.get(requestId);
    if (future !== undefined && mayAccess(identity, future.owner)) return future;
    if (future === undefined && maySend(identity, requestId)) {
      throw new HttpError(
        410,
        `The result of request ${requestId} is gone: it was fetched, has expired, or the server was restarted.`,
      );
    }
    throw new HttpError(404, `There is no request ${requestId}.`);
  }

  function answer(call: Call, future: Future, outcome: Outcome, allowMetadataOnly: boolean): unknown {
    if (outcome.type === "encoded") {
      const { bytes } = outcome;
      if (allowMetadataOnly && bytes.byteLength > limits.inlineResultBytes) {
        const { requestId } = future;
        return toWireJson({
          status: "complete_metadata",
          requestId,
          responsePayloadSize: bytes.byteLength,
        } satisfies CompleteMetadataResponse & { requestId: string });
      }
      futures.markFetched(future);
      if (!(call.req.header("accept") ?? "").includes("application/x-protobuf")) return outcome.toJson();
      const headers = { "content-type": "application/x-protobuf" };
      return call.body(bytes as Uint8Array<ArrayBuffer>, 200, headers);
    }
    futures.markFetched(future);
    return outcome.type === "json" ? outcome.body : { error: outcome.error, category: outcome.category };
  }
}
