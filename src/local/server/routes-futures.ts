import { z } from "zod";
import { forwardBackwardOutputToJson, sampleResponseToJson } from "../../wire/index.js";
import { decodeForwardBackwardOutput, decodeSampleResponse } from "../../wire/protobuf.js";
import { jsonBody } from "./body.js";
import type { App, AppContext, Core } from "./core.js";
import type { Future, Outcome } from "./future-store.js";
import { HttpError } from "./http-error.js";
import { type Identity, mayAccess } from "./identity.js";
import * as schemas from "./schemas.js";

// Clients give a poll 45 s.
const LONG_POLL_MS = 25_000;
// Sooner when something holds the queue up, so that it can be shown; not at once, or clients would spin.
const BLOCKED_POLL_MS = 3_000;

/** Results: fetched one at a time by long polls, or learnt of many at once. */
export function addFutureRoutes(app: App, core: Core): void {
  app.post("/api/v1/retrieve_future", async (context) => {
    const request = await jsonBody(context, core, schemas.retrieveFuture);
    const future = findFuture(core, context.get("identity"), request.request_id);
    const session = core.sessions.get(core.sessions.sessionIdOf(future.requestId));
    if (session !== undefined) session.lastSeenAt = core.clock.now();
    const { signal } = context.req.raw;
    if (future.queueInfo().state !== "active") await core.futures.wait(future, BLOCKED_POLL_MS, signal);
    if (future.queueInfo().state === "active") await core.futures.wait(future, LONG_POLL_MS, signal);
    if (session !== undefined) session.lastSeenAt = core.clock.now();
    if (future.outcome === undefined) {
      const { state, reason } = future.queueInfo();
      return context.json({
        type: "try_again",
        request_id: future.requestId,
        queue_state: state,
        queue_state_reason: reason ?? null,
      });
    }
    return answer(core, context, future, future.outcome, request.allow_metadata_only);
  });

  app.post("/api/v1/retrieve_futures", async (context) => {
    const request = await jsonBody(context, core, schemas.retrieveFutures);
    const identity = context.get("identity");
    const sampler = core.samplers.use(identity, request.target.sampling_session_id);
    for (const requestId of request.retrieved_request_ids) {
      const future = core.futures.get(requestId);
      if (future !== undefined && mayAccess(identity, future.owner)) core.futures.forget(future);
    }
    const timeoutMs = Math.min((request.timeout ?? Number.POSITIVE_INFINITY) * 1000, LONG_POLL_MS);
    const log = core.samplers.completionsOf(sampler, String(request.target.cloned_sampler_id));
    const { completions, cursor } = await log.after(request.prev_cursor, timeoutMs, context.req.raw.signal);
    return context.json({ completions, cursor });
  });

  app.post("/api/v1/cancel_future", async (context) => {
    const request = await jsonBody(context, core, z.object({ request_id: z.string() }));
    const future = core.futures.get(request.request_id);
    // Cancelling what has already ended, or is unknown, has nothing left to do.
    if (future !== undefined && mayAccess(context.get("identity"), future.owner)) future.cancel();
    return context.json({ type: "cancel_future", request_id: request.request_id });
  });
}

function findFuture(core: Core, identity: Identity, requestId: string): Future {
  const future = core.futures.get(requestId);
  if (future !== undefined && mayAccess(identity, future.owner)) return future;
  const session = core.store.sessions.get(core.sessions.sessionIdOf(requestId));
  const wasOurs =
    session !== undefined ? mayAccess(identity, session.owner) : requestId.startsWith("sample-");
  if (future === undefined && wasOurs) {
    throw new HttpError(
      410,
      `The result of request ${requestId} is gone: it was fetched, has expired, or the server was restarted.`,
    );
  }
  throw new HttpError(404, `There is no request ${requestId}.`);
}

function answer(
  core: Core,
  context: AppContext,
  future: Future,
  outcome: Outcome,
  allowMetadataOnly: boolean,
): Response {
  switch (outcome.type) {
    case "failed":
      core.futures.markFetched(future);
      return context.json({ error: outcome.error, category: outcome.category });
    case "json":
      core.futures.markFetched(future);
      return context.json(outcome.body);
    case "proto": {
      const { bytes } = outcome;
      if (allowMetadataOnly && bytes.byteLength > core.limits.inlineResultBytes) {
        return context.json({
          status: "complete_metadata",
          request_id: future.requestId,
          response_payload_size: bytes.byteLength,
        });
      }
      core.futures.markFetched(future);
      if ((context.req.header("accept") ?? "").includes("application/x-protobuf")) {
        return context.body(bytes as Uint8Array<ArrayBuffer>, 200, {
          "content-type": "application/x-protobuf",
        });
      }
      return context.json(toJson(outcome.message, bytes));
    }
    default:
      return outcome satisfies never;
  }
}

/** For clients that read JSON only. */
function toJson(message: "sample" | "forward_backward", bytes: Uint8Array): Record<string, unknown> {
  return message === "sample"
    ? { type: "sample", ...(sampleResponseToJson(decodeSampleResponse(bytes)) as object) }
    : { ...(forwardBackwardOutputToJson(decodeForwardBackwardOutput(bytes)) as object) };
}
