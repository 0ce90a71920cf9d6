/** The store keeps runs, sessions, checkpoints, usage and the audit log in one data folder that survives a crash at any moment. */
export { readAdapterFolder, writeAdapterFiles } from "./adapter-files.js";
export { type AuditEntry, AuditLogFile } from "./audit-log.js";
export {
  type CheckpointOrigin,
  CheckpointStore,
  type NewCheckpoint,
  type StoredCheckpoint,
} from "./checkpoint-store.js";
export { DataFolder } from "./data-folder.js";
export { IMPORTED_NAME, type ImportedAdapter, importAdapter } from "./import-adapter.js";
export { checkName } from "./names.js";
export { type RunRecord, RunStore } from "./run-store.js";
export { type SamplerRecord, SessionStore, type StoredSession } from "./session-store.js";
export { openStore, type Store } from "./store.js";
export { type UsageEvent, UsageLog } from "./usage-log.js";
