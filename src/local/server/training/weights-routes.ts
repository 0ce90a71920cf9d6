import { randomUUID } from "node:crypto";
import { endpoints } from "../../../wire/endpoints/index.js";
import type { CheckpointKind } from "../../../wire/records/tinker-path.js";
import { NameTakenError, type StoredCheckpoint } from "../../store/checkpoint-store.js";
import { checkName } from "../../store/names.js";
import { bytesOf } from "../checkpoints/disk-quota.js";
import { checkpointByPath, expiryOf, readCheckpoint, tinkerPath } from "../checkpoints/find-checkpoint.js";
import type { ResultOf } from "../futures/future-store.js";
import { HttpError, invalid } from "../http/http-error.js";
import type { Call, RequestOwner, Route } from "../http/route.js";
import type { Services } from "../services.js";
import { findBaseModel } from "../sessions/base-models.js";
import { fingerprintJson } from "../sessions/fingerprint.js";
import { type LiveModel, textMetadata } from "../sessions/live-sessions.js";
import { checkOptimizer } from "./training-routes.js";

interface SaveRequest {
  readonly modelId: string;
  readonly seqId?: number | undefined;
  readonly path?: string | undefined;
  readonly ttlSeconds?: number | undefined;
  readonly userMetadata?: Readonly<Record<string, unknown>> | undefined;
  readonly overwrite?: boolean;
}

