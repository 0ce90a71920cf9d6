import { access, readFile, stat } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { defaultModel, type LocalModel } from "./default-model.js";
import { readShards } from "./engine/model/model-folder.node.js";
import { downloadModel, type HubModelOptions, modelCacheFolder } from "./hub-model.js";

/** A folder with a name of its own, a folder, or a Hugging Face id (`org/model`, also `org/model@revision`). */
export type ModelSource = LocalModel | string;

const HUB_ID = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*(@[\w./-]+)?$/;

/** Finds a model on disk, in the Hugging Face cache, or on the hub, from which it is downloaded into that cache. */
export async function resolveModel(source: ModelSource, options: HubModelOptions = {}): Promise<LocalModel> {
  if (typeof source !== "string") return { name: source.name, path: await modelFolder(source.path) };
  if (source === defaultModel.name) return defaultModel;
  if (await isFile(join(source, "config.json")))
    return { name: basename(resolve(source)), path: resolve(source) };
  if (!HUB_ID.test(source)) {
    throw new Error(
      `${JSON.stringify(source)} is neither a folder with a config.json nor a Hugging Face id such as Qwen/Qwen3-0.6B.`,
    );
  }
  const [name, revision = "main"] = source.split("@") as [string, string | undefined];
  return {
    name,
    path: (await cachedSnapshot(name, revision)) ?? (await downloadModel(name, revision, options)),
  };
}

async function modelFolder(path: string): Promise<string> {
  if (await isFile(join(path, "config.json"))) return path;
  throw new Error(`${path} is not the folder of a model: it has no config.json.`);
}

async function isFile(path: string): Promise<boolean> {
  return await stat(path).then(
    (found) => found.isFile(),
    () => false,
  );
}

/** A snapshot in the cache that has all it needs, so that no network is asked. */
async function cachedSnapshot(name: string, revision: string): Promise<string | undefined> {
  const repository = modelCacheFolder(name);
  const commit = await readFile(join(repository, "refs", revision), "utf8").catch(() => revision);
  const folder = join(repository, "snapshots", commit.trim());
  for (const file of ["config.json", ...(await weightFiles(folder))]) {
    if (
      !(await access(join(folder, file)).then(
        () => true,
        () => false,
      ))
    )
      return undefined;
  }
  return folder;
}

async function weightFiles(folder: string): Promise<string[]> {
  const index = join(folder, "model.safetensors.index.json");
  return (await isFile(index)) ? readShards(index) : ["model.safetensors"];
}
