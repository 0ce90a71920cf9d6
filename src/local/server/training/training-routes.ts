import { sep } from "node:path";
import { modelCacheFolder } from "../../../checkpoints/hub-model.node.js";
import { endpoints } from "../../../wire/endpoints/index.js";
import { adamParams } from "../../../wire/endpoints/training.js";
import { convertKeys } from "../../../wire/json-keys.js";
import {
  decodeForwardBackwardOutput,
  encodeForwardBackwardOutput,
  peekRequest,
  readForwardBackwardRequest,
} from "../../../wire/protobuf.js";
import { TensorData } from "../../../wire/tensors/tensor-data.js";
import type {
  AdamParams,
  ForwardBackwardRequest,
  OptimizerConfig,
  OptimParams,
} from "../../../wire/training/training-types.js";
import type { AdamSettings, BaseModelInfo, EngineDatum } from "../../engine/engine.js";
import { sessionIdOf } from "../../store/session-store.js";
import { EncodedResult } from "../futures/future-store.js";
import { BodyTooLargeError, contentType, inShortSteps, readBody } from "../http/body.js";
import { isOfThisMachine } from "../http/cross-site.js";
import { HttpError, invalid } from "../http/http-error.js";
import type { App, Call, RequestOwner, Route } from "../http/route.js";
import type { Services } from "../services.js";
import { findBaseModel } from "../sessions/base-models.js";
import { fingerprintJson } from "../sessions/fingerprint.js";
import type { LiveModels } from "../sessions/live-models.js";
import { type LiveModel, textMetadata } from "../sessions/live-sessions.js";
import { checkLoss, fingerprintBatch, toEngineBatch } from "./training-batch.js";

const DEFAULT_RANK = 32;

/** Models and what trains them: create, forward, backward, optimizer step, unload. */
export function addTrainingRoutes(app: App, route: Route, services: Services): void {
  const { engine, baseModels, sessions, models, store, clock, limits, reader, random, activity } = services;
  const numbered = models.numbered(route);

  route(endpoints.createModel, (request, call) => {
    const session = sessions.use(call.get("identity"), request.sessionId);
    const info = findBaseModel(baseModels, request.baseModel, "baseModel");
    checkOptimizer(request.optimizerConfig);
    const { seed, ...given } = request.loraConfig ?? {
      rank: DEFAULT_RANK,
      trainAttn: true,
      trainMlp: true,
      trainUnembed: true,
    };
    if (given.rank > limits.loraRank)
      throw invalid("loraConfig.rank", `must be at most ${limits.loraRank}, got ${given.rank}`);
    const wanted = {
      modelSeqId: request.modelSeqId,
      info,
      lora: { ...given, seed: seed ?? Math.floor(random() * 2 ** 31) },
      userMetadata: textMetadata(request.userMetadata),
    };
    return models.add(session, endpoints.createModel, fingerprintJson(request), wanted, async (model) => {
      await engine.createAdapter(model.adapterId, info.name, model.run.lora);
      return { modelId: model.run.id };
    });
  });

  route(endpoints.getInfo, ({ modelId }, call) => {
    const { run, info } = sessions.model(call.get("identity"), modelId);
    return {
      modelId,
      modelName: info.name,
      isLora: true,
      loraRank: run.lora.rank,
      optimizerConfig: { type: "adamw" },
      modelData: { arch: info.arch, modelName: info.name, tokenizerId: tokenizerId(info, call) },
    };
  });

  route(endpoints.unloadModel, ({ modelId }, call) => {
    const identity = call.get("identity");
    const session = sessions.use(identity, sessionIdOf(modelId));
    let requestId = session.unloads.get(modelId);
    if (requestId === undefined) {
      const model = sessions.model(identity, modelId);
      ({ requestId } = models.unload(model, endpoints.unloadModel, async () => {
        await engine.removeAdapter(model.adapterId);
        return { modelId };
      }));
      session.unloads.set(modelId, requestId);
    }
    return { requestId, modelId };
  });

  app.post(endpoints.forwardBackward.path, async (call, next) => {
    if (contentType(call.req.raw) !== "application/x-protobuf") return next();
    const identity = call.get("identity");
    let bytes: Uint8Array = new Uint8Array(0);
    try {
      bytes = await readBody(call, reader);
      const request = await inShortSteps(readForwardBackwardRequest(bytes, limits.datumsPerRequest));
      endpoints.forwardBackward.request.shape.seqId.read(request.seqId, "seqId");
      return call.json(endpoints.forwardBackward.answer.toJson(pass(identity, request)));
    } catch (error) {
      const { modelId, seqId } = peekRequest(error instanceof BodyTooLargeError ? error.head : bytes);
      models.giveUp(identity, modelId, seqId, error);
      throw error;
    }
  });
  numbered(endpoints.forwardBackward, ({ forwardBackwardInput: input, ...request }, call) =>
    pass(call.get("identity"), { ...request, ...input, forwardOnly: false }),
  );
  numbered(endpoints.forward, ({ forwardInput: input, ...request }, call) =>
    pass(call.get("identity"), { ...request, ...input, forwardOnly: true }),
  );

  function pass(identity: RequestOwner, request: Pass) {
    const { modelId, data, forwardOnly } = request;
    const model = sessions.model(identity, modelId);
    const loss = checkLoss(request.lossFn, request.lossFnConfig, model.session.customLosses);
    const batch = toEngineBatch(data, { loss, model: model.info, limits });
    const endpoint = forwardOnly ? endpoints.forward : endpoints.forwardBackward;
    const execute = async () => {
      const shapes = batch.data.map(({ tokens, targetsPerToken: columns }) =>
        columns === 1 ? [tokens.length] : [tokens.length, columns],
      );
      const { adapterId } = model;
      const startedAt = clock.now();
      const { lossFn, lossFnConfig } = loss;
      const customLoss = loss.customLoss && { inputs: loss.customLoss.inputs, graph: loss.customLoss.graph };
      const call = { adapterId, data: batch.data, lossFn, lossFnConfig, customLoss, forwardOnly };
      const run = () => engine.forwardBackward(call);
      const { logprobs, metrics } = await (forwardOnly ? run() : models.changing(model, endpoint, run));
      model.hasGradients ||= !forwardOnly;
      store.usage.add(clock.wallNow(), {
        owner: model.run.owner,
        sessionId: model.session.record.id,
        baseModel: model.info.name,
        kind: "training",
        count: batch.tokens,
      });
      activity.trained(model.run.id, {
        lossSum: metrics["loss:sum"] ?? 0,
        weight: weightOf(batch.data),
        tokens: batch.tokens,
        isForward: forwardOnly,
        startedAt,
      });
      const bytes = encodeForwardBackwardOutput({
        lossFnOutputType: "ArrayRecord",
        lossFnOutputs: logprobs.map((values, index) => ({
          logprobs: new TensorData({ dtype: "float32", data: values, shape: shapes[index]! }),
        })),
        metrics: convertKeys(metrics, "snake"),
      });
      return new EncodedResult(bytes, decodeForwardBackwardOutput);
    };
    const fingerprint = fingerprintBatch(
      [endpoint.path, loss.lossFn, loss.lossFnConfig, request.lossFnConfig],
      batch.data,
    );
    return models.submit(model, endpoint, request, execute, { fingerprint, bytes: batch.bytes });
  }

  numbered(endpoints.optimStep, (request, call) => {
    const model = sessions.model(call.get("identity"), request.modelId);
    const adam = adamOf(request);
    return models.submit(model, endpoints.optimStep, request, async () => {
      const step = await models.changing(model, endpoints.optimStep, () =>
        engine.optimStep(model.adapterId, adam),
      );
      model.hasGradients = false;
      const metrics = convertKeys(step.metrics, "snake");
      await checkFinite(models, model, metrics);
      activity.stepped(model.run.id);
      return { metrics };
    });
  });
}