/** Weights in and out of models: save, save for sampling, export, load. */
export function addWeightsRoutes(route: Route, services: Services): void {
  const {
    engine,
    baseModels,
    sessions,
    models,
    store,
    clock,
    identities,
    audit,
    samplingSessions,
    activity,
    disk,
  } = services;
  const numbered = models.numbered(route);

  numbered(endpoints.saveWeights, (request, call) =>
    save(endpoints.saveWeights, "weights", request, call, (record) => ({ path: tinkerPath(record) })),
  );

  numbered(endpoints.saveWeightsExternal, (request, call) => {
    if ((request.ageEncryptionRecipients ?? []).length > 0)
      throw invalid("ageEncryptionRecipients", "cannot be given: this server does not encrypt");
    return save(endpoints.saveWeightsExternal, "external_weights", request, call, (record) => ({
      path: tinkerPath(record),
      sizeBytes: record.sizeBytes,
    }));
  });

  numbered(endpoints.saveWeightsForSampler, (request, call) => {
    const endpoint = endpoints.saveWeightsForSampler;
    const { samplingSessionSeqId, kind } = request;
    if (samplingSessionSeqId === undefined) {
      if (kind === "inflight") throw invalid("kind", "inflight needs samplingSessionSeqId");
      return save(endpoint, "sampler_weights", request, call, (record) => ({
        path: tinkerPath(record),
        samplingSessionId: null,
      }));
    }
    const model = sessions.model(call.get("identity"), request.modelId);
    return models.submit(model, endpoint, request, async () => ({
      path: null,
      samplingSessionId: (await samplingSessions.freeze(model, samplingSessionSeqId, kind)).id,
    }));
  });

  function save<Result>(
    endpoint: ResultOf<Result>,
    kind: CheckpointKind,
    request: SaveRequest,
    call: Call,
    resultOf: (record: StoredCheckpoint) => Result,
  ) {
    const identity = call.get("identity");
    const model = sessions.model(identity, request.modelId);
    const { run } = model;
    const name = nameFor(model, kind, request);
    const overwrite = request.overwrite ?? false;
    const check = () => {
      if (!overwrite && store.checkpoints.get(run.id, kind, name) !== undefined)
        throw new NameTakenError(kind, name, run.id);
    };
    const execute = async () => {
      const state = await engine.exportAdapter(model.adapterId, { optimizer: kind === "weights" });
      const expiresAt = expiryOf(clock, request.ttlSeconds);
      const userMetadata = textMetadata(request.userMetadata);
      const replaced = overwrite ? (store.checkpoints.get(run.id, kind, name)?.sizeBytes ?? 0) : 0;
      const record = await disk.saving(run.owner, bytesOf(state) - replaced, () =>
        store.checkpoints.save(
          { run, kind, name, expiresAt, userMetadata, overwrite },
          { type: "state", state },
        ),
      );
      if (record.hasOptimizer && !model.hasGradients)
        model.source = { type: "checkpoint", record, optimizer: true };
      store.usage.add(clock.wallNow(), {
        owner: run.owner,
        sessionId: model.session.record.id,
        baseModel: model.info.name,
        kind: "checkpoint",
        count: 1,
      });
      await audit(identity, "checkpoints.created", {
        modelId: run.id,
        tinkerPath: tinkerPath(record),
      });
      activity.saved(run.id, tinkerPath(record));
      return resultOf(record);
    };
    return models.submit(model, endpoint, request, execute, { check });
  }

  /** The name a checkpoint is saved under; one without a name gets one that says when it was. */
  function nameFor(model: LiveModel, kind: CheckpointKind, { path, seqId }: SaveRequest): string {
    if (path !== undefined) {
      const problem = checkName(path);
      if (problem !== undefined) throw invalid("path", problem);
      return path;
    }
    const base = `step-${String(seqId ?? model.turns.position).padStart(6, "0")}`;
    return store.checkpoints.get(model.run.id, kind, base) === undefined || seqId !== undefined
      ? base
      : `${base}-${randomUUID().slice(0, 8)}`;
  }

  numbered(endpoints.loadWeights, async (request, call) => {
    const identity = call.get("identity");
    const { path, optimizer, sessionId, modelSeqId, modelId, seqId, weightsAccessToken, ...rest } = request;
    checkOptimizer(rest.optimizerConfig);
    const reader = await identities.reader(call, weightsAccessToken);
    const record = checkpointByPath(store, reader, path, "path");
    if (optimizer && !record.hasOptimizer) {
      throw invalid(
        "optimizer",
        `is true, but ${path} has no optimizer state: only checkpoints of save_weights have it`,
      );
    }
    const fingerprint = fingerprintJson([
      "load_weights",
      { ...rest, path, optimizer, sessionId, modelSeqId, modelId, seqId },
    ]);
    if (sessionId !== undefined) {
      if (modelSeqId === undefined) throw invalid("modelSeqId", "is needed together with sessionId");
      const session = sessions.use(identity, sessionId);
      const source = store.runs.get(record.runId)!;
      checkSameBase(rest.baseModel ?? source.baseModel, source.baseModel);
      const wanted = {
        modelSeqId,
        info: findBaseModel(baseModels, source.baseModel, "baseModel"),
        lora: source.lora,
        userMetadata: textMetadata(rest.userMetadata),
      };
      return models.add(session, endpoints.loadWeights, fingerprint, wanted, (model) =>
        load(identity, model, record, optimizer),
      );
    }
    if (modelId === undefined)
      throw invalid("modelId", "is missing: give modelId and seqId, or sessionId and modelSeqId");
    const model = sessions.model(identity, modelId);
    const execute = () => load(identity, model, record, optimizer);
    const check = () => {
      const { position, length } = model.turns;
      // A number that was refused may be sent again, but not once others have been executed.
      const isFirst = seqId === 1 ? position <= 2 : seqId === undefined && position <= 1 && length === 0;
      if (isFirst) return;
      throw new HttpError(
        400,
        "Weights can only be loaded by the first request of a model; create a new model from the checkpoint instead.",
      );
    };
    return models.submit(model, endpoints.loadWeights, request, execute, { fingerprint, check });
  });

  async function load(
    identity: RequestOwner,
    model: LiveModel,
    record: StoredCheckpoint,
    withOptimizer: boolean,
  ) {
    const path = tinkerPath(record);
    const source = store.runs.get(record.runId);
    if (source === undefined) throw new HttpError(404, `Checkpoint ${path} was deleted.`);
    checkSameBase(model.run.baseModel, source.baseModel);
    for (const key of ["rank", "trainAttn", "trainMlp", "trainUnembed"] as const) {
      const [wanted, given] = [model.run.lora[key], source.lora[key]];
      if (wanted === given) continue;
      throw invalid(
        `loraConfig.${key}`,
        `is ${given} for ${path}, but ${wanted} for the model; create the model with the checkpoint's settings (POST /api/v1/weights_info)`,
      );
    }
    const state = await readCheckpoint(store, record);
    await engine.importAdapter(model.adapterId, model.info.name, state, { optimizer: withOptimizer });
    model.source = { type: "checkpoint", record, optimizer: withOptimizer };
    model.hasGradients = false;
    await audit(identity, "checkpoints.loaded", { modelId: model.run.id, tinkerPath: path });
    return { path, modelId: model.run.id };
  }
}

function checkSameBase(wanted: string, given: string): void {
  if (wanted !== given)
    throw invalid("baseModel", `is ${wanted}, but the checkpoint was trained from ${given}`);
}
