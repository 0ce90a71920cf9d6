import { randomUUID } from "node:crypto";
import type { Clock } from "../../../transport/clock.js";
import type { BaseModelInfo } from "../../engine/engine.js";
import type { StoredCheckpoint } from "../../store/checkpoint-store.js";
import { sessionIdOf } from "../../store/session-store.js";
import type { Store } from "../../store/store.js";
import { type CheckpointRecords, checkpointByPath } from "../checkpoints/find-checkpoint.js";
import { CompletionLog } from "../futures/completion-log.js";
import { conflict, HttpError, invalid } from "../http/http-error.js";
import type { Limits } from "../http/limits.js";
import { mayAccess, type RequestOwner } from "../http/route.js";
import { type BaseModels, findBaseModel } from "../sessions/base-models.js";
import type { LiveModel, LiveSession, LiveSessions } from "../sessions/live-sessions.js";
import type { AdapterPool } from "./adapter-pool.js";

/** Which weights are sampled from. */
export type SampledWeights =
  | { readonly type: "base" }
  | { readonly type: "checkpoint"; readonly record: StoredCheckpoint }
  | UnnamedWeights;

/** Weights that have no checkpoint. Those in flight are shared by their samplers, and their key changes with each save. */
interface UnnamedWeights {
  readonly type: "unnamed";
  key: string;
}

/** A base model, and the weights on top of it. */
export interface SampledModel {
  readonly info: BaseModelInfo;
  readonly weights: SampledWeights;
}

/** The model and weights that a base model's name or a checkpoint's path stands for. */
export function findSampledModel(
  store: CheckpointRecords,
  models: BaseModels,
  identity: RequestOwner,
  {
    baseModel,
    modelPath,
  }: { readonly baseModel?: string | undefined; readonly modelPath?: string | undefined },
  choices = "baseModel or modelPath",
): SampledModel {
  if (modelPath === undefined) {
    if (baseModel === undefined) throw invalid("baseModel", `is missing: give ${choices}`);
    return { info: findBaseModel(models, baseModel, "baseModel"), weights: { type: "base" } };
  }
  const record = checkpointByPath(store, identity, modelPath, "modelPath");
  const run = store.runs.get(record.runId)!;
  if (baseModel !== undefined && baseModel !== run.baseModel)
    throw invalid("baseModel", `is ${baseModel}, but ${modelPath} is of ${run.baseModel}`);
  return { info: findBaseModel(models, run.baseModel, "modelPath"), weights: { type: "checkpoint", record } };
}

/** Weights that the clients of a session sample from, under an id of their own. */
export interface SamplingSession extends SampledModel {
  readonly id: string;
  readonly session: LiveSession;
  readonly modelPath: string | null;
  /** Fingerprints by `seqId` in its decimal form: ids of cloned clients go beyond what a double holds. */
  readonly requests: Map<string, string>;
  readonly completions: Map<string, CompletionLog>;
  clients: number;
}

/** Parts of the server that sampling sessions use. */
export interface SamplingSessionsOptions {
  readonly store: Pick<Store, "sessions">;
  readonly clock: Clock;
  readonly limits: Limits;
  readonly sessions: LiveSessions;
  readonly adapters: AdapterPool;
}

/** The sampling sessions of all live sessions. */
export class SamplingSessions {
  readonly #options: SamplingSessionsOptions;
  readonly #all = new Map<string, SamplingSession>();
  readonly #inflight = new WeakMap<LiveModel, UnnamedWeights>();

  constructor(options: SamplingSessionsOptions) {
    this.#options = options;
  }

  /** Creates a sampling session, or finds the one of that id when the request is sent again. */
  create(
    session: LiveSession,
    seqId: number,
    { info, weights }: SampledModel,
    modelPath: string | null,
  ): SamplingSession {
    const id = `${session.record.id}:sample:${seqId}`;
    const existing = this.#all.get(id);
    if (existing !== undefined) {
      const isSame =
        existing.info.name === info.name &&
        existing.modelPath === modelPath &&
        existing.weights.type === weights.type &&
        // Weights frozen a second time are other weights.
        weights.type !== "unnamed";
      if (isSame) return existing;
      throw conflict(`Sampling session ${id} exists already, with other weights.`);
    }
    const created: SamplingSession = {
      id,
      session,
      info,
      weights,
      modelPath,
      requests: new Map(),
      completions: new Map(),
      clients: 0,
    };
    this.#all.set(id, created);
    session.samplerIds.add(id);
    const { limits, store } = this.#options;
    store.sessions.addSampler(
      session.record,
      { id, baseModel: info.name, modelPath },
      limits.samplersPerSession,
    );
    const samplers = this.#of(session);
    void this.#removeOldest(samplers, samplers.length - limits.samplersPerSession);
    return created;
  }

