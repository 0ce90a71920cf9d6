import { cp, open, stat } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { CHECKPOINT_KINDS, type CheckpointKind } from "../../wire/records/tinker-path.js";
import type { AdapterState } from "../engine/engine.js";
import { readAdapterFolder, writeAdapterFiles } from "./adapter-files.js";
import {
  listFolder,
  readJsonFile,
  recoverFolder,
  removeFolderAtomic,
  writeFolderAtomic,
  writePrivateAtomic,
  writePrivateSynced,
} from "./data-folder.js";
import { Exclusive } from "./exclusive.js";
import { checkName } from "./names.js";
import type { RunRecord, RunStore } from "./run-store.js";

const checkpointSchema = z.object({
  runId: z.string(),
  kind: z.enum(CHECKPOINT_KINDS),
  name: z.string(),
  createdAt: z.number(),
  sizeBytes: z.number(),
  hasOptimizer: z.boolean(),
  public: z.boolean(),
  expiresAt: z.number().nullable(),
  userMetadata: z.record(z.string(), z.string()).nullable(),
});

/** One checkpoint as it is kept on disk; times are milliseconds since 1970. */
export type StoredCheckpoint = z.infer<typeof checkpointSchema>;

/** A checkpoint to save. */
export interface NewCheckpoint {
  readonly run: RunRecord;
  readonly kind: CheckpointKind;
  readonly name: string;
  readonly expiresAt: number | null;
  readonly userMetadata: Record<string, string> | null;
  readonly overwrite: boolean;
}

/** Where a checkpoint's files come from: the engine's state, or another checkpoint. */
export type CheckpointOrigin =
  | { readonly type: "state"; readonly state: AdapterState }
  | { readonly type: "copy"; readonly from: StoredCheckpoint };

/** All checkpoints of a data folder: listed from memory, their files on disk, each written in one step. */
export class CheckpointStore {
  readonly #runs: RunStore;
  readonly #now: () => number;
  readonly #records = new Map<string, StoredCheckpoint>();
  // Changes to one checkpoint wait for each other: a publish must not race an overwrite.
  readonly #exclusive = new Exclusive();

  constructor(runs: RunStore, now: () => number) {
    this.#runs = runs;
    this.#now = now;
  }

  /** Reads the checkpoints of runs that were just loaded. */
  async load(runs: readonly RunRecord[]): Promise<void> {
    for (const run of runs) {
      for (const kind of CHECKPOINT_KINDS) {
        const parent = join(this.#runs.folderOf(run.id), "checkpoints", kind);
        for (const name of await recoverFolder(parent)) {
          await recoverFolder(join(parent, name));
          const parsed = checkpointSchema.safeParse(
            await readJsonFile(join(parent, name, "checkpoint.json")),
          );
          if (!parsed.success || checkName(name) !== undefined) continue;
          const record = parsed.data;
          if (record.runId !== run.id || record.kind !== kind || record.name !== name) continue;
          this.#records.set(keyOf(record.runId, record.kind, record.name), record);
        }
      }
    }
  }

  get(runId: string, kind: CheckpointKind, name: string): StoredCheckpoint | undefined {
    const record = this.#records.get(keyOf(runId, kind, name));
    return record !== undefined && !this.#isExpired(record) ? record : undefined;
  }

  /** Newest first. */
  list(accepts: (record: StoredCheckpoint) => boolean = () => true): StoredCheckpoint[] {
    return [...this.#records.values()]
      .filter((record) => !this.#isExpired(record) && accepts(record))
      .sort((a, b) => b.createdAt - a.createdAt || (a.name < b.name ? 1 : -1));
  }

  folderOf(record: { runId: string; kind: CheckpointKind; name: string }): string {
    return join(this.#runs.folderOf(record.runId), "checkpoints", record.kind, record.name);
  }

  /** Writes a checkpoint; it is listed once every byte is on disk. Throws `NameTakenError` for a taken name. */
  save(request: NewCheckpoint, source: CheckpointOrigin): Promise<StoredCheckpoint> {
    const key = keyOf(request.run.id, request.kind, request.name);
    return this.#exclusive.run(key, async () => {
      if (!request.overwrite && this.get(request.run.id, request.kind, request.name) !== undefined) {
        throw new NameTakenError(request.kind, request.name, request.run.id);
      }
      const record: StoredCheckpoint = {
        runId: request.run.id,
        kind: request.kind,
        name: request.name,
        // Distinguishes a checkpoint from the one it replaces, even within a millisecond.
        createdAt: Math.max(this.#now(), (this.#records.get(key)?.createdAt ?? 0) + 1),
        sizeBytes: 0,
        hasOptimizer:
          source.type === "state" ? source.state.optimizer !== undefined : source.from.hasOptimizer,
        public: false,
        expiresAt: request.expiresAt,
        userMetadata: request.userMetadata,
      };
      await writeFolderAtomic(
        this.folderOf(record),
        async (folder) => {
          if (source.type === "state") await writeAdapterFiles(folder, source.state, request.run.baseModel);
          else await this.#copyFiles(source.from, folder);
          record.sizeBytes = await folderSize(folder);
          await writePrivateSynced(join(folder, "checkpoint.json"), JSON.stringify(record, null, 2));
        },
        { replace: true },
      );
      this.#records.set(key, record);
      return record;
    });
  }

  async #copyFiles(from: StoredCheckpoint, folder: string): Promise<void> {
    for (const file of await this.files(from)) {
      await cp(join(this.folderOf(from), file), join(folder, file));
      await syncFile(join(folder, file));
    }
  }

  update(
    record: StoredCheckpoint,
    change: Partial<Pick<StoredCheckpoint, "public" | "expiresAt">>,
  ): Promise<void> {
    const key = keyOf(record.runId, record.kind, record.name);
    return this.#exclusive.run(key, async () => {
      const current = this.#records.get(key);
      if (current === undefined) return;
      const changed = { ...current, ...change };
      await writePrivateAtomic(
        join(this.folderOf(record), "checkpoint.json"),
        JSON.stringify(changed, null, 2),
      );
      this.#records.set(key, changed);
    });
  }

