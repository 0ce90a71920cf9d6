import { sep } from "node:path";
import { z } from "zod";
import { forwardBackwardRequestFromJson } from "../../wire/index.js";
import { camelToSnake } from "../../wire/json-keys.js";
import { decodeForwardBackwardRequest, encodeForwardBackwardOutput } from "../../wire/protobuf.js";
import { TensorData } from "../../wire/tensor-data.js";
import type { ForwardBackwardRequest } from "../../wire/training-types.js";
import type { BaseModelInfo, ForwardBackwardResult, LoraSettings } from "../engine/engine.js";
import { modelCacheFolder } from "../hub-model.js";
import {
  BodyTooLargeError,
  contentType,
  jsonBody,
  parseJsonObject,
  parseWith,
  readBody,
  readJsonObject,
} from "./body.js";
import { type App, type AppContext, type Core, modelInfo, textMetadata } from "./core.js";
import { changing, markCorrupted } from "./corruption.js";
import type { Outcome } from "./future-store.js";
import { HttpError, invalid } from "./http-error.js";
import type { Identity } from "./identity.js";
import { addModel, submitTo } from "./live-models.js";
import { peekRequest } from "./peek-request.js";
import * as schemas from "./schemas.js";
import type { LiveModel } from "./sessions.js";
import { checkLoss, fingerprintBatch, fingerprintJson, toEngineData } from "./training-data.js";

const DEFAULT_RANK = 32;

