import { readFile, stat } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { TinkerError } from "../errors.js";
import { askHub, type HubOptions } from "../tokenizers/hub.js";
import { hubCacheFolder, repositoryFolder } from "../tokenizers/hub-cache.js";
import { abortError } from "../transport/index.js";
import { type HubFile, HubSnapshot } from "./hub-snapshot.node.js";
import { weightFileNames } from "./weight-files.node.js";

/** The folder of a model on disk, and the name it goes by. */
export interface FoundModel {
  readonly name: string;
  readonly path: string;
}

/** How far the download of a model is, all its files together. */
export interface ModelDownload {
  readonly name: string;
  readonly bytes: number;
  /** Undefined where the hub does not say. */
  readonly totalBytes: number | undefined;
}

/** How a model is downloaded. */
export interface HubModelOptions {
  readonly fetch?: typeof fetch;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: ModelDownload) => void;
  /** Looks at the `config.json`; throws to refuse the model before its weights are downloaded. */
  readonly check?: (config: unknown, name: string) => void;
}

const WANTED_FILE =
  /^(config|generation_config|tokenizer|tokenizer_config)\.json$|^chat_template\.jinja$|^[^/]*\.safetensors(\.index\.json)?$/;

const HUB_ID = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*(@[\w./-]+)?$/;

/** Finds the folder of a model on disk, in the Hugging Face cache, or on the hub, from which it is downloaded into that cache. */
export async function findModel(source: string, options: HubModelOptions = {}): Promise<FoundModel> {
  if ((await sizeOf(join(source, "config.json"))) !== undefined)
    return { name: basename(resolve(source)), path: resolve(source) };
  if (!HUB_ID.test(source)) {
    throw new TinkerError(
      `${JSON.stringify(source)} is neither a folder with a config.json nor a Hugging Face id such as Qwen/Qwen3-0.6B.`,
    );
  }
  const { name, revision } = hubReference(source);
  return {
    name,
    path: (await cachedSnapshot(name, revision)) ?? (await downloadModel(name, revision, options)),
  };
}

/** The `config.json` of a model on disk, in the cache or on the hub; its weights are not downloaded. */
export async function modelConfig(source: string, options: HubModelOptions = {}): Promise<unknown> {
  const isId = HUB_ID.test(source);
  const { name, revision } = hubReference(source);
  for (const folder of [source, ...(isId ? [await snapshotFolder(name, revision)] : [])]) {
    const path = join(folder, "config.json");
    if ((await sizeOf(path)) !== undefined) return JSON.parse(await readFile(path, "utf8"));
  }
  if (!isId || process.env["HF_HUB_OFFLINE"]) return undefined;
  const path = `/${name}/resolve/${encodeURIComponent(revision)}/config.json`;
  return await (await askHub(hubOf(options), path, name, revision)).json();
}

function hubReference(source: string): { name: string; revision: string } {
  const [name, revision = "main"] = source.split("@") as [string, string | undefined];
  return { name, revision };
}

async function snapshotFolder(name: string, revision: string): Promise<string> {
  const repository = modelCacheFolder(name);
  const commit = await readFile(join(repository, "refs", revision), "utf8").catch(() => revision);
  return join(repository, "snapshots", commit.trim());
}

/** A snapshot in the cache that has all it needs, so that no network is asked. */
async function cachedSnapshot(name: string, revision: string): Promise<string | undefined> {
  const folder = await snapshotFolder(name, revision);
  if ((await sizeOf(join(folder, "config.json"))) === undefined) return undefined;
  const weights = await weightFileNames(folder).catch(() => []);
  const sizes = await Promise.all(weights.map((file) => sizeOf(join(folder, file))));
  return weights.length > 0 && !sizes.includes(undefined) ? folder : undefined;
}

/** Where the Hugging Face libraries keep a model. */
export function modelCacheFolder(name: string): string {
  return repositoryFolder(hubCacheFolder()!, { id: name, revision: "main" });
}

/** Downloads a model into the cache, from where an earlier attempt left it; returns its folder there. */
async function downloadModel(name: string, revision: string, options: HubModelOptions): Promise<string> {
  let refusal: unknown;
  const check: HubModelOptions["check"] = (config, of) => {
    try {
      options.check?.(config, of);
    } catch (error) {
      refusal = error;
      throw error;
    }
  };
  try {
    return await download(name, revision, { ...options, check });
  } catch (error) {
    if (options.signal?.aborted) throw abortError(options.signal, `The download of ${name}`);
    if (refusal !== undefined) throw refusal;
    const why = error instanceof Error ? error.message : String(error);
    throw new TinkerError(
      `Model ${name} could not be downloaded from the Hugging Face hub: ${why.replace(/\.$/, "")}. A folder that holds the model needs no network.`,
      { cause: error },
    );
  }
}

async function download(name: string, revision: string, options: HubModelOptions): Promise<string> {
  const { signal, onProgress } = options;
  const snapshot = new HubSnapshot({ kind: "model", name, revision }, hubOf(options), signal);
  const { commit, files: all } = await snapshot.list();
  const files = wantedFiles(all);
  if (files[0]?.path !== "config.json") throw new Error("it has no config.json");
  await snapshot.download(commit, files, {
    onBytes: (bytes, totalBytes) => onProgress?.({ name, bytes, totalBytes }),
    onFile: async ({ path }) => {
      if (path !== "config.json") return;
      options.check?.(JSON.parse(await readFile(join(snapshot.folderOf(commit), path), "utf8")), name);
    },
  });
  return snapshot.folderOf(commit);
}

/** The hub as the environment names it. */
export function hubOf({ fetch = globalThis.fetch, signal }: HubModelOptions): HubOptions {
  const token = process.env["HF_TOKEN"] || undefined;
  return {
    endpoint: (process.env["HF_ENDPOINT"] || "https://huggingface.co").replace(/\/+$/, ""),
    token,
    fetch: (url, init) => {
      const headers = new Headers(init?.headers);
      if (token !== undefined) headers.set("authorization", `Bearer ${token}`);
      return fetch(url, { ...(signal === undefined ? {} : { signal }), ...init, headers });
    },
  };
}

/** The configuration first: it says whether the model can be used at all. The weights, by far the largest, last. */
function wantedFiles(all: readonly HubFile[]): HubFile[] {
  const wanted = all.filter(({ path }) => WANTED_FILE.test(path));
  const isWeights = ({ path }: HubFile) => path.endsWith(".safetensors");
  // Some repositories hold the weights a second time, in their maker's own format.
  const own = wanted.filter((file) => isWeights(file) && file.path.startsWith("model"));
  const weights = own.length > 0 ? own : wanted.filter(isWeights);
  const others = wanted.filter((file) => !isWeights(file));
  const isConfig = ({ path }: HubFile) => path === "config.json";
  return [...others.filter(isConfig), ...others.filter((file) => !isConfig(file)), ...weights];
}

async function sizeOf(path: string): Promise<number | undefined> {
  return await stat(path).then(
    (found) => found.size,
    () => undefined,
  );
}