  /**
   * Freezes a model's weights as they are now into a sampling session that has no checkpoint. Weights in flight also
   * replace those of the model's earlier sessions of that kind.
   */
  async freeze(
    model: LiveModel,
    seqId: number,
    kind: "snapshot" | "inflight" = "snapshot",
  ): Promise<SamplingSession> {
    const { adapters } = this.#options;
    const key = `unnamed:${randomUUID()}`;
    await adapters.adopt(key, model.session.record.owner, model.adapterId, model.info.name);
    try {
      const shared = kind === "inflight" ? this.#inflight.get(model) : undefined;
      const weights = shared ?? { type: "unnamed", key };
      const created = this.create(model.session, seqId, { info: model.info, weights }, null);
      if (kind === "inflight") this.#inflight.set(model, weights);
      if (shared !== undefined) {
        const replaced = shared.key;
        shared.key = key;
        await adapters.drop(replaced);
      }
      await this.#limitUnnamed(model.session.record.owner, model.session);
      return created;
    } catch (error) {
      await adapters.drop(key);
      throw error;
    }
  }

  async #limitUnnamed(owner: string, session: LiveSession): Promise<void> {
    const { limits, sessions } = this.#options;
    const isUnnamed = ({ weights }: SamplingSession) => weights.type === "unnamed";
    const ofSession = this.#of(session).filter(isUnnamed);
    await this.#removeOldest(ofSession, ofSession.length - limits.ephemeralSamplers);
    const held = sessions.held(limits.unnamedSamplers, (each) => this.#of(each).filter(isUnnamed).length);
    const surplus = Math.ceil(held.heldBy(owner) - held.limitFor(owner));
    if (surplus <= 0) return;
    const ofOwner = [...this.#all.values()].filter(
      (each) => isUnnamed(each) && each.session.record.owner === owner,
    );
    await this.#removeOldest(ofOwner, surplus);
  }

  async #removeOldest(samplers: readonly SamplingSession[], surplus: number): Promise<void> {
    for (const oldest of samplers.slice(0, Math.max(0, surplus))) await this.#remove(oldest);
  }

  #of(session: LiveSession): SamplingSession[] {
    return [...session.samplerIds].flatMap((id) => this.#all.get(id) ?? []);
  }

  async #remove(removed: SamplingSession): Promise<void> {
    this.#all.delete(removed.id);
    removed.session.samplerIds.delete(removed.id);
    for (const log of removed.completions.values()) log.close();
    const { weights } = removed;
    const isShared = [...this.#all.values()].some((other) => other.weights === weights);
    if (weights.type === "unnamed" && !isShared) await this.#options.adapters.drop(weights.key);
  }

  /** The sampling session that a request is for; a sign of life. */
  use(identity: RequestOwner, id: string): SamplingSession {
    const { sessions, store, limits } = this.#options;
    const found = this.#all.get(id);
    const session = sessions.use(identity, sessionIdOf(id));
    if (found !== undefined && found.session === session) return found;
    const record = store.sessions.sampler(id);
    if (record !== undefined && mayAccess(identity, record.session.owner)) {
      throw new HttpError(
        410,
        `Sampling session ${id} is gone: the server keeps the newest ${limits.samplersPerSession} of a session, of unnamed ones ${limits.ephemeralSamplers}. Save weights under a name to keep them.`,
      );
    }
    throw new HttpError(404, `There is no sampling session ${id}.`);
  }

  /** Completed requests of one client of a sampling session. */
  completionsOf(sampling: SamplingSession, clientId: string): CompletionLog {
    let log = sampling.completions.get(clientId);
    if (log === undefined) {
      log = new CompletionLog(this.#options.clock);
      sampling.completions.set(clientId, log);
    }
    return log;
  }

  /** Frees what a session that is over samples from. */
  async endSession(session: LiveSession): Promise<void> {
    for (const sampling of this.#of(session)) await this.#remove(sampling);
  }
}