type Pass = Omit<ForwardBackwardRequest, "seqId"> & { readonly seqId?: number | undefined };

function weightOf(data: readonly EngineDatum[]): number {
  let sum = 0;
  for (const { weights, targetTokens } of data)
    sum += weights === undefined ? targetTokens.length : weights.reduce((all, weight) => all + weight, 0);
  return sum;
}

/** Clients on other machines look for the name, on the hub or in their folder; a folder of ours is for those on this one. */
function tokenizerId({ name, tokenizerPath }: BaseModelInfo, call: Call): string {
  const isOfHub = tokenizerPath.startsWith(`${modelCacheFolder(name)}${sep}`);
  return isOfHub || !isOfThisMachine(call) ? name : tokenizerPath;
}

/** Refuses optimizers that this server does not have. */
export function checkOptimizer(config: OptimizerConfig | undefined): void {
  if (config === undefined || config.type === "adamw") return;
  throw invalid("optimizerConfig", "type must be adamw: it is the only optimizer of this server");
}

function adamOf(request: {
  readonly adamParams?: AdamParams | undefined;
  readonly optimParams?: OptimParams | undefined;
  readonly optimizerParams?: OptimParams | undefined;
}): AdamSettings {
  const family = request.optimizerParams ?? request.optimParams;
  if (family !== undefined && "type" in family && family.type !== "adamw") {
    throw invalid(
      "optimizerParams.type",
      `must be adamw: it is the only optimizer of this server, got ${JSON.stringify(family.type)}`,
    );
  }
  const params = request.adamParams ?? request.optimParams ?? family ?? adamParams.check({}, "");
  const { learningRate, beta1, beta2, eps, weightDecay, gradClipNorm } = params as AdamSettings;
  return { learningRate, beta1, beta2, eps, weightDecay, gradClipNorm };
}

/** A step along gradients that are not numbers leaves weights that are not numbers, and no later step repairs them. */
async function checkFinite(
  models: LiveModels,
  model: LiveModel,
  metrics: Record<string, number>,
): Promise<void> {
  const gradNorm = metrics["grad_norm:mean"];
  if (gradNorm === undefined || Number.isFinite(gradNorm)) return;
  const why = `its gradients were not finite (norm ${gradNorm})`;
  await models.markCorrupted(model, why);
  throw new HttpError(
    422,
    `This step left model ${model.run.id} without usable weights: ${why}. Create a new one from its last checkpoint, with a smaller learning rate or gradient clipping.`,
  );
}
