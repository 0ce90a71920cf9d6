import { existsSync } from "node:fs";
import { cp, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { errorCode } from "../../files.node.js";
import type { LoraSettings } from "../engine/engine.js";
import {
  type DataFolder,
  listFolder,
  makeFolder,
  readJsonFile,
  recoverFolder,
  writePrivateAtomic,
} from "./data-folder.js";
import { Exclusive } from "./exclusive.js";
import { runFolderName } from "./names.js";

const loraSchema = z.object({
  rank: z.number().int(),
  seed: z.number(),
  trainAttn: z.boolean(),
  trainMlp: z.boolean(),
  trainUnembed: z.boolean(),
}) satisfies z.ZodType<LoraSettings>;

const runSchema = z.object({
  id: z.string(),
  owner: z.string(),
  sessionId: z.string().nullable(),
  projectId: z.string().nullable(),
  baseModel: z.string(),
  lora: loraSchema,
  userMetadata: z.record(z.string(), z.string()).nullable(),
  createdAt: z.number(),
  lastRequestAt: z.number(),
  corrupted: z.boolean(),
});

/** One training run as it is kept on disk; times are milliseconds since 1970. */
export type RunRecord = z.infer<typeof runSchema>;

/** All training runs of a data folder, in memory and on disk. */
export class RunStore {
  readonly #folder: DataFolder;
  readonly #runs = new Map<string, RunRecord>();
  /** Where runs are kept that are not in the data folder. */
  readonly #places = new Map<string, string>();
  readonly #unsaved = new Set<RunRecord>();
  // If a run is written twice at once, the later write must win.
  readonly #exclusive = new Exclusive();

  constructor(folder: DataFolder) {
    this.#folder = folder;
  }

  /** Reads the runs of the data folder, or those that `moveTo` left in a place outside it; returns the new ones. */
  async load(place?: string): Promise<RunRecord[]> {
    const folder = place ?? this.#folder.join("runs");
    const known = new Set([...this.#runs.keys()].map(runFolderName));
    const found: RunRecord[] = [];
    for (const entry of await listFolder(folder)) {
      // One that is in use must not be mended.
      if (known.has(entry)) continue;
      await recoverFolder(join(folder, entry));
      const { data: run } = runSchema.safeParse(await readJsonFile(join(folder, entry, "run.json")));
      if (run === undefined || runFolderName(run.id) !== entry) continue;
      this.#runs.set(run.id, run);
      if (place !== undefined) this.#places.set(run.id, place);
      found.push(run);
    }
    return found;
  }

  /** Keeps a run in a place outside the data folder from now on; it must have no checkpoint yet. */
  async moveTo(place: string, runId: string): Promise<void> {
    await this.#exclusive.run(runId, async () => {
      const target = join(place, runFolderName(runId));
      await makeFolder(place);
      await moveFolder(this.folderOf(runId), target);
      this.#places.set(runId, place);
    });
  }

  get(id: string): RunRecord | undefined {
    return this.#runs.get(id);
  }

  /** Newest request first. */
  list(): RunRecord[] {
    return [...this.#runs.values()].sort(
      (a, b) => b.lastRequestAt - a.lastRequestAt || (a.id < b.id ? 1 : -1),
    );
  }

  /** Writes a new or changed run to disk. */
  async save(run: RunRecord): Promise<void> {
    await this.#exclusive.run(run.id, async () => {
      // Before the write, during which the run may change again; what could not be written is tried again.
      this.#unsaved.delete(run);
      try {
        await makeFolder(this.folderOf(run.id));
        await writePrivateAtomic(`${this.folderOf(run.id)}/run.json`, JSON.stringify(run, null, 2));
      } catch (error) {
        if (this.#runs.get(run.id) === run) this.#unsaved.add(run);
        throw error;
      }
      this.#runs.set(run.id, run);
    });
  }

  async renameOwner(from: string, to: string): Promise<void> {
    for (const run of this.#runs.values())
      if (run.owner === from) await this.save(Object.assign(run, { owner: to }));
  }

  /** The time of a request is written with the next `flush`. */
  touch(run: RunRecord, at: number): void {
    run.lastRequestAt = at;
    if (this.#runs.get(run.id) === run) this.#unsaved.add(run);
  }

  async flush(): Promise<void> {
    for (const run of [...this.#unsaved]) {
      // Its place is the user's, who may have removed it.
      if (this.#places.has(run.id) && !existsSync(this.folderOf(run.id))) this.#unsaved.delete(run);
      else await this.save(run);
    }
  }

  folderOf(runId: string): string {
    return join(this.#places.get(runId) ?? this.#folder.join("runs"), runFolderName(runId));
  }
}

async function moveFolder(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    // The temporary folder is often on another disk.
    if (errorCode(error) !== "EXDEV") throw error;
    await cp(from, to, { recursive: true });
    await rm(from, { recursive: true });
  }
}
