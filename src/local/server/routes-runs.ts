import { z } from "zod";
import { jsonBody, queryOf } from "./body.js";
import {
  type App,
  audit,
  type Core,
  checkpointByPath,
  checkpointKind,
  expiryOf,
  isoTime,
  ownCheckpoint,
  ownRun,
  projectOf,
  readableCheckpoint,
  tinkerPath,
} from "./core.js";
import { HttpError } from "./http-error.js";
import { mayAccess } from "./identity.js";
import { checkpointView, runView } from "./rest-views.js";
import * as schemas from "./schemas.js";

const CHECKPOINT = "/api/v1/training_runs/:run/checkpoints/:kind/:name";

/** Training runs and their checkpoints, as they are kept. */
export function addRunRoutes(app: App, core: Core): void {
  const { checkpoints, runs } = core.store;
  const hasPublished = (runId: string) =>
    checkpoints.list((record) => record.runId === runId && record.public).length > 0;

  app.get("/api/v1/training_runs", (context) => {
    const query = queryOf(context, schemas.listRuns);
    const identity = context.get("identity");
    const visible = runs
      .list()
      .filter(
        (run) =>
          mayAccess(identity, run.owner) || (query.access_scope === "accessible" && hasPublished(run.id)),
      )
      .filter((run) => query.project_id === undefined || projectOf(run) === query.project_id);
    return context.json({
      training_runs: visible
        .slice(query.offset, query.offset + query.limit)
        .map((run) => runView(core, identity, run)),
      cursor: { offset: query.offset, limit: query.limit, total_count: visible.length },
    });
  });

  app.get("/api/v1/training_runs/:run", (context) => {
    const query = queryOf(context, schemas.oneRun);
    const identity = context.get("identity");
    const runId = context.req.param("run");
    const run = runs.get(runId);
    if (run !== undefined && query.access_scope === "accessible" && hasPublished(runId)) {
      return context.json(runView(core, identity, run));
    }
    return context.json(runView(core, identity, ownRun(core, identity, runId)));
  });

  app.get("/api/v1/training_runs/:run/checkpoints", (context) => {
    const run = ownRun(core, context.get("identity"), context.req.param("run"));
    const records = checkpoints.list((record) => record.runId === run.id);
    return context.json({ checkpoints: records.map(checkpointView) });
  });

  app.get("/api/v1/checkpoints", (context) => {
    const query = queryOf(context, schemas.listCheckpoints);
    const identity = context.get("identity");
    const records = checkpoints.list((record) => mayAccess(identity, runs.get(record.runId)?.owner ?? ""));
    return context.json({
      checkpoints: records.slice(query.offset, query.offset + query.limit).map(checkpointView),
      cursor: { offset: query.offset, limit: query.limit, total_count: records.length },
    });
  });

  app.delete(CHECKPOINT, async (context) => {
    const { run, kind, name } = context.req.param();
    const identity = context.get("identity");
    const record = ownCheckpoint(core, identity, run, checkpointKind(kind), name);
    await checkpoints.remove(record);
    await audit(core, identity, "checkpoints.deleted", {
      modelId: record.runId,
      tinkerPath: tinkerPath(record),
    });
    return context.body(null, 204);
  });

  for (const isPublic of [true, false]) {
    app.on(isPublic ? "POST" : "DELETE", `${CHECKPOINT}/publish`, async (context) => {
      const { run, kind, name } = context.req.param() as { run: string; kind: string; name: string };
      const identity = context.get("identity");
      const record = ownCheckpoint(core, identity, run, checkpointKind(kind), name);
      await checkpoints.update(record, { public: isPublic });
      const event = isPublic ? "checkpoints.published" : "checkpoints.unpublished";
      await audit(core, identity, event, { modelId: record.runId, tinkerPath: tinkerPath(record) });
      return context.body(null, 204);
    });
  }

  app.put(`${CHECKPOINT}/ttl`, async (context) => {
    const { run, kind, name } = context.req.param();
    const identity = context.get("identity");
    const record = ownCheckpoint(core, identity, run, checkpointKind(kind), name);
    const request = await jsonBody(context, core, schemas.setTtl);
    await checkpoints.update(record, { expiresAt: expiryOf(core, request.ttl_seconds) });
    await audit(core, identity, "checkpoints.ttl_set", {
      modelId: record.runId,
      tinkerPath: tinkerPath(record),
      details: { ttl_seconds: request.ttl_seconds },
    });
    return context.body(null, 204);
  });

  app.get(`${CHECKPOINT}/archive`, (context) => {
    const { run, kind, name } = context.req.param();
    const record = readableCheckpoint(core, context.get("identity"), run, checkpointKind(kind), name);
    const { url, expiresAt } = core.signer.sign(context.req.url, "/api/v1/downloads/archive", {
      path: tinkerPath(record),
    });
    const accept = context.req.header("accept") ?? "";
    // Old versions of the official client name gzip beside JSON, and understand only the redirect.
    if (accept.includes("application/json") && !accept.includes("application/gzip")) {
      return context.json({ url, expires: isoTime(expiresAt) });
    }
    context.header("expires", new Date(expiresAt).toUTCString());
    return context.redirect(url, 302);
  });

  app.get(`${CHECKPOINT}/external_weights_urls`, async (context) => {
    const { run, kind, name } = context.req.param();
    const record = readableCheckpoint(core, context.get("identity"), run, checkpointKind(kind), name);
    const urls: Record<string, string> = {};
    let expiresAt = 0;
    for (const file of await checkpoints.files(record)) {
      const signed = core.signer.sign(context.req.url, "/api/v1/downloads/file", {
        path: tinkerPath(record),
        file,
      });
      urls[file] = signed.url;
      expiresAt = signed.expiresAt;
    }
    return context.json({ urls, expires: isoTime(expiresAt) });
  });

  app.post("/api/v1/weights_info", async (context) => {
    const request = await jsonBody(context, core, z.object({ tinker_path: z.string() }));
    const record = checkpointByPath(core, context.get("identity"), request.tinker_path, "tinker_path");
    const run = runs.get(record.runId)!;
    return context.json({
      base_model: run.baseModel,
      is_lora: true,
      lora_rank: run.lora.rank,
      train_unembed: run.lora.trainUnembed,
      train_mlp: run.lora.trainMlp,
      train_attn: run.lora.trainAttn,
      optimizer_config: { type: "adamw" },
    });
  });

  // A bare id, without weights/ or sampler_weights/ before it.
  app.all("/api/v1/training_runs/:run/checkpoints/:id", (context) => {
    throw new HttpError(
      400,
      `Checkpoint id ${JSON.stringify(context.req.param("id"))} has no type: write weights/<name>, sampler_weights/<name> or external_weights/<name>.`,
    );
  });
}
