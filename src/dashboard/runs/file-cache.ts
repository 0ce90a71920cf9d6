import { type FileHandle, open, stat } from "node:fs/promises";
import { fileOf, type ShownFolder } from "./run-folders.js";

const MAX_ENTRIES = 4096;

/** Values computed from files, computed again when the files change. */
export class FileCache<T> {
  readonly #make: (path: string) => Promise<T>;
  readonly #entries = new Map<string, { readonly version: string; readonly value: Promise<T> }>();

  constructor(make: (path: string) => Promise<T>) {
    this.#make = make;
  }

  /** Undefined for a file that is not there, or that may not be read. */
  async of(folder: ShownFolder, name: string): Promise<{ value: T; modifiedAt: number } | undefined> {
    const path = await fileOf(folder, name);
    const found = path === undefined ? undefined : await stat(path).catch(() => undefined);
    if (path === undefined || found?.isFile() !== true) return undefined;
    const version = `${found.ino}:${found.size}:${found.mtimeMs}`;
    let entry = this.#entries.get(path);
    if (entry?.version !== version) {
      entry = { version, value: this.#make(path) };
      this.#entries.delete(path);
      this.#entries.set(path, entry);
      const [oldest] = this.#entries.keys();
      if (this.#entries.size > MAX_ENTRIES && oldest !== undefined) this.#entries.delete(oldest);
    }
    try {
      return { value: await entry.value, modifiedAt: found.mtimeMs };
    } catch {
      this.#entries.delete(path);
      return undefined;
    }
  }
}

/** The beginning of a file as text. */
export async function readStart(path: string, maxBytes: number): Promise<string> {
  const handle: FileHandle = await open(path, "r");
  try {
    const content = Buffer.alloc(maxBytes);
    const { bytesRead } = await handle.read(content, 0, maxBytes, 0);
    return content.toString("utf8", 0, bytesRead);
  } finally {
    await handle.close();
  }
}

/** The end of a file as text, from a whole line on where something was left out. */
export async function readEnd(path: string, maxBytes: number): Promise<string> {
  const handle: FileHandle = await open(path, "r");
  try {
    const { size } = await handle.stat();
    const start = Math.max(0, size - maxBytes);
    const content = Buffer.alloc(size - start);
    const { bytesRead } = await handle.read(content, 0, content.length, start);
    const text = content.toString("utf8", 0, bytesRead);
    return start === 0 ? text : text.slice(text.indexOf("\n") + 1);
  } finally {
    await handle.close();
  }
}
