import { access, mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { z } from "zod";
import { defaultModel, type LocalModel } from "./default-model.js";

/** A folder with a name of its own, a folder, or a Hugging Face id (`org/model`, also `org/model@revision`). */
export type ModelSource = LocalModel | string;

const HUB_ID = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*(@[\w./-]+)?$/;
const WANTED_FILE =
  /^(config|generation_config|tokenizer|tokenizer_config)\.json$|^chat_template\.jinja$|^[^/]*\.safetensors(\.index\.json)?$/;

const indexSchema = z.object({ weight_map: z.record(z.string(), z.string()) });
const revisionSchema = z.object({
  sha: z.string().regex(/^[0-9a-f]{40}$/),
  siblings: z.array(z.object({ rfilename: z.string() })),
});

/** Finds a model on disk, in the Hugging Face cache, or on the hub, from which it is downloaded into that cache. */
export async function resolveModel(
  source: ModelSource,
  options: { fetch?: typeof fetch } = {},
): Promise<LocalModel> {
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
    path: (await cachedSnapshot(name, revision)) ?? (await download(name, revision, options.fetch)),
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

async function repositoryFolder(name: string): Promise<string> {
  const { getHFHubCachePath, getRepoFolderName } = await import("@huggingface/hub");
  return join(getHFHubCachePath(), getRepoFolderName({ type: "model", name }));
}

/** A snapshot in the cache that has all it needs, so that no network is asked. */
async function cachedSnapshot(name: string, revision: string): Promise<string | undefined> {
  const repository = await repositoryFolder(name);
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
  if (!(await isFile(join(folder, "model.safetensors.index.json")))) return ["model.safetensors"];
  const index = await readFile(join(folder, "model.safetensors.index.json"), "utf8");
  return [...new Set(Object.values(indexSchema.parse(JSON.parse(index)).weight_map))];
}

async function download(name: string, revision: string, fetch = globalThis.fetch): Promise<string> {
  const { downloadFileToCacheDir } = await import("@huggingface/hub");
  const hubUrl = process.env["HF_ENDPOINT"] ?? "https://huggingface.co";
  const accessToken = process.env["HF_TOKEN"];
  try {
    const response = await fetch(`${hubUrl}/api/models/${name}/revision/${encodeURIComponent(revision)}`, {
      headers: accessToken === undefined ? {} : { authorization: `Bearer ${accessToken}` },
    });
    if (!response.ok) throw new Error(`the hub answered ${response.status} ${response.statusText}`.trim());
    const { sha, siblings } = revisionSchema.parse(await response.json());
    let folder: string | undefined;
    for (const { rfilename: path } of siblings) {
      if (!WANTED_FILE.test(path)) continue;
      const file = await downloadFileToCacheDir({
        repo: { type: "model", name },
        path,
        // By its commit: by a branch's name every file would go to the folder of its own last change.
        revision: sha,
        hubUrl,
        fetch,
        ...(accessToken === undefined ? {} : { accessToken }),
      });
      if (path === "config.json") folder = dirname(file);
    }
    if (folder === undefined) throw new Error("it has no config.json");
    const reference = join(await repositoryFolder(name), "refs", revision);
    await mkdir(dirname(reference), { recursive: true });
    await writeFile(reference, sha);
    return folder;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(`Model ${name} could not be downloaded from the Hugging Face hub: ${why}.`, {
      cause: error,
    });
  }
}
