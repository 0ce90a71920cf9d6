import type { SamplingClient, ServiceClient } from "../clients/index.js";
import { TinkerError } from "../errors.js";
import { having, optionTable, wrongValue } from "../wire/index.js";
import { modelOver, type TinkertsModel } from "./language-model.js";
import { MODEL_SETTINGS, type ModelSettings } from "./prepare-call.js";

/** Makes models by the name of a base model, or by the `tinker://` path of weights saved for sampling. */
export interface TinkertsProvider {
  (modelId: string, settings?: ModelSettings): TinkertsModel;
  readonly specificationVersion: "v3";
  languageModel(modelId: string, settings?: ModelSettings): TinkertsModel;
  /** Throws: Tinker has no embedding models. */
  embeddingModel(modelId: string): never;
  /** Throws: Tinker has no image models. */
  imageModel(modelId: string): never;
}

const PROVIDER_OPTIONS = optionTable({
  service: having<Pick<ServiceClient, "createSamplingClient">>("a ServiceClient", "createSamplingClient"),
});
const MODEL_OPTIONS = optionTable(MODEL_SETTINGS);

/**
 * Makes a provider for the AI SDK: `tinkerts("Qwen/Qwen3-8B")` is a model. Each sampler is created at first use and
 * kept.
 */
export function createTinkerts(options: {
  readonly service: Pick<ServiceClient, "createSamplingClient">;
}): TinkertsProvider {
  const { service } = PROVIDER_OPTIONS.check(options, "createTinkerts");
  const samplers = new Map<string, Promise<SamplingClient>>();

  function samplerOf(modelId: string): Promise<SamplingClient> {
    const known = samplers.get(modelId);
    if (known !== undefined) return known;
    const isPath = modelId.startsWith("tinker://");
    const making = service.createSamplingClient(isPath ? { modelPath: modelId } : { baseModel: modelId });
    making.catch(() => samplers.delete(modelId));
    samplers.set(modelId, making);
    return making;
  }

  function languageModel(modelId: string, settings: ModelSettings = {}): TinkertsModel {
    if (typeof modelId !== "string" || modelId === "") {
      throw wrongValue("modelId", "the name of a base model or a tinker:// path", modelId);
    }
    return modelOver(() => samplerOf(modelId), modelId, MODEL_OPTIONS.check(settings, "the model"));
  }

  const none = (kind: string) => (modelId: string) => {
    throw new TinkerError(`tinkerts has no ${kind} models, and so no ${modelId}: only language models.`);
  };

  return Object.assign((modelId: string, settings?: ModelSettings) => languageModel(modelId, settings), {
    specificationVersion: "v3" as const,
    languageModel,
    embeddingModel: none("embedding"),
    imageModel: none("image"),
  });
}
