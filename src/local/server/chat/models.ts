import { stat } from "node:fs/promises";
import { type ChatModel, type ChatModels, type ModelEntry, ParamError } from "../../../chat-api/index.js";
import { ValidationError } from "../../../errors.js";
import {
  ConversationError,
  type ConversationField,
  prepareAnswer,
} from "../../../renderers/prepare-answer.js";
import { isTinkerPath } from "../../../wire/records/tinker-path.js";
import { EngineInputError, type JsonConstraint } from "../../engine/engine.js";
import { checkConstraintSize } from "../../engine/sampling/json/schema-grammar.js";
import { tinkerPath } from "../checkpoints/find-checkpoint.js";
import { HttpError } from "../http/http-error.js";
import { mayAccess, type RequestOwner } from "../http/route.js";
import { findSampledModel, type SampledModel } from "../sampling/sampling-sessions.js";
import type { Services } from "../services.js";
import { drawSamples, engineSource } from "./engine-source.js";
import { promptCall } from "./prompt-call.js";
import type { TextModel } from "./text-models.js";

/** The models of this server that one of its users may chat with: base models and sampler checkpoints. */
export function chatModelsOf(services: Services, identity: RequestOwner): ChatModels {
  const { baseModels, store, textModelOf } = services;

  /** The model that a request names: a base model, or a checkpoint by its path. */
  function sampledModel(name: string): SampledModel {
    try {
      const named = isTinkerPath(name) ? { modelPath: name } : { baseModel: name };
      return findSampledModel(store, baseModels, identity, named);
    } catch (error) {
      if (!(error instanceof HttpError) && !(error instanceof ValidationError)) throw error;
      const message = `The model ${JSON.stringify(name)} does not exist, or you have no access to it.`;
      throw new ParamError(404, "model_not_found", message, "model");
    }
  }

  /** A base model is as old as its folder. */
  async function baseEntry(name: string): Promise<ModelEntry> {
    const { maxContextLength, tokenizerPath } = baseModels.get(name)!;
    const modifiedMs = await stat(tokenizerPath).then(
      ({ mtimeMs }) => mtimeMs,
      () => 0,
    );
    return entry(name, modifiedMs, maxContextLength, null);
  }

  return {
    async find(name = [...baseModels.keys()][0] ?? "") {
      const model = sampledModel(name);
      return chatModel(services, identity, model, await textModelOf(model.info));
    },

    async list() {
      const bases = await Promise.all([...baseModels.keys()].map(baseEntry));
      const checkpoints = store.checkpoints
        .list(({ kind, runId, public: isPublic }) => {
          const owner = store.runs.get(runId)?.owner;
          return (
            kind === "sampler_weights" && owner !== undefined && (isPublic || mayAccess(identity, owner))
          );
        })
        .flatMap((record) => {
          const { baseModel } = store.runs.get(record.runId)!;
          const info = baseModels.get(baseModel);
          return info ? [entry(tinkerPath(record), record.createdAt, info.maxContextLength, baseModel)] : [];
        });
      return [...checkpoints, ...bases].sort((one, other) => other.created - one.created);
    },

    async entry(name) {
      const { info, weights } = sampledModel(name);
      if (weights.type !== "checkpoint") return baseEntry(info.name);
      return entry(name, weights.record.createdAt, info.maxContextLength, info.name);
    },
  };
}

/** A model of this server, sampled by its engine on behalf of one user. */
function chatModel(
  { sampleRuns }: Pick<Services, "sampleRuns">,
  identity: RequestOwner,
  model: SampledModel,
  text: TextModel,
): ChatModel {
  const { info } = model;
  const use = { sampleRuns, identity, model };
  return {
    name: info.name,
    maxContextLength: info.maxContextLength,
    endTokens: info.eosTokenIds,
    formats: text.formats,
    tokenizer: text.tokenizer,
    get tokenNames() {
      return text.tokenNames;
    },
    tokenizerSettings: () => text.tokenizerSettings(),
    open(request, renderer) {
      checkSize(request.responseFormat, "responseFormat");
      const prepared = prepareAnswer(renderer, request);
      checkSize(prepared.shape && { type: "shape", shape: prepared.shape }, "tools");
      return { prepared, source: engineSource(use) };
    },
    complete(prompts, isLive, signal) {
      const calls = prompts.map((prompt) => promptCall(info, "prompt", prompt));
      return drawSamples(use, calls, isLive, signal);
    },
  };
}

/** Refuses a schema that is too large; whether it can be kept to is for the engine to say. */
function checkSize(constraint: JsonConstraint | undefined, field: ConversationField): void {
  if (constraint === undefined) return;
  try {
    checkConstraintSize(constraint);
  } catch (error) {
    if (!(error instanceof EngineInputError)) throw error;
    throw new ConversationError(field, `cannot be used: ${error.message}`, {
      isUnsupported: false,
    });
  }
}

function entry(id: string, createdMs: number, maxContextLength: number, parent: string | null): ModelEntry {
  const created = Math.floor(createdMs / 1000);
  return { id, object: "model", created, owned_by: "tinkerts", max_model_len: maxContextLength, parent };
}
