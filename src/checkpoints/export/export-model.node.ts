import { lstat, mkdir, mkdtemp, rm, rmdir, stat, statfs } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { TinkerError, ValidationError } from "../../errors.js";
import { cannotWrite, errorCode } from "../../files.node.js";
import { throwIfAborted } from "../../transport/index.js";
import { isTinkerPath } from "../../wire/records/tinker-path.js";
import { downloadCheckpoint } from "../download.node.js";
import { type FoundModel, findModel } from "../hub-model.node.js";
import { readAdapterSettings } from "../peft.node.js";
import { EXPORT_OPTIONS, type ExportOptions, type FilledExportOptions } from "./options.js";
import type { ExportInput, ExportTarget, PreparedExport } from "./target.js";
import { TARGETS } from "./targets.js";
import { publishWork, startWork } from "./work.node.js";

/** The result of an export. */
export interface ExportedModel {
  /** Absolute path of the file or folder. */
  readonly path: string;
  /** Name of the base model. */
  readonly baseModel: string;
  /** Commands that use the result, for people to copy. */
  readonly commands: readonly string[];
}

/**
 * Writes a model, or a base model with an adapter, in the form that other programs run: GGUF for llama.cpp and Ollama, a
 * merged folder for transformers, an adapter for vLLM. The result appears when it is complete; memory does not grow with
 * the model; an export that was aborted or killed continues where it stopped when it is called again.
 */
export async function exportModel(options: ExportOptions): Promise<ExportedModel> {
  const settings = EXPORT_OPTIONS.check(options, "exportModel");
  const target = await TARGETS[settings.to]();
  if (target.needsAdapter && settings.adapter === undefined) {
    throw new ValidationError("adapter", `adapter: ${settings.to} is made from an adapter; give one.`);
  }
  const output = resolve(settings.output);
  await checkFree(output);
  const downloads = await mkdtemp(join(tmpdir(), "tinkerts-export-"));
  try {
    const adapter = await findAdapter(settings, downloads);
    const base = await findBase(settings, adapter?.folder);
    const named = adapter === undefined ? null : (await readAdapterSettings(adapter.folder)).baseModel;
    // The folder of a model in the Hub's cache is named for a commit.
    const baseModel =
      settings.baseModel === undefined || base.name.includes("/") ? base.name : (named ?? base.name);
    const input = { baseFolder: base.path, baseModel, adapter, output, options: settings };
    const { commands } = await exportFolders(target, input);
    return { path: output, baseModel, commands };
  } finally {
    await rm(downloads, { recursive: true, force: true });
  }
}

/** Makes one thing of folders that are on this disk. */
export async function exportFolders(target: ExportTarget, input: ExportInput): Promise<PreparedExport> {
  const prepared = await target.prepare(input);
  try {
    await write(prepared, input);
  } finally {
    prepared.close();
  }
  return prepared;
}

async function write(prepared: PreparedExport, input: ExportInput): Promise<void> {
  const { output, options } = input;
  await mkdir(dirname(output), { recursive: true });
  const work = await startWork(input, prepared.bytes);
  let keep = false;
  try {
    await checkRoom(output, prepared.bytes - work.bytesBefore);
    await prepared.write(work);
    await publishWork(work.folder, prepared.file, output);
  } catch (error) {
    keep = options.signal?.aborted === true;
    throw error instanceof TinkerError || errorCode(error) === undefined ? error : cannotWrite(output, error);
  } finally {
    await work.release();
    if (!keep) await rm(work.folder, { recursive: true, force: true });
  }
}

/** An empty folder may be replaced; anything else is refused. */
export async function checkFree(output: string): Promise<void> {
  try {
    await rmdir(output);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return;
    const isThere = await lstat(output).catch(() => undefined);
    if (isThere === undefined) throw cannotWrite(output, error);
    throw new ValidationError(
      "output",
      `output: ${output} exists already; choose another name or remove it.`,
    );
  }
}

async function checkRoom(output: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(dirname(output));
  if (bavail * bsize >= bytes) return;
  const size = (count: number) =>
    count < 1e8 ? `${(count / 1e6).toFixed(1)} MB` : `${(count / 1e9).toFixed(1)} GB`;
  throw new TinkerError(
    `${output} needs ${size(bytes)}, but its disk has ${size(bavail * bsize)} left; free some space or choose another disk.`,
  );
}

async function findAdapter(
  { adapter, source, fileByFile, fetch, signal, onProgress }: FilledExportOptions,
  downloads: string,
): Promise<ExportInput["adapter"]> {
  if (adapter === undefined) return undefined;
  if (!isTinkerPath(adapter)) {
    if (!(await stat(adapter).catch(() => undefined))?.isDirectory()) {
      throw new ValidationError("adapter", `adapter: ${adapter} is not a folder.`);
    }
    return { folder: resolve(adapter), name: basename(resolve(adapter)) };
  }
  if (source === undefined) {
    throw new ValidationError("source", `source: ${adapter} needs a RestClient to be downloaded with.`);
  }
  const { folder } = await downloadCheckpoint(source, adapter, {
    outputDir: downloads,
    fileByFile,
    fetch,
    signal,
    onProgress: ({ bytes, totalBytes }) => onProgress?.({ phase: "downloading", bytes, totalBytes }),
  });
  return { folder, name: adapter };
}

async function findBase(
  { baseModel, signal, onProgress }: FilledExportOptions,
  adapterFolder: string | undefined,
): Promise<FoundModel> {
  throwIfAborted(signal, "The export");
  const wanted =
    baseModel ?? (adapterFolder === undefined ? null : (await readAdapterSettings(adapterFolder)).baseModel);
  if (wanted === null) {
    const why = adapterFolder === undefined ? "there is no adapter that names one" : "the adapter names none";
    throw new ValidationError("baseModel", `baseModel: give a folder or a Hugging Face id; ${why}.`);
  }
  return await findModel(wanted, {
    ...(signal && { signal }),
    onProgress: ({ bytes, totalBytes }) => onProgress?.({ phase: "downloading", bytes, totalBytes }),
  });
}
