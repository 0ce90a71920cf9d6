import { randomUUID } from "node:crypto";
import type { CheckpointKind } from "../../wire/tinker-path.js";
import type { CheckpointRecord } from "../store/checkpoint-store.js";
import { NameTakenError } from "../store/checkpoint-store.js";
import { parseWith, readJsonObject } from "./body.js";
import {
  type App,
  audit,
  type Core,
  checkpointByPath,
  checkpointName,
  expiryOf,
  modelInfo,
  readCheckpoint,
  textMetadata,
  tinkerPath,
  tokenIdentity,
} from "./core.js";
import { HttpError, invalid } from "./http-error.js";
import type { Identity } from "./identity.js";
import { addModel, submitTo } from "./live-models.js";
import { refusing } from "./routes-training.js";
import * as schemas from "./schemas.js";
import type { LiveModel } from "./sessions.js";
import { fingerprintJson } from "./training-data.js";

interface SaveRequest {
  readonly kind: CheckpointKind;
  readonly name: string;
  readonly ttlSeconds: number | null | undefined;
  readonly userMetadata: Record<string, string> | null;
  readonly overwrite: boolean;
}

/** Weights in and out of models: save, save for sampling, export, load. */
export function addWeightsRoutes(app: App, core: Core): void {
  app.post("/api/v1/save_weights", async (context) => {
    const { value } = await readJsonObject(context.req.raw, core);
    return refusing(core, context, value["model_id"], value["seq_id"], () => {
      const request = parseWith(schemas.saveWeights, value);
      const identity = context.get("identity");
      const model = core.sessions.model(identity, request.model_id);
      const save: SaveRequest = {
        kind: "weights",
        name: nameFor(core, model, "weights", request.path, request.seq_id),
        ttlSeconds: request.ttl_seconds,
        userMetadata: textMetadata(request.user_metadata),
        overwrite: request.overwrite,
      };
      const future = submitTo(core, model, {
        seqId: request.seq_id ?? undefined,
        kind: "save_weights",
        fingerprint: fingerprintJson(["save_weights", request]),
        bytes: 0,
        check: () => checkFree(core, model, save),
        execute: async () => {
          const record = await saveCheckpoint(core, identity, model, save);
          return { type: "json", body: { type: "save_weights", path: tinkerPath(record) } };
        },
      });
      return context.json({ request_id: future.requestId, model_id: model.run.id });
    });
  });

  app.post("/api/v1/save_weights_for_sampler", async (context) => {
    const { value } = await readJsonObject(context.req.raw, core);
    return refusing(core, context, value["model_id"], value["seq_id"], () => {
      const request = parseWith(schemas.saveForSampler, value);
      const identity = context.get("identity");
      const model = core.sessions.model(identity, request.model_id);
      const samplerSeqId = request.sampling_session_seq_id ?? undefined;
      const common = {
        seqId: request.seq_id ?? undefined,
        kind: "save_weights_for_sampler",
        fingerprint: fingerprintJson(["save_weights_for_sampler", request]),
        bytes: 0,
      };
      if (samplerSeqId !== undefined) {
        const future = submitTo(core, model, {
          ...common,
          execute: async () => {
            const sampler = await core.samplers.createUnnamed(model, samplerSeqId);
            return {
              type: "json",
              body: { type: "save_weights_for_sampler", path: null, sampling_session_id: sampler.id },
            };
          },
        });
        return context.json({ request_id: future.requestId, model_id: model.run.id });
      }
      const save: SaveRequest = {
        kind: "sampler_weights",
        name: nameFor(core, model, "sampler_weights", request.path, request.seq_id),
        ttlSeconds: request.ttl_seconds,
        userMetadata: textMetadata(request.user_metadata),
        overwrite: false,
      };
      const future = submitTo(core, model, {
        ...common,
        check: () => checkFree(core, model, save),
        execute: async () => {
          const record = await saveCheckpoint(core, identity, model, save);
          return {
            type: "json",
            body: { type: "save_weights_for_sampler", path: tinkerPath(record), sampling_session_id: null },
          };
        },
      });
      return context.json({ request_id: future.requestId, model_id: model.run.id });
    });
  });

  app.post("/api/v1/save_weights_external", async (context) => {
    const { value } = await readJsonObject(context.req.raw, core);
    return refusing(core, context, value["model_id"], value["seq_id"], () => {
      const request = parseWith(schemas.saveExternal, value);
      const identity = context.get("identity");
      const model = core.sessions.model(identity, request.model_id);
      const save: SaveRequest = {
        kind: "external_weights",
        name: checkpointName(request.path, "path"),
        ttlSeconds: request.ttl_seconds,
        userMetadata: textMetadata(request.user_metadata),
        overwrite: false,
      };
      const future = submitTo(core, model, {
        seqId: request.seq_id ?? undefined,
        kind: "save_weights_external",
        fingerprint: fingerprintJson(["save_weights_external", request]),
        bytes: 0,
        check: () => checkFree(core, model, save),
        execute: async () => {
          const record = await saveCheckpoint(core, identity, model, save);
          const body = {
            type: "save_weights_external",
            path: tinkerPath(record),
            size_bytes: record.sizeBytes,
          };
          return { type: "json", body };
        },
      });
      return context.json({ request_id: future.requestId, model_id: model.run.id });
    });
  });

  app.post("/api/v1/load_weights", async (context) => {
    const { value } = await readJsonObject(context.req.raw, core);
    const identity = context.get("identity");
    return refusing(core, context, value["model_id"], value["seq_id"], () => {
      const request = parseWith(schemas.loadWeights, value);
      const reader = tokenIdentity(core, identity, request.weights_access_token);
      const record = checkpointByPath(core, reader, request.path, "path");
      if (request.optimizer && !record.hasOptimizer) {
        throw invalid(
          "optimizer",
          `is true, but ${request.path} has no optimizer state: only checkpoints of save_weights have it`,
        );
      }
      const fingerprint = fingerprintJson(["load_weights", { ...request, weights_access_token: null }]);
      if (typeof request.session_id === "string") {
        if (typeof request.model_seq_id !== "number")
          throw invalid("model_seq_id", "is needed together with session_id");
        const session = core.sessions.use(identity, request.session_id);
        const source = core.store.runs.get(record.runId)!;
        checkSameBase(request.base_model ?? source.baseModel, source.baseModel);
        const { model, future } = addModel(core, session, {
          modelSeqId: request.model_seq_id,
          info: modelInfo(core, source.baseModel, "base_model"),
          lora: source.lora,
          userMetadata: textMetadata(request.user_metadata),
          kind: "load_weights",
          fingerprint,
          prepare: (created) => load(core, identity, created, record, request.optimizer),
        });
        return context.json({ request_id: future.requestId, model_id: model.run.id });
      }
      if (typeof request.model_id !== "string")
        throw invalid("model_id", "is missing: give model_id and seq_id, or session_id and model_seq_id");
      const model = core.sessions.model(identity, request.model_id);
      const future = submitTo(core, model, {
        seqId: request.seq_id ?? undefined,
        kind: "load_weights",
        fingerprint,
        bytes: 0,
        check: () => {
          const { position, length } = model.queue;
          // A number that was refused may be sent again, but not once others have been executed.
          const isFirst =
            request.seq_id === 1
              ? position <= 2
              : (request.seq_id ?? null) === null && position <= 1 && length === 0;
          if (!isFirst)
            throw new HttpError(
              400,
              "load_weights is only allowed as the first request of a model (seq_id 1); create a new model from the checkpoint instead.",
            );
        },
        execute: async () => ({
          type: "json",
          body: await load(core, identity, model, record, request.optimizer),
        }),
      });
      return context.json({ request_id: future.requestId, model_id: model.run.id });
    });
  });
}

