import { randomUUID } from "node:crypto";
import { constants } from "node:fs";
import { mkdir, open, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";

const TEMPORARY = ".tmp-";
const REPLACED = ".old-";

// A process id alone cannot tell two servers of one process apart.
const openHere = new Set<string>();

/** One folder that one server owns: a lock keeps a second server out, also one of the same process. */
export class DataFolder {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  static async open(path: string): Promise<DataFolder> {
    const folder = new DataFolder(resolve(path));
    if (openHere.has(folder.path)) {
      throw new Error(
        `The data folder ${folder.path} is already open in this process; close that backend first.`,
      );
    }
    openHere.add(folder.path);
    try {
      await mkdir(folder.path, { recursive: true, mode: 0o700 });
      await folder.#lock();
    } catch (error) {
      openHere.delete(folder.path);
      const reason = whyUnwritable(error);
      if (reason === undefined) throw error;
      throw new Error(`The data folder ${folder.path} cannot be written: ${reason}.`, { cause: error });
    }
    return folder;
  }

  join(...segments: string[]): string {
    return join(this.path, ...segments);
  }

  async close(): Promise<void> {
    if (!openHere.delete(this.path)) return;
    await rm(this.join("lock"), { force: true });
  }

  async #lock(): Promise<void> {
    for (let attempt = 0; attempt < 2; attempt += 1) {
      try {
        await writeFile(this.join("lock"), String(process.pid), { flag: "wx", mode: 0o600 });
        return;
      } catch (error) {
        if (!isCode(error, "EEXIST")) throw error;
      }
      const holder = Number(await readFile(this.join("lock"), "utf8").catch(() => ""));
      if (holder !== process.pid && isAlive(holder)) {
        throw new Error(
          `The data folder ${this.path} is in use by another server (process ${holder}); close it first or choose another data folder.`,
        );
      }
      await rm(this.join("lock"), { force: true });
    }
    throw new Error(`The data folder ${this.path} could not be locked.`);
  }
}

function isAlive(processId: number): boolean {
  if (!Number.isInteger(processId) || processId <= 0) return false;
  try {
    process.kill(processId, 0);
    return true;
  } catch (error) {
    return isCode(error, "EPERM");
  }
}

export function isCode(error: unknown, code: string): boolean {
  return typeof error === "object" && error !== null && "code" in error && error.code === code;
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
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  return Object.hasOwn(UNWRITABLE, code) ? `${UNWRITABLE[code]} (${code})` : undefined;
}

async function syncPath(path: string): Promise<void> {
  const handle = await open(path, constants.O_RDONLY);
  try {
    await handle.sync();
  } catch (error) {
    // Some file systems cannot sync a directory; a rename there is as durable as it gets.
    if (!isCode(error, "EINVAL") && !isCode(error, "EPERM") && !isCode(error, "EISDIR")) throw error;
  } finally {
    await handle.close();
  }
}

async function syncDirectory(path: string): Promise<void> {
  // Windows refuses to open directories.
  if (process.platform !== "win32") await syncPath(path);
}

export async function writeSynced(path: string, content: Uint8Array | string): Promise<void> {
  const handle = await open(path, "w", 0o600);
  try {
    await handle.writeFile(content);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Replaces a file in one step: readers and crashes see the old content or the new, never a part. */
export async function writeFileAtomic(path: string, content: Uint8Array | string): Promise<void> {
  const temporary = join(dirname(path), `${TEMPORARY}${randomUUID()}`);
  try {
    await writeSynced(temporary, content);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await syncDirectory(dirname(path));
}

/**
 * Builds a folder beside its final place, syncs it, and renames it in. An existing folder of that name is set
 * aside first and put back by `recoverFolders` should the process die between the two renames.
 */
export async function writeFolderAtomic(
  path: string,
  fill: (temporary: string) => Promise<void>,
  options: { replace: boolean },
): Promise<void> {
  const parent = dirname(path);
  await mkdir(parent, { recursive: true, mode: 0o700 });
  const temporary = join(parent, `${TEMPORARY}${randomUUID()}`);
  await mkdir(temporary, { mode: 0o700 });
  let aside: string | undefined;
  try {
    await fill(temporary);
    await syncDirectory(temporary);
    if (options.replace) {
      const candidate = join(parent, `${REPLACED}${randomUUID()}-${basename(path)}`);
      try {
        await rename(path, candidate);
        aside = candidate;
      } catch (error) {
        if (!isCode(error, "ENOENT")) throw error;
      }
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { recursive: true, force: true });
    if (aside !== undefined) await rename(aside, path).catch(() => undefined);
    throw error;
  }
  await syncDirectory(parent);
  if (aside !== undefined) await rm(aside, { recursive: true, force: true });
}

/** Deletes a folder so that a crash leaves it whole or invisible: it is renamed away before its files go. */
export async function removeFolderAtomic(path: string): Promise<void> {
  const parent = dirname(path);
  const temporary = join(parent, `${TEMPORARY}${randomUUID()}`);
  try {
    await rename(path, temporary);
  } catch (error) {
    if (isCode(error, "ENOENT")) return;
    throw error;
  }
  await syncDirectory(parent);
  await rm(temporary, { recursive: true, force: true });
}

/** After a crash: half-written folders go, replaced ones without a successor come back. Returns what is left. */
export async function recoverFolders(parent: string): Promise<string[]> {
  const entries = await listFolder(parent);
  const present = new Set(entries);
  for (const entry of entries) {
    if (entry.startsWith(TEMPORARY)) {
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

export async function listFolder(path: string): Promise<string[]> {
  try {
    return await readdir(path);
  } catch (error) {
    if (isCode(error, "ENOENT")) return [];
    throw error;
  }
}

/** Reads a JSON file; undefined when it is missing or is no JSON, for the caller to leave out. */
export async function readJson(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, "utf8"));
  } catch {
    return undefined;
  }
}
