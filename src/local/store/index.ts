/** The store keeps runs, sessions, checkpoints, usage and the audit log in one data folder that survives a crash at any moment. */
export { readAdapterFolder, writeAdapterFiles } from "./adapter-files.js";
export { type AuditEntry, AuditLog } from "./audit-log.js";
export {
  type CheckpointRecord,
  type CheckpointSource,
  CheckpointStore,
  type NewCheckpoint,
} from "./checkpoint-store.js";
export { DataFolder } from "./data-folder.js";
export { checkName } from "./names.js";
export { type RunRecord, RunStore } from "./run-store.js";
export { type SamplerRecord, type SessionRecord, SessionStore } from "./session-store.js";
export { openStore, type Store } from "./store.js";
export { type UsageEvent, UsageLog } from "./usage-log.js";