/** The name a checkpoint is saved under; one without a name gets one that says when it was. */
function nameFor(
  core: Core,
  model: LiveModel,
  kind: CheckpointKind,
  path: string | null | undefined,
  seqId: number | null | undefined,
): string {
  if (typeof path === "string") return checkpointName(path, "path");
  const base = `step-${String(seqId ?? model.queue.position).padStart(6, "0")}`;
  return core.store.checkpoints.get(model.run.id, kind, base) === undefined || typeof seqId === "number"
    ? base
    : `${base}-${randomUUID().slice(0, 8)}`;
}

function checkFree(core: Core, model: LiveModel, save: SaveRequest): void {
  if (save.overwrite) return;
  if (core.store.checkpoints.get(model.run.id, save.kind, save.name) === undefined) return;
  throw new NameTakenError(save.kind, save.name, model.run.id);
}

async function saveCheckpoint(
  core: Core,
  identity: Identity,
  model: LiveModel,
  save: SaveRequest,
): Promise<CheckpointRecord> {
  const state = await core.engine.exportAdapter(model.adapterId, { optimizer: save.kind === "weights" });
  const record = await core.store.checkpoints.save(
    {
      run: model.run,
      kind: save.kind,
      name: save.name,
      expiresAt: expiryOf(core, save.ttlSeconds),
      userMetadata: save.userMetadata,
      overwrite: save.overwrite,
    },
    { type: "state", state },
  );
  core.store.usage.add(core.clock.wallNow(), {
    owner: model.run.owner,
    sessionId: model.session.record.id,
    baseModel: model.info.name,
    kind: "checkpoint",
    count: 1,
  });
  await audit(core, identity, "checkpoints.created", {
    modelId: model.run.id,
    tinkerPath: tinkerPath(record),
  });
  return record;
}

async function load(
  core: Core,
  identity: Identity,
  model: LiveModel,
  record: CheckpointRecord,
  withOptimizer: boolean,
): Promise<Record<string, unknown>> {
  const source = core.store.runs.get(record.runId);
  if (source === undefined) throw new HttpError(404, `Checkpoint ${tinkerPath(record)} was deleted.`);
  checkSameBase(model.run.baseModel, source.baseModel);
  const wanted = model.run.lora;
  const given = source.lora;
  for (const key of ["rank", "trainAttn", "trainMlp", "trainUnembed"] as const) {
    if (wanted[key] === given[key]) continue;
    throw new HttpError(
      422,
      `Checkpoint ${tinkerPath(record)} has a LoRA of ${key} ${given[key]}, the model one of ${key} ${wanted[key]}; create the model with the checkpoint's settings (POST /api/v1/weights_info).`,
    );
  }
  const state = await readCheckpoint(core.store, record);
  await core.engine.importAdapter(model.adapterId, model.info.name, state, { optimizer: withOptimizer });
  await audit(core, identity, "checkpoints.loaded", {
    modelId: model.run.id,
    tinkerPath: tinkerPath(record),
  });
  return { type: "load_weights", path: tinkerPath(record), model_id: model.run.id };
}

function checkSameBase(wanted: string, given: string): void {
  if (wanted !== given) throw invalid("base_model", `is ${wanted}, but the checkpoint is of ${given}`);
}