  /** False when it was gone already, or another one has taken its name. */
  remove(record: StoredCheckpoint): Promise<boolean> {
    const key = keyOf(record.runId, record.kind, record.name);
    return this.#exclusive.run(key, async () => {
      const current = this.#records.get(key);
      if (current?.createdAt !== record.createdAt) return false;
      this.#records.delete(key);
      try {
        await removeFolderAtomic(this.folderOf(record));
      } catch (error) {
        if ((await this.files(record)).length > 0) this.#records.set(key, current);
        throw error;
      }
      return true;
    });
  }

  /** Deletes what has expired; returns it, for the audit log. */
  async removeExpired(): Promise<StoredCheckpoint[]> {
    const removed: StoredCheckpoint[] = [];
    for (const record of [...this.#records.values()]) {
      if (this.#isExpired(record) && (await this.remove(record))) removed.push(record);
    }
    return removed;
  }

  /** The files a user may download, without the store's own. */
  async files(record: StoredCheckpoint): Promise<string[]> {
    const names = await listFolder(this.folderOf(record));
    return names.filter((name) => name !== "checkpoint.json" && !name.startsWith(".")).sort();
  }

  async readState(record: StoredCheckpoint, lora: RunRecord["lora"]): Promise<AdapterState> {
    const state = await readAdapterFolder(this.folderOf(record));
    return { ...state, lora: { ...state.lora, seed: lora.seed } };
  }

  #isExpired(record: StoredCheckpoint): boolean {
    return record.expiresAt !== null && record.expiresAt <= this.#now();
  }
}

/** A run has a checkpoint of that kind and name already. */
export class NameTakenError extends Error {
  override name = "NameTakenError";
  constructor(kind: CheckpointKind, name: string, runId: string) {
    super(
      `A checkpoint ${kind}/${name} of run ${runId} exists already; choose another name or delete it first.`,
    );
  }
}

function keyOf(runId: string, kind: CheckpointKind, name: string): string {
  return `${runId}/${kind}/${name}`;
}

async function syncFile(path: string): Promise<void> {
  const handle = await open(path, "r+");
  await handle.sync().finally(() => handle.close());
}

async function folderSize(folder: string): Promise<number> {
  let bytes = 0;
  for (const name of await listFolder(folder)) bytes += (await stat(join(folder, name))).size;
  return bytes;
}
