import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { FolderLock, syncFolder, writeFileAtomic } from "../../files.node.js";
import { throwIfAborted } from "../../transport/index.js";
import { SDK_VERSION } from "../../version.js";
import { isRecord } from "../../wire/index.js";
import { isTinkerPath } from "../../wire/records/tinker-path.js";
import type { ExportInput, ExportWork } from "./target.js";

const STATE = "export-state.json";

/** The work folder of an export that has begun. */
export interface StartedWork extends ExportWork {
  /** Bytes that an earlier attempt wrote. */
  readonly bytesBefore: number;
  release(): Promise<void>;
}

/** Makes the work folder of an export, or continues in that of an earlier attempt at the same. */
export async function startWork(input: ExportInput, totalBytes: number): Promise<StartedWork> {
  const { output, options } = input;
  const folder = join(dirname(output), `.${basename(output)}.export`);
  await mkdir(folder, { recursive: true });
  const lock = await FolderLock.take(folder, "export");
  const fingerprint = await fingerprintOf(input);
  const statePath = join(folder, STATE);
  const before = await readState(statePath, fingerprint);
  if (before === undefined) {
    for (const name of await readdir(folder)) {
      if (name !== ".lock") await rm(join(folder, name), { recursive: true, force: true });
    }
  }
  let written = 0;
  return {
    folder,
    finishedParts: before?.parts ?? 0,
    bytesBefore: before?.bytes ?? 0,
    signal: options.signal,
    async finish(parts) {
      await writeFileAtomic(statePath, JSON.stringify({ fingerprint, parts, bytes: written }));
    },
    count(bytes) {
      throwIfAborted(options.signal, "The export");
      written += bytes;
      options.onProgress?.({ phase: "writing", bytes: Math.min(written, totalBytes), totalBytes });
    },
    release: () => lock.release(),
  };
}

/** Gives the finished work its final name. */
export async function publishWork(folder: string, file: string | undefined, output: string): Promise<void> {
  await rm(join(folder, STATE), { force: true });
  if (file === undefined) {
    // The lock's file must not be in the result.
    await rm(join(folder, ".lock"), { force: true });
    await rename(folder, output);
  } else await rename(join(folder, file), output);
  await syncFolder(dirname(output));
}

async function readState(
  path: string,
  fingerprint: string,
): Promise<{ parts: number; bytes: number } | undefined> {
  try {
    const state: unknown = JSON.parse(await readFile(path, "utf8"));
    if (!isRecord(state) || state["fingerprint"] !== fingerprint) return undefined;
    const { parts, bytes } = state;
    return typeof parts === "number" && typeof bytes === "number" ? { parts, bytes } : undefined;
  } catch {
    return undefined;
  }
}

/** Changes when the input, the options or this package change, so that a result is never made of two. */
async function fingerprintOf({ baseFolder, baseModel, adapter, options }: ExportInput): Promise<string> {
  const { to, type, dequantize, quantize, head, system } = options;
  const hash = createHash("sha256");
  hash.update(
    JSON.stringify([SDK_VERSION, to, type, dequantize, quantize, head, system, baseModel, adapter?.name]),
  );
  // A checkpoint never changes, and each download of it has new times.
  const folders = [
    baseFolder,
    ...(adapter === undefined || isTinkerPath(adapter.name) ? [] : [adapter.folder]),
  ];
  for (const folder of folders) {
    for (const name of (await readdir(folder)).sort()) {
      const { size, mtimeMs } = await stat(join(folder, name));
      hash.update(JSON.stringify([folder, name, size, mtimeMs]));
    }
  }
  return hash.digest("hex");
}
