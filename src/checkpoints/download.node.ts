import { createHash } from "node:crypto";
import { lstat, mkdir, readFile, rename, rm, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { TinkerError, ValidationError } from "../errors.js";
import { cannotWrite, errorCode, writeFileAtomic } from "../files.node.js";
import { type Clock, clockField, type RequestOptions, systemClock } from "../transport/index.js";
import {
  abortSignal,
  boolean,
  type CheckpointArchiveUrl,
  type ExternalWeightsUrls,
  type FieldsOf,
  functionOf,
  optional,
  optionTable,
  parseTinkerPath,
  positive,
  type TinkerPath,
  text,
  withDefault,
} from "../wire/index.js";
import { extractArchive } from "./extract.node.js";
import { ArchiveError, safePath } from "./safe-path.js";
import { type TransferState, transferFile } from "./transfer.node.js";

/** Server calls that a download needs; a `RestClient` fits. */
export interface CheckpointUrls {
  getCheckpointArchiveUrl(path: string, options?: RequestOptions): Promise<CheckpointArchiveUrl>;
  getExternalWeightsUrls(path: string, options?: RequestOptions): Promise<ExternalWeightsUrls>;
}

/** Progress of a download, for `onProgress`. */
export interface DownloadProgress {
  /** Bytes of this file that are on disk. */
  readonly bytes: number;
  /** Size of the file; undefined if the server does not report it. */
  readonly totalBytes: number | undefined;
  readonly file: string;
}

/** Options of `downloadCheckpoint`: folder, progress, resuming and limits. */
export interface DownloadOptions {
  /** The folder in which the checkpoint's own folder is made. Default: the working directory. */
  outputDir?: string | undefined;
  onProgress?: ((progress: DownloadProgress) => void) | undefined;
  signal?: AbortSignal | undefined;
  /** Resume an earlier download, and keep partial files if this one fails. Default true. */
  resume?: boolean | undefined;
  /** Replace the checkpoint's folder if it exists. Default false. */
  force?: boolean | undefined;
  /** Download single files even if the checkpoint is available as an archive. Default false. */
  fileByFile?: boolean | undefined;
  /** Most bytes the archive may unpack to. Default: 200 times its own size, but at least 64 MiB. */
  maxUnpackedBytes?: number | undefined;
  fetch?: typeof fetch | undefined;
  clock?: Clock | undefined;
}

const DOWNLOAD_OPTIONS = optionTable({
  outputDir: withDefault(text, "."),
  onProgress: optional(functionOf<(progress: DownloadProgress) => void>()),
  signal: optional(abortSignal),
  resume: withDefault(boolean, true),
  force: withDefault(boolean, false),
  fileByFile: withDefault(boolean, false),
  maxUnpackedBytes: optional(positive),
  fetch: withDefault(functionOf<typeof fetch>(), (input, init) => fetch(input, init)),
  clock: withDefault(clockField, systemClock),
} satisfies FieldsOf<DownloadOptions>);

type FilledDownloadOptions = ReturnType<(typeof DOWNLOAD_OPTIONS)["check"]>;

/** Folder and files of a downloaded checkpoint. */
export interface DownloadedCheckpoint {
  /** Absolute path of the checkpoint's folder. */
  readonly folder: string;
  /** Paths of its files below it, with `/`. */
  readonly files: readonly string[];
  /** Total size of these files. */
  readonly bytes: number;
}

interface Job {
  readonly path: string;
  readonly name: string;
  /** Hidden folder beside the final one, which holds everything until the download is complete. */
  readonly work: string;
  readonly state: { path: string; files: Record<string, TransferState> };
  readonly options: FilledDownloadOptions;
}

const PROGRESS_STEP_BYTES = 1 << 20;
const MIN_UNPACKED_LIMIT_BYTES = 64 << 20;
const MAX_EXPANSION = 200;
/** A URL that expires within this time is not used. */
const EXPIRY_MARGIN_MS = 60_000;
const ARCHIVE = "archive.tar.gz";
const STATE = "state.json";

const active = new Set<string>();

/**
 * Downloads a checkpoint to `<outputDir>/<run>_<kind>_<name>`. The folder appears when it is complete; memory does not
 * grow with the size; an interrupted download resumes, also from another process.
 */
export async function downloadCheckpoint(
  rest: CheckpointUrls,
  path: string,
  options: DownloadOptions = {},
): Promise<DownloadedCheckpoint> {
  const settings = DOWNLOAD_OPTIONS.check(options, "downloadCheckpoint");
  const parsed = parseTinkerPath(path);
  const outputDir = resolve(settings.outputDir);
  const name = folderName(parsed);
  const folder = join(outputDir, name);
  // Before anything is awaited, so that the first of two calls wins.
  if (active.has(folder)) {
    throw new ValidationError("path", `${path} is already being downloaded to ${folder}.`);
  }
  active.add(folder);
  try {
    if (!settings.force && (await exists(folder)))
      throw new ValidationError("outputDir", `${folder} exists already; pass force: true to replace it.`);
    const job = await openJob(path, name, join(outputDir, `.${name}.download`), settings);
    try {
      const isExternal = parsed.checkpointType === "external" || settings.fileByFile;
      const result = isExternal ? await fetchFiles(rest, job) : await fetchArchive(rest, job);
      await moveIntoPlace(result.from, folder, job.work, settings.force);
      return { folder, files: result.files, bytes: result.bytes };
    } catch (error) {
      // A damaged download, or one without a record, cannot be resumed.
      const isLost = error instanceof ArchiveError || !(await exists(join(job.work, STATE)));
      if (!settings.resume || isLost) await remove(job.work);
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

async function openJob(
  path: string,
  name: string,
  work: string,
  options: FilledDownloadOptions,
): Promise<Job> {
  if (!options.resume) await remove(work);
  let state: Job["state"] = { path, files: {} };
  try {
    const found = JSON.parse(await readFile(join(work, STATE), "utf8")) as Job["state"];
    if (found.path === path && typeof found.files === "object") state = found;
    else await remove(work);
  } catch {
    // Without its record, a partial file cannot be trusted.
    await remove(work);
  }
  await mkdir(join(work, "files"), { recursive: true });
  return {
    path,
    name,
    work,
    state,
    options,
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
  const url = signedUrl(job.options.clock, () =>
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
      // The archive was rebuilt during the download: download all of it again.
      job.state.files = {};
      await remove(archive);
    }
  }
}

async function fetchFiles(rest: CheckpointUrls, job: Job): Promise<Fetched> {
  const { options, path } = job;
  const urls = signedUrl(job.options.clock, () =>
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

/** Requests URLs when there are none, when they are about to expire, or when they were refused. */
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
    fetch: job.options.fetch,
    clock: job.options.clock,
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

/** Also for a link that leads nowhere. */
async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

function remove(path: string): Promise<void> {
  return rm(path, { recursive: true, force: true });
}
