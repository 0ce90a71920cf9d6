import { mkdir, readFile, rename, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { z } from "zod";
import { transferFile } from "../checkpoints/transfer.node.js";
import { writeFileAtomic } from "../files.node.js";
import { askHub, type HubOptions } from "../tokenizers/hub.js";
import { hubCacheFolder, repositoryFolder } from "../tokenizers/hub-cache.js";
import { abortError, systemClock } from "../transport/index.js";
import { EngineInputError } from "./engine/engine.js";

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

const revisionSchema = z.object({
  sha: z.string().regex(/^[0-9a-f]{40}$/),
  siblings: z.array(z.object({ rfilename: z.string(), size: z.number().nullish() })),
});

/** Where the Hugging Face libraries keep a model. */
export function modelCacheFolder(name: string): string {
  return repositoryFolder(hubCacheFolder()!, { id: name, revision: "main" });
}

/** Downloads a model into the cache, from where an earlier attempt left it; returns its folder there. */
export async function downloadModel(
  name: string,
  revision: string,
  options: HubModelOptions,
): Promise<string> {
  try {
    return await download(name, revision, options);
  } catch (error) {
    if (options.signal?.aborted) throw abortError(options.signal, `The download of ${name}`);
    // Refused, not failed.
    if (error instanceof EngineInputError) throw error;
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(
      `Model ${name} could not be downloaded from the Hugging Face hub: ${why.replace(/\.$/, "")}. A folder that holds the model needs no network.`,
      { cause: error },
    );
  }
}

async function download(name: string, revision: string, options: HubModelOptions): Promise<string> {
  const { signal, onProgress } = options;
  const hub = hubOf(options);
  const answer = await askHub(
    hub,
    `/api/models/${name}/revision/${encodeURIComponent(revision)}?blobs=true`,
    name,
    revision,
  );
  const { sha, siblings } = revisionSchema.parse(await answer.json());
  const files = wantedFiles(siblings);
  if (files[0]?.rfilename !== "config.json") throw new Error("it has no config.json");
  const folder = join(modelCacheFolder(name), "snapshots", sha);
  await mkdir(folder, { recursive: true });
  const totalBytes = files.every(({ size }) => typeof size === "number")
    ? files.reduce((sum, { size }) => sum + size!, 0)
    : undefined;
  let before = 0;
  for (const { rfilename: file } of files) {
    const path = join(folder, file);
    if ((await sizeOf(path)) === undefined) {
      await transferFile({
        file,
        target: `${path}.incomplete`,
        // A commit's files never change, so what an earlier attempt left is good.
        state: {},
        saveState: async () => {},
        url: async () => `${hub.endpoint}/${name}/resolve/${sha}/${file}`,
        onBytes: (bytes) => onProgress?.({ name, bytes: before + bytes, totalBytes }),
        fetch: hub.fetch,
        clock: systemClock,
        signal,
      });
      await rename(`${path}.incomplete`, path);
    }
    before += (await sizeOf(path)) ?? 0;
    onProgress?.({ name, bytes: before, totalBytes });
    if (file === "config.json") options.check?.(JSON.parse(await readFile(path, "utf8")), name);
  }
  const reference = join(modelCacheFolder(name), "refs", revision);
  await mkdir(dirname(reference), { recursive: true });
  await writeFileAtomic(reference, sha);
  return folder;
}

function hubOf({ fetch = globalThis.fetch, signal }: HubModelOptions): HubOptions {
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

type HubFile = z.output<typeof revisionSchema>["siblings"][number];

/** The configuration first: it says whether the model can be used at all. The weights, by far the largest, last. */
function wantedFiles(siblings: readonly HubFile[]): HubFile[] {
  const wanted = siblings.filter(({ rfilename }) => WANTED_FILE.test(rfilename));
  const isWeights = ({ rfilename }: HubFile) => rfilename.endsWith(".safetensors");
  // Some repositories hold the weights a second time, in their maker's own format.
  const own = wanted.filter((file) => isWeights(file) && file.rfilename.startsWith("model"));
  const weights = own.length > 0 ? own : wanted.filter(isWeights);
  const others = wanted.filter((file) => !isWeights(file));
  const isConfig = ({ rfilename }: HubFile) => rfilename === "config.json";
  return [...others.filter(isConfig), ...others.filter((file) => !isConfig(file)), ...weights];
}

async function sizeOf(path: string): Promise<number | undefined> {
  return await stat(path).then(
    (found) => found.size,
    () => undefined,
  );
}
