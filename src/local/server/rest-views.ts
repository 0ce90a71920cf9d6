import { CHECKPOINT_TYPES, type CheckpointKind } from "../../wire/tinker-path.js";
import type { CheckpointRecord } from "../store/checkpoint-store.js";
import type { RunRecord } from "../store/run-store.js";
import type { SessionRecord } from "../store/session-store.js";
import { type Core, isoTime, projectOf, tinkerPath } from "./core.js";
import { type Identity, mayAccess } from "./identity.js";

export function checkpointView(record: CheckpointRecord) {
  return {
    checkpoint_id: `${record.kind}/${record.name}`,
    checkpoint_type: CHECKPOINT_TYPES[record.kind],
    time: isoTime(record.createdAt),
    tinker_path: tinkerPath(record),
    size_bytes: record.sizeBytes,
    public: record.public,
    expires_at: record.expiresAt === null ? null : isoTime(record.expiresAt),
    user_metadata: record.userMetadata,
  };
}

/** Those who may see a run only for what its owner has published see nothing else of it. */
export function runView(core: Core, identity: Identity, run: RunRecord) {
  const isOwn = mayAccess(identity, run.owner);
  const newest = (kind: CheckpointKind) => {
    const [record] = core.store.checkpoints.list(
      (candidate) => candidate.runId === run.id && candidate.kind === kind && (isOwn || candidate.public),
    );
    return record === undefined ? null : checkpointView(record);
  };
  return {
    training_run_id: run.id,
    base_model: run.baseModel,
    model_owner: run.owner,
    is_lora: true,
    corrupted: run.corrupted,
    lora_rank: run.lora.rank,
    last_request_time: isoTime(run.lastRequestAt),
    last_checkpoint: newest("weights"),
    last_sampler_checkpoint: newest("sampler_weights"),
    user_metadata: isOwn ? run.userMetadata : null,
  };
}

/** null: neither finished by its client nor known to be running. */
export function sessionStatus(core: Core, session: SessionRecord) {
  const { status } = session;
  if (core.sessions.isLive(session.id)) return { type: "active" };
  if (status.type !== "client_finished") return null;
  return { type: "client_finished", reason: { type: status.reason }, detail: status.detail };
}

export function sessionView(core: Core, session: SessionRecord) {
  const checkpoints = core.store.checkpoints.list(
    (record) => core.store.runs.get(record.runId)?.sessionId === session.id,
  );
  return {
    session_id: session.id,
    created_at: isoTime(session.createdAt),
    owner: session.owner,
    project_id: projectOf(session),
    status: sessionStatus(core, session),
    checkpoints_count: checkpoints.length,
    checkpoint_storage_bytes: checkpoints.reduce((sum, record) => sum + record.sizeBytes, 0),
    display_name: session.displayName,
    user_metadata: session.userMetadata,
  };
}
