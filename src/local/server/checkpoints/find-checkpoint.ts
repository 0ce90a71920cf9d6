import type { Clock } from "../../../transport/clock.js";
import {
  CHECKPOINT_KINDS,
  type CheckpointKind,
  formatTinkerPath,
  parseTinkerPath,
} from "../../../wire/records/tinker-path.js";
import type { AdapterState } from "../../engine/engine.js";
import type { StoredCheckpoint } from "../../store/checkpoint-store.js";
import type { RunRecord } from "../../store/run-store.js";
import type { Store } from "../../store/store.js";
import { HttpError } from "../http/http-error.js";
import { mayAccess, type RequestOwner } from "../http/route.js";

/** Parts of the store in which checkpoints are found. */
export type CheckpointRecords = Pick<Store, "runs" | "checkpoints">;

/** The path of a checkpoint. */
export function tinkerPath(record: { runId: string; kind: CheckpointKind; name: string }): string {
  return formatTinkerPath(record.runId, record.kind, record.name);
}

/** A checkpoint by its path, for its owner, or for anyone once it is published. */
export function checkpointByPath(
  store: CheckpointRecords,
  identity: RequestOwner,
  path: string,
  field: string,
): StoredCheckpoint {
  const { trainingRunId, kind, name } = parseTinkerPath(path, field);
  return readableCheckpoint(store, identity, { trainingRunId, folder: kind, name });
}

/** The parts of a checkpoint's URL. */
export interface CheckpointParts {
  readonly trainingRunId: string;
  readonly folder: string;
  readonly name: string;
}

/** A checkpoint by the parts of its URL, if the identity may read it. */
export function readableCheckpoint(
  store: CheckpointRecords,
  identity: RequestOwner,
  { trainingRunId: runId, folder, name }: CheckpointParts,
): StoredCheckpoint {
  const kind = CHECKPOINT_KINDS.find((known) => known === folder);
  if (kind === undefined) {
    throw new HttpError(
      400,
      `A checkpoint id is ${CHECKPOINT_KINDS.join(", ")} followed by '/' and a name, got ${JSON.stringify(folder)}.`,
    );
  }
  const run = store.runs.get(runId);
  const record = store.checkpoints.get(runId, kind, name);
  if (run !== undefined && record !== undefined && (record.public || mayAccess(identity, run.owner)))
    return record;
  const path = tinkerPath({ runId, kind, name });
  throw new HttpError(404, `There is no checkpoint ${path}, or it is not yours and not published.`);
}

/** A checkpoint that the caller may change. */
export function ownCheckpoint(
  store: CheckpointRecords,
  identity: RequestOwner,
  parts: CheckpointParts,
): StoredCheckpoint {
  const record = readableCheckpoint(store, identity, parts);
  if (mayAccess(identity, store.runs.get(record.runId)!.owner)) return record;
  throw new HttpError(
    403,
    `Checkpoint ${tinkerPath(record)} belongs to another user; only its owner may change it.`,
  );
}

/** A run of the caller's own. */
export function ownRun(store: CheckpointRecords, identity: RequestOwner, runId: string): RunRecord {
  const run = store.runs.get(runId);
  if (run !== undefined && mayAccess(identity, run.owner)) return run;
  throw new HttpError(404, `There is no training run ${runId}.`);
}

/** Reads a checkpoint's weights. It existed when the request arrived, but may have been deleted before its turn. */
export async function readCheckpoint(
  store: CheckpointRecords,
  record: StoredCheckpoint,
): Promise<AdapterState> {
  const gone = () => new HttpError(404, `Checkpoint ${tinkerPath(record)} was deleted or replaced.`);
  const isThere = () =>
    store.checkpoints.get(record.runId, record.kind, record.name)?.createdAt === record.createdAt;
  const run = store.runs.get(record.runId);
  if (run === undefined || !isThere()) throw gone();
  try {
    return await store.checkpoints.readState(record, run.lora);
  } catch (error) {
    throw isThere() ? error : gone();
  }
}

/** When something that is kept for `ttlSeconds` goes; null for what is kept for good. */
export function expiryOf(clock: Clock, ttlSeconds: number | null | undefined): number | null {
  return ttlSeconds === null || ttlSeconds === undefined ? null : clock.wallNow() + ttlSeconds * 1000;
}
