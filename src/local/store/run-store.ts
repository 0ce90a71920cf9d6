import { z } from "zod";
import type { LoraSettings } from "../engine/engine.js";
import {
  type DataFolder,
  listFolder,
  makeFolder,
  readJson,
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
  readonly #unsaved = new Set<RunRecord>();
  // Of two writes of one run, the one that began later must be the one that stays.
  readonly #exclusive = new Exclusive();

  constructor(folder: DataFolder) {
    this.#folder = folder;
  }

  async load(): Promise<void> {
    for (const entry of await listFolder(this.#folder.join("runs"))) {
      await recoverFolder(this.#folder.join("runs", entry));
      const parsed = runSchema.safeParse(await readJson(this.#folder.join("runs", entry, "run.json")));
      if (parsed.success && runFolderName(parsed.data.id) === entry)
        this.#runs.set(parsed.data.id, parsed.data);
    }
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

  /** The time of a request is written with the next `flush`. */
  touch(run: RunRecord, at: number): void {
    run.lastRequestAt = at;
    if (this.#runs.get(run.id) === run) this.#unsaved.add(run);
  }

  async flush(): Promise<void> {
    for (const run of [...this.#unsaved]) await this.save(run);
  }

  folderOf(runId: string): string {
    return this.#folder.join("runs", runFolderName(runId));
  }
}
