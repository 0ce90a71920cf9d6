import { createHash } from "node:crypto";
import { type Dirent, readdirSync, realpathSync } from "node:fs";
import { readdir, realpath, stat } from "node:fs/promises";
import { basename, join, relative, sep } from "node:path";
import { messageOf, ValidationError } from "../../errors.js";
import { errorCode } from "../../files.node.js";

const MAX_DEPTH = 4;
const MAX_FOLDERS = 20_000;
const MAX_RUNS = 1000;
const RESCAN_MS = 3000;
const RUN_FILES = ["metrics.jsonl", "checkpoints.jsonl"];
const NO_RUNS_BELOW = /^(?:\.|node_modules$|iteration_\d+$)/;

/** A folder that holds a run. */
export interface ShownFolder {
  /** Names it to the page, which never names a path. */
  readonly id: string;
  readonly name: string;
  readonly path: string;
  /** The given folder that it lies in. */
  readonly root: string;
}

/** The runs below the folders that were given; nothing outside them is ever read. */
export class RunFolders {
  /** Without symbolic links. */
  readonly roots: readonly string[];
  isCut = false;
  /** Given folders that can no longer be read, with the reason. */
  problems: readonly string[] = [];
  #found: ReadonlyMap<string, ShownFolder> = new Map();
  #scanAgainAt = Number.NEGATIVE_INFINITY;
  #scanning: Promise<void> | undefined;

  constructor(folders: readonly string[]) {
    const roots = folders.map((folder, index) => {
      try {
        const root = realpathSync(folder);
        readdirSync(root);
        return root;
      } catch {
        throw new ValidationError(`folders[${index}]`, `${folder} is not a folder that can be read`);
      }
    });
    this.roots = [...new Set(roots)];
  }

  async list(): Promise<readonly ShownFolder[]> {
    if (performance.now() > this.#scanAgainAt) {
      this.#scanning ??= this.#scan().finally(() => {
        this.#scanning = undefined;
      });
      await this.#scanning;
    }
    return [...this.#found.values()];
  }

  /** The run of an id; undefined where there is none, or no longer. */
  async find(id: string): Promise<ShownFolder | undefined> {
    if (!this.#found.has(id)) await this.list();
    return this.#found.get(id);
  }

  async #scan(): Promise<void> {
    const startedAt = performance.now();
    const found = new Map<string, ShownFolder>();
    const problems: string[] = [];
    let left = MAX_FOLDERS;
    const look = async (root: string, path: string, depth: number): Promise<void> => {
      if (left <= 0 || found.size >= MAX_RUNS) return;
      left -= 1;
      const entries: readonly Dirent[] = await readdir(path, { withFileTypes: true }).catch(
        (error: unknown) => {
          if (path === root) problems.push(`${root} cannot be read: ${reasonOf(error)}`);
          return [];
        },
      );
      if (entries.some((entry) => RUN_FILES.includes(entry.name) && entry.isFile())) {
        const id = idOf(path);
        if (!found.has(id)) found.set(id, { id, name: relative(root, path) || basename(path), path, root });
      }
      if (depth === MAX_DEPTH) return;
      for (const entry of entries)
        if (entry.isDirectory() && !NO_RUNS_BELOW.test(entry.name))
          await look(root, join(path, entry.name), depth + 1);
    };
    for (const root of this.roots) await look(root, root, 0);
    this.#found = found;
    this.problems = problems;
    this.isCut = left <= 0 || found.size >= MAX_RUNS;
    // Many folders take long, and a training run on this machine needs the CPU too.
    const now = performance.now();
    this.#scanAgainAt = now + Math.max(RESCAN_MS, 10 * (now - startedAt));
  }
}

/** The path of what a run's folder holds, if it lies where it seems to: a link may lead out of the given folders. */
export async function pathIn(
  { path, root }: ShownFolder,
  ...names: readonly string[]
): Promise<string | undefined> {
  const real = await realpath(join(path, ...names)).catch(() => undefined);
  return real?.startsWith(root.endsWith(sep) ? root : root + sep) ? real : undefined;
}

/** A plain file below the folder: opening a pipe would wait forever. */
export async function fileOf(folder: ShownFolder, ...names: readonly string[]): Promise<string | undefined> {
  const path = await pathIn(folder, ...names);
  const found = path === undefined ? undefined : await stat(path).catch(() => undefined);
  return found?.isFile() ? path : undefined;
}

function reasonOf(error: unknown): string {
  const code = errorCode(error);
  if (code === "ENOENT") return "it was removed or renamed";
  return code === "EACCES" || code === "EPERM" ? "permission denied" : messageOf(error);
}

function idOf(path: string): string {
  return createHash("sha256").update(path).digest("base64url").slice(0, 16);
}
