import type { Context, Hono } from "hono";
import type { Clock } from "../../transport/clock.js";
import {
  CHECKPOINT_KINDS,
  type CheckpointKind,
  formatTinkerPath,
  parseTinkerPath,
} from "../../wire/tinker-path.js";
import type { AdapterState, BaseModelInfo, Engine } from "../engine/engine.js";
import type { CheckpointRecord } from "../store/checkpoint-store.js";
import { checkName } from "../store/names.js";
import type { RunRecord } from "../store/run-store.js";
import type { Store } from "../store/store.js";
import type { BodyReader } from "./body.js";
import type { FutureStore } from "./future-store.js";
import { HttpError, invalid } from "./http-error.js";
import { type Identities, type Identity, mayAccess } from "./identity.js";
import type { Limits } from "./limits.js";
import type { QueueBudget } from "./model-queue.js";
import type { Samplers, SamplerWeights } from "./samplers.js";
import type { Sessions } from "./sessions.js";
import type { UrlSigner } from "./url-signer.js";

export type AppEnv = { Variables: { identity: Identity } };
export type App = Hono<AppEnv>;
export type AppContext = Context<AppEnv>;

/** Everything the routes share. */
export interface Core {
  readonly engine: Engine;
  readonly models: ReadonlyMap<string, BaseModelInfo>;
  readonly store: Store;
  readonly clock: Clock;
  readonly random: () => number;
  readonly limits: Limits;
  readonly identities: Identities;
  readonly signer: UrlSigner;
  readonly futures: FutureStore;
  readonly sessions: Sessions;
  readonly samplers: Samplers;
  readonly budget: QueueBudget;
  readonly bodies: BodyReader["bodies"];
  readonly clientConfig: Readonly<Record<string, boolean | number | string>>;
}

export function modelInfo(core: Core, name: string, field: string): BaseModelInfo {
  const info = core.models.get(name);
  if (info !== undefined) return info;
  throw invalid(
    field,
    `must be a model of this server (${[...core.models.keys()].join(", ")}), got ${JSON.stringify(name)}`,
  );
}

export function tinkerPath(record: { runId: string; kind: CheckpointKind; name: string }): string {
  return formatTinkerPath(record.runId, record.kind, record.name);
}

/** A checkpoint by its path, for somebody who may read it: its owner, or anybody once it is published. */
export function checkpointByPath(
  core: Core,
  identity: Identity,
  path: string,
  field: string,
): CheckpointRecord {
  const { trainingRunId, kind, name } = parseTinkerPath(path, field);
  return readableCheckpoint(core, identity, trainingRunId, kind, name);
}

export function readableCheckpoint(
  core: Core,
  identity: Identity,
  runId: string,
  kind: CheckpointKind,
  name: string,
): CheckpointRecord {
  const run = core.store.runs.get(runId);
  const record = core.store.checkpoints.get(runId, kind, name);
  if (run === undefined || record === undefined || !(record.public || mayAccess(identity, run.owner))) {
    throw new HttpError(
      404,
      `There is no checkpoint ${formatTinkerPath(runId, kind, name)}, or it is not yours and not published.`,
    );
  }
  return record;
}

/** What a checkpoint holds. It was found when the request came; by the time of its turn it may be gone. */
export async function readCheckpoint(store: Store, record: CheckpointRecord): Promise<AdapterState> {
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

/** A checkpoint that the caller may change, from the parts of a URL. */
export function ownCheckpoint(
  core: Core,
  identity: Identity,
  runId: string,
  kind: CheckpointKind,
  name: string,
): CheckpointRecord {
  const record = readableCheckpoint(core, identity, runId, kind, name);
  if (!mayAccess(identity, core.store.runs.get(runId)!.owner)) {
    throw new HttpError(
      403,
      `Checkpoint ${tinkerPath(record)} is published by somebody else; only its owner may change it.`,
    );
  }
  return record;
}

/** The kind in a URL; a bare, untyped checkpoint id is a 400. */
export function checkpointKind(text: string): CheckpointKind {
  const kind = CHECKPOINT_KINDS.find((known) => known === text);
  if (kind !== undefined) return kind;
  throw new HttpError(
    400,
    `A checkpoint id is ${CHECKPOINT_KINDS.join(", ")} followed by '/' and a name, got ${JSON.stringify(text)}.`,
  );
}

export function checkpointName(name: string, field: string): string {
  const problem = checkName(name);
  if (problem !== undefined) throw invalid(field, problem);
  return name;
}

/** Whose checkpoints may be read: those of the token's owner when one is given. */
export function tokenIdentity(core: Core, identity: Identity, token: string | null | undefined): Identity {
  return token === null || token === undefined ? identity : core.identities.ofCredential(token);
}

export function ownRun(core: Core, identity: Identity, runId: string): RunRecord {
  const run = core.store.runs.get(runId);
  if (run !== undefined && mayAccess(identity, run.owner)) return run;
  throw new HttpError(404, `There is no training run ${runId}.`);
}

/** The project of a session or run; what was given none is in the default one. */
export function projectOf(record: { readonly projectId: string | null }): string {
  return record.projectId ?? "default";
}

export const MAX_TTL_SECONDS = 10 * 366 * 24 * 3600;

export function expiryOf(core: Core, ttlSeconds: number | null | undefined): number | null {
  if (ttlSeconds === null || ttlSeconds === undefined) return null;
  return core.clock.wallNow() + ttlSeconds * 1000;
}

/** Writes a line to the audit log; the event's part before the '.' is the resource. */
export async function audit(
  core: Core,
  identity: Identity,
  event: string,
  about: { modelId?: string; tinkerPath?: string; details?: Record<string, unknown> } = {},
): Promise<void> {
  await core.store.audit.append({
    timestamp: new Date(core.clock.wallNow()).toISOString(),
    owner: identity.owner,
    event,
    modelId: about.modelId ?? null,
    tinkerPath: about.tinkerPath ?? null,
    details: about.details ?? {},
  });
}

export function isoTime(wallMs: number): string {
  return new Date(wallMs).toISOString();
}

/** Metadata as the SDKs read it back: text to text. */
export function textMetadata(
  metadata: Readonly<Record<string, unknown>> | null | undefined,
): Record<string, string> | null {
  if (metadata === null || metadata === undefined) return null;
  return Object.fromEntries(
    Object.entries(metadata).map(([key, value]) => [
      key,
      typeof value === "string" ? value : JSON.stringify(value),
    ]),
  );
}

/** The model and weights that a base model's name or a checkpoint's path stands for. */
export function weightsFor(
  core: Core,
  identity: Identity,
  baseModel: string | null | undefined,
  modelPath: string | null | undefined,
  choices = "base_model or model_path",
): { info: BaseModelInfo; weights: SamplerWeights } {
  if (typeof modelPath === "string") {
    const record = checkpointByPath(core, identity, modelPath, "model_path");
    const run = core.store.runs.get(record.runId)!;
    if (typeof baseModel === "string" && baseModel !== run.baseModel) {
      throw invalid("base_model", `is ${baseModel}, but ${modelPath} is of ${run.baseModel}`);
    }
    return { info: modelInfo(core, run.baseModel, "model_path"), weights: { type: "checkpoint", record } };
  }
  if (typeof baseModel !== "string") throw invalid("base_model", `is missing: give ${choices}`);
  return { info: modelInfo(core, baseModel, "base_model"), weights: { type: "base" } };
}
