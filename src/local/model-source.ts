import { stat } from "node:fs/promises";
import { join } from "node:path";
import { findModel, type HubModelOptions, modelConfig } from "../checkpoints/hub-model.node.js";
import { defaultModel, type LocalModel } from "./default-model.js";

/** A named folder, a folder, or a Hugging Face id (`org/model`, also `org/model@revision`). */
export type ModelSource = LocalModel | string;

/** Finds a model on disk, in the Hugging Face cache, or on the hub, from which it is downloaded into that cache. */
export async function resolveModel(source: ModelSource, options: HubModelOptions = {}): Promise<LocalModel> {
  if (typeof source !== "string") return { name: source.name, path: await modelFolder(source.path) };
  return source === defaultModel.name ? defaultModel : findModel(source, options);
}

async function modelFolder(path: string): Promise<string> {
  const found = await stat(join(path, "config.json")).catch(() => undefined);
  if (found?.isFile()) return path;
  throw new Error(`${path} is not the folder of a model: it has no config.json.`);
}

/** The `config.json` of a model on disk, in the cache or on the hub; its weights are not downloaded. */
export async function sourceConfig(source: string, options: HubModelOptions = {}): Promise<unknown> {
  return await modelConfig(source === defaultModel.name ? defaultModel.path : source, options);
}
