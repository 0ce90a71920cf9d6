import { randomUUID } from "node:crypto";
import { mkdir, readdir, readFile, rename, rm } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { TinkerError } from "../../errors.js";
import {
  errorCode,
  FolderLock,
  syncFolder,
  TEMPORARY_PREFIX,
  writeFileAtomic,
  writeSynced,
} from "../../files.node.js";

const REPLACED = ".old-";

/** One folder that one server owns. */
export class DataFolder {
  readonly path: string;
  readonly #lock: FolderLock;

  private constructor(path: string, lock: FolderLock) {
    this.path = path;
    this.#lock = lock;
  }

  static async open(folder: string): Promise<DataFolder> {
    const path = resolve(folder);
    try {
      await mkdir(path, { recursive: true, mode: 0o700 });
      return new DataFolder(path, await FolderLock.take(path, "data folder"));
    } catch (error) {
      const reason = errorCode(error) === "EEXIST" ? "it is a file, not a folder" : whyUnwritable(error);
      if (reason === undefined) throw error;
      throw new TinkerError(`The data folder ${path} cannot be written: ${reason}.`, { cause: error });
    }
  }

  join(...segments: string[]): string {
    return join(this.path, ...segments);
  }

  close(): Promise<void> {
    return this.#lock.release();
  }
}

const UNWRITABLE: Readonly<Record<string, string>> = {
  ENOSPC: "no space left on its disk",
  EDQUOT: "its disk quota is used up",
  ENOTDIR: "a part of its path is not a folder",
  EROFS: "it is on a read-only file system",
  EACCES: "this process has no permission",
  EPERM: "this process has no permission",
  EIO: "its disk reports an error",
};

/** The reason in words when the disk, not the program, refused a write. */
export function whyUnwritable(error: unknown): string | undefined {
  const code = errorCode(error) ?? "";
  return Object.hasOwn(UNWRITABLE, code) ? `${UNWRITABLE[code]} (${code})` : undefined;
}

/** Only the server's own user may read what it keeps. */
const PRIVATE_FILE = 0o600;

/** Writes a file that only the server's user may read, and waits until the disk has it. */
export function writePrivateSynced(path: string, content: Uint8Array | string): Promise<void> {
  return writeSynced(path, content, PRIVATE_FILE);
}

/** Writes a file atomically: a crash leaves the old content or the new. */
export function writePrivateAtomic(path: string, content: Uint8Array | string): Promise<void> {
  return writeFileAtomic(path, content, PRIVATE_FILE);
}

/** Makes a folder and those above it, so that also a power cut leaves them. */
export async function makeFolder(path: string): Promise<void> {
  const first = await mkdir(path, { recursive: true, mode: 0o700 });
  if (first === undefined) return;
  for (let made = path; made.length >= first.length; made = dirname(made)) await syncFolder(dirname(made));
}

/**
 * Builds a folder beside its final place, syncs it, and renames it in. An existing folder of that name is set
 * aside first and put back by `recoverFolder` should the process die between the two renames.
 */
export async function writeFolderAtomic(
  path: string,
  fill: (temporary: string) => Promise<void>,
  options: { replace: boolean },
): Promise<void> {
  const parent = dirname(path);
  await makeFolder(parent);
  const temporary = join(parent, `${TEMPORARY_PREFIX}${randomUUID()}`);
  await mkdir(temporary, { mode: 0o700 });
  let aside: string | undefined;
  try {
    await fill(temporary);
    await syncFolder(temporary);
    if (options.replace) {
      const candidate = join(parent, `${REPLACED}${randomUUID()}-${basename(path)}`);
      try {
        await rename(path, candidate);
        aside = candidate;
      } catch (error) {
        if (errorCode(error) !== "ENOENT") throw error;
      }
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { recursive: true, force: true });
    if (aside !== undefined) await rename(aside, path).catch(() => undefined);
    throw error;
  }
  await syncFolder(parent);
  if (aside !== undefined) await rm(aside, { recursive: true, force: true });
}

/** Deletes a folder so that a crash leaves it whole or invisible: it is renamed away before its files go. */
export async function removeFolderAtomic(path: string): Promise<void> {
  const parent = dirname(path);
  const temporary = join(parent, `${TEMPORARY_PREFIX}${randomUUID()}`);
  try {
    await rename(path, temporary);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return;
    throw error;
  }
  await syncFolder(parent);
  await rm(temporary, { recursive: true, force: true });
}

/** After a crash: what was half written goes, replaced folders without a successor come back. Returns what is left. */
export async function recoverFolder(parent: string): Promise<string[]> {
  const entries = await listFolder(parent);
  const present = new Set(entries);
  for (const entry of entries) {
    if (entry.startsWith(TEMPORARY_PREFIX)) {
      await rm(join(parent, entry), { recursive: true, force: true });
      present.delete(entry);
    } else if (entry.startsWith(REPLACED)) {
      const name = entry.slice(REPLACED.length + 37);
      if (present.has(name)) {
        await rm(join(parent, entry), { recursive: true, force: true });
      } else {
        await rename(join(parent, entry), join(parent, name));
        present.add(name);
      }
      present.delete(entry);
    }
  }
  return [...present];
}

/** The names in a folder; none where it does not exist. */
export async function listFolder(path: string): Promise<string[]> {
  try {
    return await readdir(path);
  } catch (error) {
    if (["ENOENT", "ENOTDIR"].includes(errorCode(error) ?? "")) return [];
    throw error;
  }
}

/** Reads a JSON file; undefined if it is missing or not valid JSON. */
export async function readJsonFile(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, "utf8"));
  } catch {
    return undefined;
  }
}
