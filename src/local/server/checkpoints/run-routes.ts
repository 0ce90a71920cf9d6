import { endpoints } from "../../../wire/endpoints/index.js";
import type { Checkpoint, TrainingRun } from "../../../wire/records/rest-types.js";
import { CHECKPOINT_TYPES, type CheckpointKind } from "../../../wire/records/tinker-path.js";
import type { StoredCheckpoint } from "../../store/checkpoint-store.js";
import type { RunRecord } from "../../store/run-store.js";
import { HttpError } from "../http/http-error.js";
import { type App, mayAccess, type RequestOwner, type Route } from "../http/route.js";
import type { Services } from "../services.js";
import { projectOf } from "../sessions/live-sessions.js";
import {
  checkpointByPath,
  expiryOf,
  ownCheckpoint,
  ownRun,
  readableCheckpoint,
  tinkerPath,
} from "./find-checkpoint.js";

/** Training runs and their checkpoints, as they are kept. */
export function addRunRoutes(app: App, route: Route, services: Services): void {
  const { store, clock, signer, audit } = services;
  const { checkpoints, runs } = store;
  const hasPublished = (runId: string) =>
    checkpoints.list((record) => record.runId === runId && record.public).length > 0;
  const auditChange = (identity: RequestOwner, event: string, record: StoredCheckpoint, details = {}) =>
    audit(identity, event, { modelId: record.runId, tinkerPath: tinkerPath(record), details });

  route(endpoints.listTrainingRuns, ({ offset, limit, accessScope, projectId }, call) => {
    const identity = call.get("identity");
    const visible = runs
      .list()
      .filter(
        ({ id, owner }) => mayAccess(identity, owner) || (accessScope === "accessible" && hasPublished(id)),
      )
      .filter((run) => projectId === undefined || projectOf(run) === projectId);
    return {
      trainingRuns: visible.slice(offset, offset + limit).map((run) => runView(identity, run)),
      cursor: { offset, limit, totalCount: visible.length },
    };
  });

  route(endpoints.getTrainingRun, ({ trainingRunId, accessScope }, call) => {
    const identity = call.get("identity");
    const run = runs.get(trainingRunId);
    const isShared = run !== undefined && accessScope === "accessible" && hasPublished(run.id);
    return runView(identity, isShared ? run : ownRun(store, identity, trainingRunId));
  });

  route(endpoints.listCheckpoints, ({ trainingRunId }, call) => {
    const run = ownRun(store, call.get("identity"), trainingRunId);
    return { checkpoints: checkpoints.list((record) => record.runId === run.id).map(checkpointView) };
  });

  route(endpoints.listUserCheckpoints, ({ offset, limit }, call) => {
    const identity = call.get("identity");
    const records = checkpoints.list((record) => mayAccess(identity, runs.get(record.runId)?.owner ?? ""));
    return {
      checkpoints: records.slice(offset, offset + limit).map(checkpointView),
      cursor: { offset, limit, totalCount: records.length },
    };
  });

  route(endpoints.deleteCheckpoint, async (parts, call) => {
    const identity = call.get("identity");
    const record = ownCheckpoint(store, identity, parts);
    await checkpoints.remove(record);
    await auditChange(identity, "checkpoints.deleted", record);
  });

  for (const isPublic of [true, false]) {
    route(isPublic ? endpoints.publishCheckpoint : endpoints.unpublishCheckpoint, async (parts, call) => {
      const identity = call.get("identity");
      const record = ownCheckpoint(store, identity, parts);
      await checkpoints.update(record, { public: isPublic });
      await auditChange(identity, `checkpoints.${isPublic ? "" : "un"}published`, record);
    });
  }

  route(endpoints.setCheckpointTtl, async ({ ttlSeconds, ...parts }, call) => {
    const identity = call.get("identity");
    const record = ownCheckpoint(store, identity, parts);
    await checkpoints.update(record, { expiresAt: expiryOf(clock, ttlSeconds) });
    await auditChange(identity, "checkpoints.ttl_set", record, { ttlSeconds });
  });

  route(endpoints.getCheckpointArchiveUrl, (parts, call) => {
    const record = readableCheckpoint(store, call.get("identity"), parts);
    const path = tinkerPath(record);
    const { url, expiresAt } = signer.sign(call.req.url, "/api/v1/downloads/archive", { path });
    const expires = new Date(expiresAt);
    const accept = call.req.header("accept") ?? "";
    // Old versions of the official client name gzip beside JSON, and understand only the redirect.
    if (accept.includes("application/json") && !accept.includes("application/gzip"))
      return { url, expires: expires.toISOString() };
    call.header("expires", expires.toUTCString());
    return call.redirect(url, 302);
  });

  route(endpoints.getExternalWeightsUrls, async (parts, call) => {
    const record = readableCheckpoint(store, call.get("identity"), parts);
    const path = tinkerPath(record);
    const urls: Record<string, string> = {};
    let expires = "";
    for (const file of await checkpoints.files(record)) {
      const { url, expiresAt } = signer.sign(call.req.url, "/api/v1/downloads/file", { path, file });
      urls[file] = url;
      expires = new Date(expiresAt).toISOString();
    }
    return { urls, expires };
  });

  route(endpoints.getWeightsInfo, (request, call) => {
    const record = checkpointByPath(store, call.get("identity"), request.tinkerPath, "tinkerPath");
    const { baseModel, lora } = runs.get(record.runId)!;
    const { rank, trainUnembed, trainMlp, trainAttn } = lora;
    const optimizerConfig = { type: "adamw" };
    return { baseModel, isLora: true, loraRank: rank, trainUnembed, trainMlp, trainAttn, optimizerConfig };
  });

  // A bare id, without weights/ or sampler_weights/ before it.
  app.all(`${endpoints.listCheckpoints.path}/:id`, (call) => {
    throw new HttpError(
      400,
      `Checkpoint id ${JSON.stringify(call.req.param("id"))} has no type: write weights/<name>, sampler_weights/<name> or external_weights/<name>.`,
    );
  });

  /** A run for its owner, or with its published checkpoints only for others. */
  function runView(identity: RequestOwner, run: RunRecord): TrainingRun {
    const isOwn = mayAccess(identity, run.owner);
    const newest = (kind: CheckpointKind) => {
      const [record] = checkpoints.list(
        (candidate) => candidate.runId === run.id && candidate.kind === kind && (isOwn || candidate.public),
      );
      return record === undefined ? null : checkpointView(record);
    };
    return {
      trainingRunId: run.id,
      baseModel: run.baseModel,
      modelOwner: run.owner,
      isLora: true,
      corrupted: run.corrupted,
      loraRank: run.lora.rank,
      lastRequestTime: new Date(run.lastRequestAt).toISOString(),
      lastCheckpoint: newest("weights"),
      lastSamplerCheckpoint: newest("sampler_weights"),
      userMetadata: isOwn ? run.userMetadata : null,
    };
  }
}

function checkpointView(record: StoredCheckpoint): Checkpoint {
  return {
    checkpointId: `${record.kind}/${record.name}`,
    checkpointType: CHECKPOINT_TYPES[record.kind],
    time: new Date(record.createdAt).toISOString(),
    tinkerPath: tinkerPath(record),
    sizeBytes: record.sizeBytes,
    public: record.public,
    expiresAt: record.expiresAt === null ? null : new Date(record.expiresAt).toISOString(),
    userMetadata: record.userMetadata,
  };
}
