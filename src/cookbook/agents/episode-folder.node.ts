import type { Dirent } from "node:fs";
import { lstat, mkdtemp, readdir, readFile, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative, resolve, sep } from "node:path";
import { TinkerError } from "../../errors.js";
import { errorCode } from "../../files.node.js";

const MAX_FILES = 10_000;
const MAX_FILE_BYTES = 16 * 2 ** 20;

/** Folder of one episode, in which its agent may write. */
export class EpisodeFolder {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  static async make(): Promise<EpisodeFolder> {
    return new EpisodeFolder(await realpath(await mkdtemp(join(tmpdir(), "tinkerts-episode-"))));
  }

  /** Paths of its files within it, in order; links are not followed. */
  async files(): Promise<readonly string[]> {
    const files: string[] = [];
    const folders = [this.path];
    for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
      for (const entry of await entriesOf(folder)) {
        const path = join(folder, entry.name);
        if (entry.isDirectory()) folders.push(path);
        else if (entry.isFile()) files.push(relative(this.path, path).split(sep).join("/"));
        if (files.length === MAX_FILES) return files.sort();
      }
    }
    return files.sort();
  }

  /** The text of a file; undefined if there is none. */
  async readFile(path: string): Promise<string | undefined> {
    const whole = await realpath(resolve(this.path, path)).catch(() => undefined);
    if (whole === undefined || !whole.startsWith(this.path + sep)) return undefined;
    try {
      // Opening a pipe would wait for a writer.
      const about = await lstat(whole);
      if (!about.isFile()) return undefined;
      if (about.size > MAX_FILE_BYTES)
        throw new TinkerError(
          `The agent's file ${path} has ${about.size} bytes, more than ${MAX_FILE_BYTES}.`,
        );
      return await readFile(whole, "utf8");
    } catch (error) {
      if (["ENOENT", "EISDIR"].includes(errorCode(error) ?? "")) return undefined;
      throw error;
    }
  }

  async remove(): Promise<void> {
    await rm(this.path, { recursive: true, force: true, maxRetries: 3 });
  }
}

async function entriesOf(folder: string): Promise<readonly Dirent[]> {
  return readdir(folder, { withFileTypes: true }).catch(() => []);
}
