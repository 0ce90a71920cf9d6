import { AuditLogFile } from "./audit-log.js";
import { CheckpointStore } from "./checkpoint-store.js";
import { DataFolder } from "./data-folder.js";
import { RunStore } from "./run-store.js";
import { openSecret } from "./secret.js";
import { SessionStore } from "./session-store.js";
import { UsageLog } from "./usage-log.js";

/** Everything that one data folder keeps. */
export interface Store {
  readonly folder: DataFolder;
  readonly runs: RunStore;
  readonly sessions: SessionStore;
  readonly checkpoints: CheckpointStore;
  readonly audit: AuditLogFile;
  readonly usage: UsageLog;
  /** Known to this data folder alone. */
  readonly secret: Uint8Array;
  /** Gives what belongs to one owner to another, under a new id of theirs. */
  renameOwner(from: string, to: string): Promise<void>;
  /** Writes what is only in memory so far. */
  flush(): Promise<void>;
  close(): Promise<void>;
}

/** Opens a data folder, mends what a crash left behind, and reads everything it lists. */
export async function openStore(path: string, options: { wallNow: () => number }): Promise<Store> {
  const folder = await DataFolder.open(path);
  const runs = new RunStore(folder);
  const sessions = new SessionStore(folder);
  const checkpoints = new CheckpointStore(runs, options.wallNow);
  const audit = new AuditLogFile(folder);
  const usage = new UsageLog(folder);
  const flush = async () => {
    await runs.flush();
    await sessions.flush();
    await usage.flush();
    await audit.flush();
  };
  let secret: Uint8Array;
  try {
    secret = await openSecret(folder);
    const [found] = await Promise.all([runs.load(), sessions.load(), audit.load(), usage.load()]);
    await checkpoints.load(found);
  } catch (error) {
    await folder.close();
    throw error;
  }
  return {
    folder,
    runs,
    sessions,
    checkpoints,
    audit,
    usage,
    secret,
    flush,
    async renameOwner(from, to) {
      if (![...runs.list(), ...sessions.list()].some(({ owner }) => owner === from)) return;
      for (const store of [runs, sessions]) await store.renameOwner(from, to);
      usage.renameOwner(from, to);
      await audit.renameOwner(from, to);
    },
    async close() {
      try {
        await flush();
      } finally {
        await folder.close();
      }
    },
  };
}
