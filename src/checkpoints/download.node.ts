import { createHash } from "node:crypto";
import { lstat, mkdir, readFile, rename, rm, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { TinkerError, ValidationError } from "../errors.js";
import { cannotWrite, errorCode, writeFileAtomic } from "../files.node.js";
import { type Clock, type RequestOptions, systemClock } from "../transport/index.js";
import {
  type CheckpointArchiveUrl,
  type ExternalWeightsUrls,
  parseTinkerPath,
  type TinkerPath,
} from "../wire/index.js";
import { extractArchive } from "./extract.node.js";
import { ArchiveError, safePath } from "./safe-path.js";
import { type TransferState, transferFile } from "./transfer.node.js";

/** What a download asks of the server; a `RestClient` is one. */
export interface CheckpointUrls {
  getCheckpointArchiveUrl(path: string, options?: RequestOptions): Promise<CheckpointArchiveUrl>;
  getExternalWeightsUrls(path: string, options?: RequestOptions): Promise<ExternalWeightsUrls>;
}

/** How far a download is. */
export interface DownloadProgress {
  /** Bytes of this file that are on disk. */
  readonly bytes: number;
  /** Undefined when the server does not say. */
  readonly totalBytes: number | undefined;
  readonly file: string;
}

/** Options of `downloadCheckpoint`. */
export interface DownloadOptions {
  /** The folder in which the checkpoint's own folder is made. Default: the working directory. */
  outputDir?: string | undefined;
  onProgress?: ((progress: DownloadProgress) => void) | undefined;
  signal?: AbortSignal | undefined;
  /** Go on from what an earlier download left, and leave what is there when this one fails. Default true. */
  resume?: boolean | undefined;
  /** Replace the checkpoint's folder if it exists. Default false. */
  force?: boolean | undefined;
  /** Ask for the URLs of single files, also of a checkpoint that usually comes as an archive. Default false. */
  fileByFile?: boolean | undefined;
  /** Most bytes the archive may unpack to. Default: 200 times its own size, but at least 64 MiB. */
  maxUnpackedBytes?: number | undefined;
  fetch?: typeof fetch | undefined;
  clock?: Clock | undefined;
}

/** Where a checkpoint lies now, and what it holds. */
export interface DownloadedCheckpoint {
  /** Absolute path of the checkpoint's folder. */
  readonly folder: string;
  /** Paths of its files below it, with `/`. */
  readonly files: readonly string[];
  /** The size of these files together. */
  readonly bytes: number;
}

interface Job {
  readonly path: string;
  readonly name: string;
  /** Where everything stays until it is whole; hidden, beside the final folder. */
  readonly work: string;
  readonly state: { path: string; files: Record<string, TransferState> };
  readonly fetch: typeof fetch;
  readonly clock: Clock;
  readonly options: DownloadOptions;
}

const PROGRESS_STEP_BYTES = 1 << 20;
const MIN_UNPACKED_LIMIT_BYTES = 64 << 20;
const MAX_EXPANSION = 200;
/** A URL this close to its end is not used any more. */
const EXPIRY_MARGIN_MS = 60_000;
const ARCHIVE = "archive.tar.gz";
const STATE = "state.json";

const active = new Set<string>();

/**
 * Fetches a checkpoint into `<outputDir>/<run>_<kind>_<name>`. The folder appears when it is whole; memory does not
 * grow with its size; a download that was cut off goes on where it stopped, in another process too.
 */
export async function downloadCheckpoint(
  rest: CheckpointUrls,
  path: string,
  options: DownloadOptions = {},
): Promise<DownloadedCheckpoint> {
  const parsed = parseTinkerPath(path);
  const outputDir = resolve(options.outputDir ?? ".");
  const name = folderName(parsed);
  const folder = join(outputDir, name);
  if (options.force !== true && (await exists(folder))) {
    throw new ValidationError("outputDir", `${folder} exists already; pass force: true to replace it.`);
  }
  if (active.has(folder)) {
    throw new ValidationError("path", `${path} is already being downloaded to ${folder}.`);
  }
  active.add(folder);
  try {
    const job = await openJob(path, name, join(outputDir, `.${name}.download`), options);
    try {
      const isExternal = parsed.checkpointType === "external" || options.fileByFile === true;
      const result = isExternal ? await fetchFiles(rest, job) : await fetchArchive(rest, job);
      await moveIntoPlace(result.from, folder, job.work, options.force === true);
      return { folder, files: result.files, bytes: result.bytes };
    } catch (error) {
      // What is no good, and what has no record, is not worth going on from.
      const isLost = error instanceof ArchiveError || !(await exists(join(job.work, STATE)));
      if (options.resume === false || isLost) await remove(job.work);
      throw error;
    }
  } catch (error) {
    throw error instanceof TinkerError || errorCode(error) === undefined ? error : cannotWrite(folder, error);
  } finally {
    active.delete(folder);
  }
}

function folderName({ trainingRunId, kind, name: checkpoint }: TinkerPath): string {
  const name = `${trainingRunId}_${kind}_${checkpoint}`;
  return process.platform === "win32" ? name.replaceAll(/[<>:"|?*]/g, "-") : name;
}

async function openJob(path: string, name: string, work: string, options: DownloadOptions): Promise<Job> {
  if (options.resume === false) await remove(work);
  let state: Job["state"] = { path, files: {} };
  try {
    const found = JSON.parse(await readFile(join(work, STATE), "utf8")) as Job["state"];
    if (found.path === path && typeof found.files === "object") state = found;
    else await remove(work);
  } catch {
    // Without its record, a left-over cannot be trusted.
    await remove(work);
  }
  await mkdir(join(work, "files"), { recursive: true });
  return {
    path,
    name,
    work,
    state,
    options,
    fetch: options.fetch ?? globalThis.fetch,
    clock: options.clock ?? systemClock,
  };
}

interface Fetched {
  from: string;
  files: string[];
  bytes: number;
}

async function fetchArchive(rest: CheckpointUrls, job: Job): Promise<Fetched> {
  const { options, path } = job;
  const archive = join(job.work, "files", ARCHIVE);
  const unpacked = join(job.work, "unpacked");
  const url = signedUrl(job.clock, () =>
    rest.getCheckpointArchiveUrl(path, options.signal === undefined ? {} : { signal: options.signal }),
  );
  const get = async (fresh: boolean) => (await url(fresh)).url;
  for (;;) {
    const resumed = await fetchOne(job, ARCHIVE, archive, `${job.name}.tar.gz`, get);
    await remove(unpacked);
    const { size } = await stat(archive);
    try {
      const extracted = await extractArchive(archive, unpacked, {
        maxUnpackedBytes:
          options.maxUnpackedBytes ?? Math.max(MIN_UNPACKED_LIMIT_BYTES, size * MAX_EXPANSION),
        signal: options.signal,
      });
      if (extracted.files.length === 0)
        throw new ArchiveError("refused", `The archive of ${path} holds no files.`);
      return { from: unpacked, ...extracted };
    } catch (error) {
      await remove(unpacked);
      if (!resumed || !(error instanceof ArchiveError) || error.reason !== "damaged") throw error;
      // The archive was built anew between two halves: once more, whole.
      job.state.files = {};
      await remove(archive);
    }
  }
}

async function fetchFiles(rest: CheckpointUrls, job: Job): Promise<Fetched> {
  const { options, path } = job;
  const urls = signedUrl(job.clock, () =>
    rest.getExternalWeightsUrls(path, options.signal === undefined ? {} : { signal: options.signal }),
  );
  const names = Object.keys((await urls(false)).urls).sort();
  if (names.length === 0) throw new TinkerError(`The server names no files of ${path}.`);
  const places = names.map((name) => ({ name, segments: safePath(name) }));
  const from = join(job.work, "files");
  const fetched: Fetched = { from, files: [], bytes: 0 };
  for (const { name, segments } of places) {
    if (segments.length === 0) {
      throw new ArchiveError(
        "refused",
        `The checkpoint holds a file without a name: ${JSON.stringify(name)}.`,
      );
    }
    const target = join(from, ...segments);
    await mkdir(join(from, ...segments.slice(0, -1)), { recursive: true });
    await fetchOne(job, name, target, name, async (fresh) => {
      const url = (await urls(fresh)).urls[name];
      if (url === undefined) throw new TinkerError(`The server no longer names the file ${name} of ${path}.`);
      return url;
    });
    fetched.files.push(segments.join("/"));
    fetched.bytes += (await stat(target)).size;
  }
  return fetched;
}

/** Asks for URLs when there are none, when they are about to expire, or when they were refused. */
function signedUrl<T extends { readonly expires: string }>(
  clock: Clock,
  sign: () => Promise<T>,
): (fresh: boolean) => Promise<T> {
  let signed: T | undefined;
  return async (fresh) => {
    const expiresAt = signed === undefined ? 0 : Date.parse(signed.expires);
    if (signed === undefined || fresh || expiresAt - EXPIRY_MARGIN_MS <= clock.wallNow())
      signed = await sign();
    return signed;
  };
}

function fetchOne(
  job: Job,
  key: string,
  target: string,
  file: string,
  url: (fresh: boolean) => Promise<string>,
): Promise<boolean> {
  // A key from the server must not reach Object.prototype.
  const stateKey = createHash("sha256").update(key).digest("hex");
  job.state.files[stateKey] ??= {};
  const state = job.state.files[stateKey];
  let reported = -1;
  return transferFile({
    file,
    target,
    state,
    saveState: () => writeFileAtomic(join(job.work, STATE), `${JSON.stringify(job.state)}\n`),
    url,
    onBytes: (bytes, totalBytes) => {
      const due = reported < 0 || bytes < reported || bytes >= reported + PROGRESS_STEP_BYTES;
      if (!due && (bytes !== totalBytes || bytes === reported)) return;
      reported = bytes;
      job.options.onProgress?.({ bytes, totalBytes, file });
    },
    fetch: job.fetch,
    clock: job.clock,
    signal: job.options.signal,
  });
}

async function moveIntoPlace(from: string, folder: string, work: string, force: boolean): Promise<void> {
  const old = join(work, "replaced");
  await remove(old);
  if (await exists(folder)) {
    if (!force) throw new TinkerError(`${folder} appeared during the download: another program made it.`);
    await rename(folder, old);
  }
  await rename(from, folder);
  await remove(work);
}

/** Also where it is a link that leads nowhere. */
async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

function remove(path: string): Promise<void> {
  return rm(path, { recursive: true, force: true });
}
