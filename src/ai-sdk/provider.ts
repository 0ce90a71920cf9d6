import type { SamplingClient, ServiceClient } from "../clients/index.js";
import { TinkerError } from "../errors.js";
import { checkKeys, wrongValue } from "../wire/fields/check-keys.js";
import { modelOver, type TinkertsModel } from "./language-model.js";
import type { ModelSettings } from "./prepare-call.js";

/** Models by the name of a base model, or by the `tinker://` path of weights that were saved for sampling. */
export interface TinkertsProvider {
  (modelId: string, settings?: ModelSettings): TinkertsModel;
  readonly specificationVersion: "v3";
  languageModel(modelId: string, settings?: ModelSettings): TinkertsModel;
  /** Tinker has none: throws. */
  embeddingModel(modelId: string): never;
  /** Tinker has none: throws. */
  imageModel(modelId: string): never;
}

const OPTION_KEYS: ReadonlySet<string> = new Set(["service"]);

/** A provider for the AI SDK: `tinkerts("Qwen/Qwen3-8B")` is a model. Samplers are made when first asked, and kept. */
export function createTinkerts(options: {
  readonly service: Pick<ServiceClient, "createSamplingClient">;
}): TinkertsProvider {
  checkKeys(options, OPTION_KEYS, "");
  const { service } = options;
  if (typeof service?.createSamplingClient !== "function")
    throw wrongValue("service", "a ServiceClient", service);
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
    return modelOver(() => samplerOf(modelId), modelId, settings);
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
