import { stat } from "node:fs/promises";
import { ValidationError } from "../../../errors.js";
import { isTinkerPath } from "../../../wire/records/tinker-path.js";
import { type CheckpointRecords, tinkerPath } from "../checkpoints/find-checkpoint.js";
import { HttpError } from "../http/http-error.js";
import { type App, type Identity, mayAccess } from "../http/route.js";
import { findSampledModel, type SampledModel } from "../sampling/sampling-sessions.js";
import type { BaseModels } from "../sessions/base-models.js";
import { OPENAI_PATHS, OpenAiError } from "./openai-errors.js";

/** Where models are looked for. */
export interface ModelServices {
  readonly baseModels: BaseModels;
  readonly store: CheckpointRecords;
}

interface ModelEntry {
  readonly id: string;
  readonly object: "model";
  readonly created: number;
  readonly owned_by: "tinkerts";
  readonly max_model_len: number;
  /** The base model of a checkpoint. */
  readonly parent: string | null;
}

/** The model that a request names: a base model, or a checkpoint by its path. */
export function findModel(
  { store, baseModels }: ModelServices,
  identity: Identity,
  name: string,
): SampledModel {
  try {
    const named = isTinkerPath(name) ? { modelPath: name } : { baseModel: name };
    return findSampledModel(store, baseModels, identity, named);
  } catch (error) {
    if (!(error instanceof HttpError) && !(error instanceof ValidationError)) throw error;
    const message = `The model ${JSON.stringify(name)} does not exist, or you have no access to it.`;
    throw new OpenAiError(404, "model_not_found", message, "model");
  }
}

/** Base models and sampler checkpoints, newest first, and each by its id. */
export function addModelRoutes(app: App, services: ModelServices): void {
  const { baseModels, store } = services;

  /** A base model is as old as its folder. */
  async function baseEntry(name: string): Promise<ModelEntry> {
    const { maxContextLength, tokenizerPath } = baseModels.get(name)!;
    const modifiedMs = await stat(tokenizerPath).then(
      ({ mtimeMs }) => mtimeMs,
      () => 0,
    );
    return entry(name, modifiedMs, maxContextLength, null);
  }

  async function visible(identity: Identity): Promise<ModelEntry[]> {
    const bases = await Promise.all([...baseModels.keys()].map(baseEntry));
    const checkpoints = store.checkpoints
      .list(({ kind, runId, public: isPublic }) => {
        const owner = store.runs.get(runId)?.owner;
        return kind === "sampler_weights" && owner !== undefined && (isPublic || mayAccess(identity, owner));
      })
      .flatMap((record) => {
        const { baseModel } = store.runs.get(record.runId)!;
        const info = baseModels.get(baseModel);
        return info ? [entry(tinkerPath(record), record.createdAt, info.maxContextLength, baseModel)] : [];
      });
    return [...checkpoints, ...bases].sort((one, other) => other.created - one.created);
  }

  for (const path of OPENAI_PATHS) {
    app.get(`${path}/models`, async (call) =>
      call.json({ object: "list", data: await visible(call.get("identity")) }),
    );

    app.get(`${path}/models/:id{.+}`, async (call) => {
      const id = call.req.param("id");
      const { info, weights } = findModel(services, call.get("identity"), id);
      if (weights.type !== "checkpoint") return call.json(await baseEntry(info.name));
      return call.json(entry(id, weights.record.createdAt, info.maxContextLength, info.name));
    });
  }
}

function entry(id: string, createdMs: number, maxContextLength: number, parent: string | null): ModelEntry {
  const created = Math.floor(createdMs / 1000);
  return { id, object: "model", created, owned_by: "tinkerts", max_model_len: maxContextLength, parent };
}
