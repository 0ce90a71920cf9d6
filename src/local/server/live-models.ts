import type { BaseModelInfo, LoraSettings } from "../engine/engine.js";
import type { RunRecord } from "../store/run-store.js";
import type { Core } from "./core.js";
import { refuseCorrupted } from "./corruption.js";
import type { Future } from "./future-store.js";
import { describeFailure, HttpError } from "./http-error.js";
import { ModelQueue, type TrainingRequest } from "./model-queue.js";
import type { LiveModel, LiveSession } from "./sessions.js";

export interface NewModel {
  readonly modelSeqId: number;
  readonly info: BaseModelInfo;
  readonly lora: LoraSettings;
  readonly userMetadata: Record<string, string> | null;
  readonly kind: "create_model" | "load_weights";
  readonly fingerprint: string;
  /** Makes the adapter in the engine; returns the answer. */
  readonly prepare: (model: LiveModel) => Promise<Record<string, unknown>>;
}

/** Adds a model to a session, as request number 0 of its own queue; the same request again finds the same future. */
export function addModel(
  core: Core,
  session: LiveSession,
  request: NewModel,
): { model: LiveModel; future: Future } {
  const modelId = `${session.record.id}:train:${request.modelSeqId}`;
  const model = session.models.get(modelId) ?? newModel(core, session, modelId, request);
  const future = model.queue.submit({
    seqId: 0,
    kind: request.kind,
    fingerprint: request.fingerprint,
    bytes: 0,
    execute: async () => {
      try {
        const body = await request.prepare(model);
        await core.store.runs.save(model.run);
        return { type: "json", body };
      } catch (error) {
        session.models.delete(modelId);
        const { category } = describeFailure(error);
        const failure = { error: `Model ${modelId} could not be created.`, category };
        queueMicrotask(() => model.queue.close(failure));
        throw error;
      }
    },
  });
  return { model, future };
}

function newModel(core: Core, session: LiveSession, modelId: string, request: NewModel): LiveModel {
  if (core.store.runs.get(modelId) !== undefined) {
    throw new HttpError(409, `Model ${modelId} existed before and was unloaded; take another model_seq_id.`, {
      "x-should-retry": "false",
    });
  }
  if (session.models.size >= core.limits.modelsPerSession) {
    throw new HttpError(
      429,
      `Session ${session.record.id} has ${session.models.size} models, its limit; unload some first.`,
      { "retry-after": "5" },
    );
  }
  const now = core.clock.wallNow();
  const run: RunRecord = {
    id: modelId,
    owner: session.record.owner,
    sessionId: session.record.id,
    projectId: session.record.projectId,
    baseModel: request.info.name,
    lora: request.lora,
    userMetadata: request.userMetadata,
    createdAt: now,
    lastRequestAt: now,
    corrupted: false,
  };
  const queue = new ModelQueue({
    modelId,
    owner: run.owner,
    clock: core.clock,
    futures: core.futures,
    limits: core.limits,
    trace: session.trace,
    budget: core.budget,
  });
  const model: LiveModel = { run, adapterId: `model-${modelId}`, info: request.info, queue, session };
  session.models.set(modelId, model);
  return model;
}

export function submitTo(core: Core, model: LiveModel, request: TrainingRequest): Future {
  const future = model.queue.submit({
    ...request,
    execute: async () => {
      if (request.kind !== "unload_model") refuseCorrupted(model);
      return request.execute();
    },
  });
  core.store.runs.touch(model.run, core.clock.wallNow());
  return future;
}
