/** Files that a crash leaves whole, and folders that belong to one process at a time. */
import { randomUUID } from "node:crypto";
import { type FileHandle, open, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { TinkerError } from "./errors.js";

/** Beside a file that is being written; one that is left over is what a crash cut short. */
export const TEMPORARY_PREFIX = ".tmp-";

export function errorCode(error: unknown): string | undefined {
  // Not by `instanceof Error`: in a test runner with a realm of its own, Node's errors are of another one.
  const code = typeof error === "object" && error !== null && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : undefined;
}

/** An error of the file system, with the path it is about. */
export function cannotWrite(path: string, error: unknown): TinkerError {
  const said = error instanceof Error ? error.message : String(error);
  return new TinkerError(`${path} could not be written: ${said}`, { cause: error });
}

export async function writeFully(handle: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await handle.write(bytes, done, bytes.length - done, position + done);
    done += bytesWritten;
  }
}

/** Writes a file and waits until the disk has it. */
export async function writeSynced(
  path: string,
  content: string | Uint8Array | Iterable<string>,
  mode = 0o666,
): Promise<void> {
  const handle = await open(path, "w", mode);
  try {
    await writeFile(handle, content);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Replaces a file in one step: readers and crashes see the old content or the new, never a part. */
export async function writeFileAtomic(
  path: string,
  content: string | Uint8Array | Iterable<string>,
  mode?: number,
): Promise<void> {
  const folder = dirname(path);
  const temporary = join(folder, `${TEMPORARY_PREFIX}${randomUUID()}`);
  try {
    await writeSynced(temporary, content, mode);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await syncFolder(folder);
}

/** Makes new and changed names in a folder survive a crash. */
export async function syncFolder(path: string): Promise<void> {
  // Windows refuses to open directories.
  if (process.platform === "win32") return;
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } catch (error) {
    // Some file systems cannot sync a directory; a new name there is as durable as it gets.
    if (!["EINVAL", "EPERM", "EISDIR"].includes(errorCode(error) ?? "")) throw error;
  } finally {
    await handle.close();
  }
}

// A process id alone cannot tell two owners in one process apart.
const lockedHere = new Set<string>();

/** Keeps other owners out of a folder until it is released, or its process is gone. */
export class FolderLock {
  readonly #folder: string;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  /** `what` the folder is, for the error of the one who comes second. */
  static async take(folder: string, what: string): Promise<FolderLock> {
    const path = resolve(folder);
    const refuse = (owner: string) =>
      new TinkerError(
        `The ${what} ${path} is in use by ${owner}; close it there first, or choose another folder.`,
      );
    if (lockedHere.has(path)) throw refuse("this process");
    lockedHere.add(path);
    try {
      for (let attempt = 0; attempt < 2; attempt += 1) {
        if (await create(path)) return new FolderLock(path);
        const holder = await holderOf(path);
        if (holder !== undefined) {
          throw refuse(holder === process.pid ? "another thread of this process" : `process ${holder}`);
        }
        await rm(lockFile(path), { force: true });
      }
      throw refuse("another process");
    } catch (error) {
      lockedHere.delete(path);
      throw error;
    }
  }

  async release(): Promise<void> {
    if (lockedHere.delete(this.#folder)) await rm(lockFile(this.#folder), { force: true });
  }
}

const lockFile = (folder: string) => join(folder, ".lock");

/** False when there is a lock already. */
async function create(folder: string): Promise<boolean> {
  const content = [process.pid, await startOf(process.pid)].join(" ").trim();
  try {
    await writeFile(lockFile(folder), content, { flag: "wx", mode: 0o600 });
    return true;
  } catch (error) {
    if (errorCode(error) === "EEXIST") return false;
    throw error;
  }
}

/** The id of the process that holds a folder; undefined where there is none, or it is gone. */
export async function holderOf(folder: string): Promise<number | undefined> {
  const [id = "", start] = (await readFile(lockFile(folder), "utf8").catch(() => "")).split(" ");
  const holder = Number(id);
  if (!isAlive(holder) || (await hasEnded(holder))) return undefined;
  const startNow = await startOf(holder);
  // After a restart of the machine or the container another process may have the id, this one for example.
  if (start === undefined || startNow === undefined) return holder === process.pid ? undefined : holder;
  return start === startNow ? holder : undefined;
}

function isAlive(processId: number): boolean {
  if (!Number.isInteger(processId) || processId <= 0) return false;
  try {
    process.kill(processId, 0);
    return true;
  } catch (error) {
    return errorCode(error) === "EPERM";
  }
}

/** Whether a process was killed and only waits for its parent, for ever where a container has no init; false if unknown. */
async function hasEnded(processId: number): Promise<boolean> {
  const [state] = await statusOf(processId).catch(() => [""]);
  return state === "Z" || state === "X";
}

/** When a process began, as Linux says it; undefined on other systems. */
async function startOf(processId: number): Promise<string | undefined> {
  try {
    const [boot, status] = await Promise.all([
      readFile("/proc/sys/kernel/random/boot_id", "utf8"),
      statusOf(processId),
    ]);
    return `${boot.trim()}/${status[19]}`;
  } catch {
    return undefined;
  }
}

/** Fields of a process in Linux's `/proc`, from the third on: the first two are its id and a name, which may contain anything. */
async function statusOf(processId: number): Promise<readonly string[]> {
  const status = await readFile(`/proc/${processId}/stat`, "utf8");
  return status.slice(status.lastIndexOf(")") + 2).split(" ");
}
