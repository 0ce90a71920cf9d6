import { randomUUID } from "node:crypto";
import type { z } from "zod";
import type { CheckpointRecord } from "../store/checkpoint-store.js";
import { jsonBody } from "./body.js";
import { type App, audit, type Core, checkpointByPath, expiryOf, tinkerPath, tokenIdentity } from "./core.js";
import { HttpError, invalid } from "./http-error.js";
import type { Identity } from "./identity.js";
import * as schemas from "./schemas.js";

const REMEMBERED_COPIES = 1000;

/** Copies of checkpoints into runs of their own, which cannot be trained on. */
export function addCopyRoutes(app: App, core: Core): void {
  const copies = new Map<string, Promise<string>>();
  app.post("/api/v1/copy_weights", async (context) => {
    const request = await jsonBody(context, core, schemas.copyWeights);
    const identity = context.get("identity");
    const token = request.weights_access_token ?? context.req.header("x-tinker-weights-access-token");
    const reader = tokenIdentity(core, identity, token);
    const record = checkpointByPath(core, reader, request.source_path, "source_path");
    // A copy has no number of its own to be recognised by when it is sent again.
    const key = `${identity.owner} ${context.req.header("x-idempotency-key") ?? randomUUID()}`;
    let copy = copies.get(key);
    if (copy === undefined) {
      copy = copyWeights(core, identity, record, request);
      copies.set(key, copy);
      copy.catch(() => copies.delete(key));
      if (copies.size > REMEMBERED_COPIES) copies.delete(copies.keys().next().value!);
    }
    return context.json({ tinker_path: await copy });
  });
}

async function copyWeights(
  core: Core,
  identity: Identity,
  from: CheckpointRecord,
  request: z.output<typeof schemas.copyWeights>,
): Promise<string> {
  const source = core.store.runs.get(from.runId)!;
  const session =
    typeof request.session_id === "string" ? core.sessions.use(identity, request.session_id) : undefined;
  if (session !== undefined && typeof request.model_seq_id !== "number")
    throw invalid("model_seq_id", "is needed together with session_id");
  if (session === undefined && (request.destination_project_id ?? null) === null) {
    throw invalid("destination_project_id", "is missing: give it, or session_id and model_seq_id");
  }
  const runId =
    session === undefined ? `${randomUUID()}:train:0` : `${session.record.id}:train:${request.model_seq_id}`;
  if (core.store.runs.get(runId) !== undefined || session?.models.has(runId) === true) {
    throw new HttpError(409, `Run ${runId} exists already; take another model_seq_id.`, {
      "x-should-retry": "false",
    });
  }
  const now = core.clock.wallNow();
  const run = {
    ...source,
    id: runId,
    owner: identity.owner,
    sessionId: session?.record.id ?? null,
    projectId: request.destination_project_id ?? session?.record.projectId ?? null,
    createdAt: now,
    lastRequestAt: now,
    // Whatever befell the run afterwards, the checkpoint was saved before it.
    corrupted: false,
  };
  await core.store.runs.save(run);
  const record = await core.store.checkpoints.save(
    {
      run,
      kind: from.kind,
      name: from.name,
      expiresAt: expiryOf(core, request.ttl_seconds),
      userMetadata: from.userMetadata,
      overwrite: false,
    },
    { type: "copy", from },
  );
  await audit(core, identity, "checkpoints.copied", {
    tinkerPath: tinkerPath(record),
    details: { source: tinkerPath(from) },
  });
  return tinkerPath(record);
}