/** Models and what trains them: create, forward, backward, optimizer step, unload. */
export function addTrainingRoutes(app: App, core: Core): void {
  app.post("/api/v1/create_model", async (context) => {
    const request = await jsonBody(context, core, schemas.createModel);
    const session = core.sessions.use(context.get("identity"), request.session_id);
    const info = modelInfo(core, request.base_model, "base_model");
    const rank = request.lora_config?.rank ?? DEFAULT_RANK;
    if (rank > core.limits.loraRank) {
      throw invalid("lora_config.rank", `must be at most ${core.limits.loraRank}, got ${rank}`);
    }
    const lora: LoraSettings = {
      rank,
      seed: request.lora_config?.seed ?? Math.floor(core.random() * 2 ** 31),
      trainAttn: request.lora_config?.train_attn ?? true,
      trainMlp: request.lora_config?.train_mlp ?? true,
      trainUnembed: request.lora_config?.train_unembed ?? true,
    };
    if (!lora.trainAttn && !lora.trainMlp && !lora.trainUnembed) {
      throw invalid("lora_config", "must train at least one of train_attn, train_mlp and train_unembed");
    }
    const { model, future } = addModel(core, session, {
      modelSeqId: request.model_seq_id,
      info,
      lora,
      userMetadata: textMetadata(request.user_metadata),
      kind: "create_model",
      fingerprint: fingerprintJson(request),
      prepare: async (created) => {
        await core.engine.createAdapter(created.adapterId, info.name, lora);
        return { type: "create_model", model_id: created.run.id };
      },
    });
    return context.json({ request_id: future.requestId, model_id: model.run.id });
  });

  app.post("/api/v1/get_info", async (context) => {
    const request = await jsonBody(context, core, schemas.modelOnly);
    const { run, info } = core.sessions.model(context.get("identity"), request.model_id);
    return context.json({
      type: "get_info",
      model_id: run.id,
      model_name: info.name,
      is_lora: true,
      lora_rank: run.lora.rank,
      optimizer_config: { type: "adamw" },
      model_data: { arch: info.arch, model_name: info.name, tokenizer_id: tokenizerId(info) },
    });
  });

  app.post("/api/v1/unload_model", async (context) => {
    const identity = context.get("identity");
    const request = await jsonBody(context, core, schemas.modelOnly);
    const modelId = request.model_id;
    const session = core.sessions.use(identity, core.sessions.sessionIdOf(modelId));
    const before = session.unloads.get(modelId);
    if (before !== undefined) return context.json({ request_id: before, model_id: modelId });
    const model = core.sessions.model(identity, modelId);
    const future = submitTo(core, model, {
      seqId: undefined,
      kind: "unload_model",
      fingerprint: "unload_model",
      bytes: 0,
      execute: async () => {
        await core.engine.removeAdapter(model.adapterId);
        model.session.models.delete(model.run.id);
        const unloaded = { error: `Model ${model.run.id} was unloaded.`, category: "user" } as const;
        queueMicrotask(() => model.queue.close(unloaded));
        return { type: "json", body: { type: "unload_model", model_id: modelId } };
      },
    });
    session.unloads.set(modelId, future.requestId);
    return context.json({ request_id: future.requestId, model_id: model.run.id });
  });

  app.post("/api/v1/forward_backward", async (context) => {
    const isProtobuf = contentType(context.req.raw) === "application/x-protobuf";
    const body = await readBody(context.req.raw, core).catch((error: unknown) => {
      if (isProtobuf && error instanceof BodyTooLargeError) {
        const { modelId, seqId } = peekRequest(error.head);
        giveUpNumber(core, context.get("identity"), modelId, seqId);
      }
      throw error;
    });
    if (isProtobuf) {
      const peeked = peekRequest(body);
      return refusing(core, context, peeked.modelId, peeked.seqId, () => {
        const request = decodeForwardBackwardRequest(body);
        const { seq_id: seqId } = parseWith(schemas.numbered, { seq_id: request.seqId });
        return runPass(core, context, request, seqId ?? undefined);
      });
    }
    const { value } = parseJsonObject(body, core.limits);
    return runJsonPass(core, context, value, false);
  });

  app.post("/api/v1/forward", async (context) => {
    const { value } = await readJsonObject(context.req.raw, core);
    return runJsonPass(core, context, value, true);
  });

  app.post("/api/v1/optim_step", async (context) => {
    const { value } = await readJsonObject(context.req.raw, core);
    return refusing(core, context, value["model_id"], value["seq_id"], () => {
      const family = value["optimizer_params"] ?? value["optim_params"];
      if (typeof family === "object" && family !== null && "type" in family && family.type !== "adamw") {
        throw invalid(
          "optimizer_params.type",
          `must be adamw: it is the only optimizer of this server, got ${JSON.stringify(family.type)}`,
        );
      }
      const request = parseWith(schemas.optimStep, value);
      const model = core.sessions.model(context.get("identity"), request.model_id);
      const { adam } = request;
      const future = submitTo(core, model, {
        seqId: request.seq_id ?? undefined,
        kind: "optim_step",
        fingerprint: fingerprintJson(["optim_step", adam]),
        bytes: 0,
        execute: async () => {
          const result = await changing(core, model, "optim_step", () =>
            core.engine.optimStep(model.adapterId, {
              learningRate: adam.learning_rate,
              beta1: adam.beta1,
              beta2: adam.beta2,
              eps: adam.eps,
              weightDecay: adam.weight_decay,
              gradClipNorm: adam.grad_clip_norm,
            }),
          );
          const metrics = wireMetrics(result.metrics);
          await checkFinite(core, model, metrics);
          return { type: "json", body: { type: "optim_step", metrics } };
        },
      });
      return context.json({ request_id: future.requestId, model_id: model.run.id });
    });
  });
}

/** Clients on other machines find what came from the hub there; a folder is for those on this one. */
function tokenizerId({ name, tokenizerPath }: BaseModelInfo): string {
  return tokenizerPath.startsWith(`${modelCacheFolder(name)}${sep}`) ? name : tokenizerPath;
}

function runJsonPass(
  core: Core,
  context: AppContext,
  value: Record<string, unknown>,
  forwardOnly: boolean,
): Promise<Response> {
  return refusing(core, context, value["model_id"], value["seq_id"], () => {
    const key = forwardOnly ? "forward_input" : "forward_backward_input";
    parseWith(z.object({ [key]: schemas.passInput }), value);
    const { seq_id: seqId } = parseWith(schemas.numbered, value);
    return runPass(core, context, forwardBackwardRequestFromJson(value), seqId ?? undefined);
  });
}

