import type { CompleteMetadataResponse, TryAgainResponse } from "../../../wire/endpoints/futures.js";
import { endpoints } from "../../../wire/endpoints/index.js";
import { toWireJson } from "../../../wire/json-keys.js";
import { sessionIdOf } from "../../store/session-store.js";
import { HttpError, isPythonSdk } from "../http/http-error.js";
import { type Call, mayAccess, type RequestOwner, type Route } from "../http/route.js";
import type { Services } from "../services.js";
import type { Future, FutureOutcome } from "./future-store.js";

/** Clients give a poll 45 s. */
export const MAX_LONG_POLL_MS = 25_000;
// Sooner when something holds the queue up, so that it can be shown; not at once, or clients would spin.
const MAX_BLOCKED_POLL_MS = 3_000;

/** Results, one at a time, by long polls. */
export function addFutureRoutes(route: Route, services: Services): void {
  const { futures, limits, store, sessions, sampleRuns } = services;

  /** Whether a request that is no longer known may have been sent by this identity. */
  function maySend(identity: RequestOwner, requestId: string): boolean {
    const session = store.sessions.get(sessionIdOf(requestId));
    return session === undefined ? requestId.startsWith("sample-") : mayAccess(identity, session.owner);
  }

  route(endpoints.retrieveFuture, async ({ requestId, allowMetadataOnly }, call) => {
    const future = futures.get(requestId);
    const identity = call.get("identity");
    if (future === undefined && maySend(identity, requestId)) return gone(call, requestId);
    if (future === undefined || !mayAccess(identity, future.owner))
      throw new HttpError(404, `There is no request ${requestId}.`);
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
    // The Python package prints a warning at a 200 that is not a result, but accepts it silently in a 408.
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

  /**
   * Clients send the request again after a 410, and so does the Python package with samples. With anything else that shows
   * its users "Promise expired/broken" and nothing of the answer; the error of a request it shows.
   */
  function gone(call: Call, requestId: string) {
    const error = `The result of request ${requestId} is gone: it was fetched, has expired, or the server was restarted.`;
    const repeats = !isPythonSdk(call.req.raw) || call.req.header("x-tinker-request-type") === "Sample";
    if (repeats) throw new HttpError(410, error);
    const advice = "Go on from the last saved state: create_training_client_from_state_with_optimizer.";
    return { error: `${error} ${advice}`, category: "server" };
  }

  function answer(call: Call, future: Future, outcome: FutureOutcome, allowMetadataOnly: boolean): unknown {
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
