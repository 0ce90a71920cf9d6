import { randomUUID } from "node:crypto";
import { endpoints } from "../../../wire/endpoints/index.js";
import type { FilledMessage } from "../../../wire/fields/fields.js";
import type { StoredCheckpoint } from "../../store/checkpoint-store.js";
import type { RunRecord } from "../../store/run-store.js";
import { conflict, invalid } from "../http/http-error.js";
import { idempotencyKeyOf, OncePerKey } from "../http/once-per-key.js";
import type { RequestOwner, Route } from "../http/route.js";
import type { Services } from "../services.js";
import { checkpointByPath, expiryOf, tinkerPath } from "./find-checkpoint.js";

/** Copies of checkpoints into runs of their own, which cannot be trained on. */
export function addCopyRoute(route: Route, services: Services): void {
  const { store, sessions, clock, identities, audit, disk } = services;
  const copies = new OncePerKey<string>();

  route(endpoints.copyWeights, async (request, call) => {
    const identity = call.get("identity");
    const token = request.weightsAccessToken ?? call.req.header("x-tinker-weights-access-token");
    const reader = await identities.reader(call, token);
    const record = checkpointByPath(store, reader, request.sourcePath, "sourcePath");
    const path = await copies.run(identity.owner, idempotencyKeyOf(call), () =>
      copy(identity, record, request),
    );
    return { tinkerPath: path };
  });

  async function copy(
    identity: RequestOwner,
    from: StoredCheckpoint,
    request: FilledMessage<typeof endpoints.copyWeights.request.shape>,
  ): Promise<string> {
    const { sessionId, modelSeqId, destinationProjectId, ttlSeconds } = request;
    const session = sessionId === undefined ? undefined : sessions.use(identity, sessionId);
    if (session !== undefined && modelSeqId === undefined)
      throw invalid("modelSeqId", "is needed together with sessionId");
    if (session === undefined && destinationProjectId === undefined)
      throw invalid("destinationProjectId", "is missing: give it, or sessionId and modelSeqId");
    const runId =
      session === undefined ? `${randomUUID()}:train:0` : `${session.record.id}:train:${modelSeqId}`;
    if (store.runs.get(runId) !== undefined || session?.models.has(runId) === true)
      throw conflict(`Run ${runId} exists already; give the copy another number.`);
    const now = clock.wallNow();
    const run: RunRecord = {
      ...store.runs.get(from.runId)!,
      id: runId,
      owner: identity.owner,
      sessionId: session?.record.id ?? null,
      projectId: destinationProjectId ?? session?.record.projectId ?? null,
      createdAt: now,
      lastRequestAt: now,
      // Even if the run was corrupted later, the checkpoint was saved before that.
      corrupted: false,
    };
    const { kind, name, userMetadata } = from;
    const expiresAt = expiryOf(clock, ttlSeconds);
    const record = await disk.saving(run.owner, from.sizeBytes, async () => {
      await store.runs.save(run);
      return store.checkpoints.save(
        { run, kind, name, expiresAt, userMetadata, overwrite: false },
        { type: "copy", from },
      );
    });
    await audit(identity, "checkpoints.copied", {
      tinkerPath: tinkerPath(record),
      details: { source: tinkerPath(from) },
    });
    return tinkerPath(record);
  }
}