function runPass(
  core: Core,
  context: AppContext,
  request: ForwardBackwardRequest,
  seqId: number | undefined,
): Response {
  const { forwardOnly } = request;
  const model = core.sessions.model(context.get("identity"), request.modelId);
  const { lossFn, lossFnConfig } = checkLoss(request.lossFn, request.lossFnConfig);
  const batch = toEngineData(request.data, lossFn, forwardOnly, model.info, core.limits);
  const kind = forwardOnly ? "forward" : "forward_backward";
  const future = submitTo(core, model, {
    seqId,
    kind,
    fingerprint: fingerprintBatch([kind, lossFn, lossFnConfig], batch.data),
    bytes: batch.bytes,
    execute: async () => {
      const shapes = batch.data.map((datum) =>
        datum.targetsPerToken === 1 ? [datum.tokens.length] : [datum.tokens.length, datum.targetsPerToken],
      );
      const { data, tokens } = batch;
      const call = { adapterId: model.adapterId, data, lossFn, lossFnConfig, forwardOnly };
      const pass = () => core.engine.forwardBackward(call);
      const result = await (forwardOnly ? pass() : changing(core, model, kind, pass));
      core.store.usage.add(core.clock.wallNow(), {
        owner: model.run.owner,
        sessionId: model.session.record.id,
        baseModel: model.info.name,
        kind: "training",
        count: tokens,
      });
      return toOutcome(result, shapes);
    },
  });
  return context.json({ request_id: future.requestId, model_id: model.run.id });
}

/** A step along gradients that are not numbers leaves weights that are none, and no later step mends them. */
async function checkFinite(core: Core, model: LiveModel, metrics: Record<string, number>): Promise<void> {
  const gradNorm = metrics["grad_norm:mean"];
  if (gradNorm === undefined || Number.isFinite(gradNorm)) return;
  const why = `its gradients were not finite (norm ${gradNorm})`;
  await markCorrupted(core, model, why);
  throw new HttpError(
    422,
    `This step left model ${model.run.id} without usable weights: ${why}. Create a new one from its last checkpoint, with a smaller learning rate or gradient clipping.`,
  );
}

/** The engine's metrics under the names that travel. */
function wireMetrics(metrics: Record<string, number>): Record<string, number> {
  return Object.fromEntries(Object.entries(metrics).map(([name, value]) => [camelToSnake(name), value]));
}

function toOutcome(result: ForwardBackwardResult, shapes: readonly number[][]): Outcome {
  const bytes = encodeForwardBackwardOutput({
    lossFnOutputType: "ArrayRecord",
    lossFnOutputs: result.logprobs.map((data, index) => ({
      logprobs: new TensorData({ dtype: "float32", data, shape: shapes[index]! }),
    })),
    metrics: wireMetrics(result.metrics),
  });
  return { type: "proto", message: "forward_backward", bytes };
}

/** Runs a numbered request; when it is refused, its number is given up, so that those behind it can go on. */
export async function refusing(
  core: Core,
  context: AppContext,
  modelId: unknown,
  seqId: unknown,
  action: () => Response | Promise<Response>,
): Promise<Response> {
  try {
    return await action();
  } catch (error) {
    const willComeAgain = error instanceof HttpError && error.status === 429;
    if (!willComeAgain) giveUpNumber(core, context.get("identity"), modelId, seqId);
    throw error;
  }
}

function giveUpNumber(core: Core, identity: Identity, modelId: unknown, seqId: unknown): void {
  if (typeof modelId !== "string" || typeof seqId !== "number" || !Number.isInteger(seqId)) return;
  let model: LiveModel;
  try {
    model = core.sessions.model(identity, modelId);
  } catch {
    return;
  }
  model.queue.refuse(seqId);
}
