import { mkdir, readFile, rename, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { z } from "zod";
import { TinkerError } from "../errors.js";
import { writeFileAtomic } from "../files.node.js";
import { askHub, type HubOptions } from "../tokenizers/hub.js";
import { hubCacheFolder } from "../tokenizers/hub-cache.js";
import { systemClock } from "../transport/index.js";
import { transferFile } from "./transfer.node.js";

/** A repository of the Hugging Face Hub at one of its revisions. */
export interface HubRepository {
  readonly kind: "model" | "data set";
  /** `OWNER/NAME`. */
  readonly name: string;
  readonly revision: string;
}

/** A file of a repository. */
export interface HubFile {
  readonly path: string;
  /** Undefined where the hub does not say. */
  readonly size: number | undefined;
}

/** Optional settings of a download. */
export interface SnapshotDownload {
  /** All files together; the total is undefined where the hub does not say. */
  readonly onBytes?: (bytes: number, totalBytes: number | undefined) => void;
  /** After each file. An error ends the download. */
  readonly onFile?: (file: HubFile) => Promise<void>;
  /** All files of the commit, to be listed in the cache. */
  readonly all?: readonly HubFile[];
}

const revisionSchema = z.object({
  sha: z.string().regex(/^[0-9a-f]{40}$/),
  siblings: z.array(z.object({ rfilename: z.string(), size: z.number().nullish() })),
});

const listingSchema = z.array(
  z
    .object({ path: z.string().refine(isInside), size: z.number().optional() })
    .transform(({ path, size }) => ({ path, size })),
);

const FOLDERS = { model: "models", "data set": "datasets" } as const;

// By hand, because the Hub library's snapshotDownload fetches every file of a repository, begins a cut file again, and
// knows neither progress nor signals.

/** Files of a repository in the cache that all Hugging Face libraries share. */
export class HubSnapshot {
  readonly #repository: HubRepository;
  readonly #hub: HubOptions;
  readonly #signal: AbortSignal | undefined;

  constructor(repository: HubRepository, hub: HubOptions, signal?: AbortSignal) {
    this.#repository = repository;
    this.#hub = hub;
    this.#signal = signal;
  }

  get #cacheFolder(): string {
    const { kind, name } = this.#repository;
    return join(hubCacheFolder()!, `${FOLDERS[kind]}--${name.replace("/", "--")}`);
  }

  #listingOf(commit: string): string {
    return join(this.#cacheFolder, "listings", `${commit}.json`);
  }

  /** Where the files of a commit are. */
  folderOf(commit: string): string {
    return join(this.#cacheFolder, "snapshots", commit);
  }

  /** The commit that the revision names in the cache; undefined if it is not there. */
  async cachedCommit(): Promise<string | undefined> {
    const { revision } = this.#repository;
    const commit = await readFile(join(this.#cacheFolder, "refs", revision), "utf8").catch(() => revision);
    return /^[0-9a-f]{40}$/.test(commit.trim()) ? commit.trim() : undefined;
  }

  /** The files of a commit, as the hub listed them when some of them were downloaded. */
  async cachedFiles(commit: string): Promise<readonly HubFile[] | undefined> {
    const text = await readFile(this.#listingOf(commit), "utf8").catch(() => undefined);
    return text === undefined ? undefined : listingSchema.parse(JSON.parse(text));
  }

  /** Whether all these files of a commit are in the cache. */
  async has(commit: string, files: readonly HubFile[]): Promise<boolean> {
    const sizes = await Promise.all(files.map(({ path }) => sizeOf(join(this.folderOf(commit), path))));
    return sizes.every((size) => size !== undefined);
  }

  /** Asks the hub which commit the revision names, and which files that has. */
  async list(): Promise<{ readonly commit: string; readonly files: readonly HubFile[] }> {
    const { kind, name, revision } = this.#repository;
    const path = `/api/${FOLDERS[kind]}/${name}/revision/${encodeURIComponent(revision)}?blobs=true`;
    const answer = await askHub(this.#hub, path, name, revision, kind);
    const { sha, siblings } = revisionSchema.parse(await answer.json());
    const outside = siblings.find(({ rfilename }) => !isInside(rfilename));
    if (outside !== undefined)
      throw new TinkerError(`${name} has a file with a strange name: ${outside.rfilename}`);
    return {
      commit: sha,
      files: siblings.map(({ rfilename, size }) => ({ path: rfilename, size: size ?? undefined })),
    };
  }

  /** Downloads files of a commit that are not there yet, from where an earlier attempt left them. */
  async download(
    commit: string,
    files: readonly HubFile[],
    { onBytes, onFile, all }: SnapshotDownload = {},
  ): Promise<void> {
    const { kind, name, revision } = this.#repository;
    const totalBytes = files.every(({ size }) => size !== undefined)
      ? files.reduce((sum, { size }) => sum + size!, 0)
      : undefined;
    const place = kind === "model" ? name : `${FOLDERS[kind]}/${name}`;
    let before = 0;
    for (const file of files) {
      const target = join(this.folderOf(commit), file.path);
      if ((await sizeOf(target)) === undefined) {
        await mkdir(dirname(target), { recursive: true });
        await transferFile({
          file: file.path,
          target: `${target}.incomplete`,
          // A commit's files never change, so what an earlier attempt left is good.
          state: {},
          saveState: async () => {},
          url: async () => `${this.#hub.endpoint}/${place}/resolve/${commit}/${urlPath(file.path)}`,
          onBytes: (bytes) => onBytes?.(before + bytes, totalBytes),
          fetch: this.#hub.fetch,
          clock: systemClock,
          signal: this.#signal,
        });
        await rename(`${target}.incomplete`, target);
      }
      before += (await sizeOf(target)) ?? 0;
      onBytes?.(before, totalBytes);
      await onFile?.(file);
    }
    // Says without a network which files there are, when only some of them were wanted.
    if (all !== undefined) {
      await mkdir(dirname(this.#listingOf(commit)), { recursive: true });
      await writeFileAtomic(this.#listingOf(commit), JSON.stringify(all));
    }
    const reference = join(this.#cacheFolder, "refs", revision);
    await mkdir(dirname(reference), { recursive: true });
    await writeFileAtomic(reference, commit);
  }
}

/** A name that stays in the folder of its repository. */
function isInside(path: string): boolean {
  return !/^[\\/]|\\|^[A-Za-z]:|(?:^|\/)\.\.(?:\/|$)/.test(path);
}

const urlPath = (path: string) => path.split("/").map(encodeURIComponent).join("/");

async function sizeOf(path: string): Promise<number | undefined> {
  return await stat(path).then(
    (found) => found.size,
    () => undefined,
  );
}
