import { randomUUID } from "node:crypto";
import type { Clock } from "../../transport/clock.js";
import { encodeSampleResponse } from "../../wire/protobuf.js";
import type { TensorData } from "../../wire/tensor-data.js";
import { type BaseModelInfo, CancelledError, type Engine, type SampleCall } from "../engine/engine.js";
import type { CheckpointRecord } from "../store/checkpoint-store.js";
import type { Store } from "../store/store.js";
import { AdapterPool } from "./adapter-pool.js";
import { CompletionLog } from "./completion-log.js";
import { readCheckpoint } from "./core.js";
import type { Failure, Future, FutureStore, Outcome } from "./future-store.js";
import { describeFailure, HttpError } from "./http-error.js";
import { type Identity, mayAccess } from "./identity.js";
import type { Limits } from "./limits.js";
import { toSampleResponse } from "./sample-request.js";
import type { LiveModel, LiveSession, Sessions } from "./sessions.js";

/** Which weights a sampler draws from. */
export type SamplerWeights =
  | { readonly type: "base" }
  | { readonly type: "checkpoint"; readonly record: CheckpointRecord }
  | { readonly type: "unnamed"; readonly key: string };

export interface Sampler {
  readonly id: string;
  readonly session: LiveSession;
  readonly info: BaseModelInfo;
  readonly weights: SamplerWeights;
  readonly modelPath: string | null;
  /** By `seq_id` in its decimal form: ids of cloned clients go beyond what a double holds. */
  readonly requests: Map<string, { fingerprint: string; requestId: string }>;
  readonly completions: Map<string, CompletionLog>;
  clients: number;
}

export interface SampleJob {
  readonly requestId: string;
  readonly owner: string;
  readonly sessionId: string | null;
  readonly track: string;
  readonly session: LiveSession | undefined;
  readonly weights: SamplerWeights;
  readonly call: Omit<SampleCall, "requestId" | "adapterId">;
  readonly targets: TensorData | undefined;
  readonly onForgotten?: () => void;
  readonly onEnd?: (outcome: Outcome) => void;
}

export interface SamplersOptions {
  readonly engine: Engine;
  readonly store: Store;
  readonly clock: Clock;
  readonly futures: FutureStore;
  readonly limits: Limits;
  readonly sessions: Sessions;
  readonly spillFolder: string;
}

interface RunningSample {
  readonly session: LiveSession | undefined;
  isCancelled: boolean;
  /** Set when it was not the client that cancelled it. */
  failure?: Failure;
}

/** Samplers and the samples they are asked for; many at once, which the engine batches. */
export class Samplers {
  readonly #options: SamplersOptions;
  readonly #pool: AdapterPool;
  readonly #samplers = new Map<string, Sampler>();
  readonly #running = new Map<string, RunningSample>();
  #queuedSequences = 0;

  constructor(options: SamplersOptions) {
    this.#options = options;
    this.#pool = new AdapterPool(options.engine, options.spillFolder, options.limits.loadedSamplers);
  }

  /** Creates a sampler, or finds the one of that id when the request is sent again. */
  create(
    session: LiveSession,
    seqId: number,
    info: BaseModelInfo,
    weights: SamplerWeights,
    modelPath: string | null,
  ): Sampler {
    const id = `${session.record.id}:sample:${seqId}`;
    const existing = this.#samplers.get(id);
    if (existing !== undefined) {
      if (
        existing.info.name === info.name &&
        existing.modelPath === modelPath &&
        existing.weights.type === weights.type &&
        // Weights frozen a second time are other weights.
        weights.type !== "unnamed"
      ) {
        return existing;
      }
      throw new HttpError(409, `Sampling session ${id} exists already, with other weights.`, {
        "x-should-retry": "false",
      });
    }
    const sampler: Sampler = {
      id,
      session,
      info,
      weights,
      modelPath,
      requests: new Map(),
      completions: new Map(),
      clients: 0,
    };
    this.#samplers.set(id, sampler);
    session.samplerIds.add(id);
    this.#options.store.sessions.addSampler(session.record, { id, baseModel: info.name, modelPath });
    return sampler;
  }

  /** Freezes a model's weights as they are now into a sampler that has no checkpoint. */
  async createUnnamed(model: LiveModel, seqId: number): Promise<Sampler> {
    const key = `unnamed:${randomUUID()}`;
    const weights: SamplerWeights = { type: "unnamed", key };
    await this.#pool.adopt(key, model.adapterId, model.info.name);
    try {
      const sampler = this.create(model.session, seqId, model.info, weights, null);
      await this.#limitUnnamed(model.session);
      return sampler;
    } catch (error) {
      await this.#pool.drop(key);
      throw error;
    }
  }

  async #limitUnnamed(session: LiveSession): Promise<void> {
    const unnamed = [...session.samplerIds]
      .map((id) => this.#samplers.get(id))
      .filter((sampler) => sampler?.weights.type === "unnamed");
    const surplus = unnamed.length - this.#options.limits.ephemeralSamplers;
    for (const sampler of unnamed.slice(0, Math.max(surplus, 0)))
      if (sampler !== undefined) await this.#remove(sampler);
  }

  async #remove(sampler: Sampler): Promise<void> {
    this.#samplers.delete(sampler.id);
    sampler.session.samplerIds.delete(sampler.id);
    for (const log of sampler.completions.values()) log.close();
    if (sampler.weights.type === "unnamed") await this.#pool.drop(sampler.weights.key);
  }

  use(identity: Identity, samplerId: string): Sampler {
    const sampler = this.#samplers.get(samplerId);
    const session = this.#options.sessions.use(identity, this.#options.sessions.sessionIdOf(samplerId));
    if (sampler !== undefined && sampler.session === session) return sampler;
    const record = this.#options.store.sessions.sampler(samplerId);
    if (record !== undefined && mayAccess(identity, record.session.owner)) {
      throw new HttpError(
        410,
        `Sampling session ${samplerId} is gone: the server keeps the newest ${this.#options.limits.ephemeralSamplers} unnamed ones of a session. Save weights under a name to keep them.`,
      );
    }
    throw new HttpError(404, `There is no sampling session ${samplerId}.`);
  }

  completionsOf(sampler: Sampler, clientId: string): CompletionLog {
    let log = sampler.completions.get(clientId);
    if (log === undefined) {
      log = new CompletionLog(this.#options.clock);
      sampler.completions.set(clientId, log);
    }
    return log;
  }

  /** Accepts a sample request; 429 when too many are waiting, which clients answer by backing off. */
  start(job: SampleJob): Future {
    const { limits, futures, engine } = this.#options;
    const sequences = job.call.numSamples;
    if (this.#queuedSequences > 0 && this.#queuedSequences + sequences > limits.queuedSequences) {
      throw new HttpError(
        429,
        `${this.#queuedSequences} sequences are being sampled or waiting; at most ${limits.queuedSequences} may. Try again in a moment.`,
        { "retry-after": "1" },
      );
    }
    const running: RunningSample = { session: job.session, isCancelled: false };
    const future = futures.create({
      requestId: job.requestId,
      owner: job.owner,
      cancel: () => {
        running.isCancelled = true;
        engine.cancelSample(job.requestId);
      },
      ...(job.onForgotten === undefined ? {} : { onForgotten: job.onForgotten }),
    });
    this.#queuedSequences += sequences;
    this.#running.set(job.requestId, running);
    void this.#run(job, running).then((outcome) => {
      this.#queuedSequences -= sequences;
      this.#running.delete(job.requestId);
      futures.end(future, outcome);
      job.onEnd?.(outcome);
    });
    return future;
  }

  async #run(job: SampleJob, running: RunningSample): Promise<Outcome> {
    const { clock, engine } = this.#options;
    const submittedAt = clock.now();
    let startedAt = submittedAt;
    let outcome: Outcome;
    let tokens = 0;
    try {
      const lease = await this.#lease(job);
      try {
        startedAt = clock.now();
        // Cancelled while its weights were being loaded: the engine does not know of it yet.
        if (running.isCancelled) throw new CancelledError("The request was cancelled.");
        const result = await engine.sample({
          ...job.call,
          requestId: job.requestId,
          adapterId: lease?.adapterId,
        });
        for (const sequence of result.sequences) tokens += sequence.tokens.length;
        this.#count(job, result.promptCacheHitTokens, tokens);
        const response = toSampleResponse(result, job.call.prompt, job.targets);
        outcome = { type: "proto", message: "sample", bytes: encodeSampleResponse(response) };
      } finally {
        lease?.release();
      }
    } catch (error) {
      outcome = { type: "failed", ...(running.failure ?? describeFailure(error)) };
    }
    job.session?.trace.add({
      name: "sample",
      track: job.track,
      submittedAt,
      startedAt,
      endedAt: clock.now(),
      failed: outcome.type === "failed",
      details: {
        request_id: job.requestId,
        prompt_tokens: job.call.prompt.length,
        samples: job.call.numSamples,
        tokens,
      },
    });
    return outcome;
  }

  #lease(job: SampleJob) {
    const { weights } = job;
    const { baseModel } = job.call;
    switch (weights.type) {
      case "base":
        return Promise.resolve(undefined);
      case "checkpoint": {
        const { record } = weights;
        // The time tells an overwritten checkpoint from the one before it.
        const key = `${record.runId}/${record.kind}/${record.name}@${record.createdAt}`;
        return this.#pool.acquire(key, baseModel, () => readCheckpoint(this.#options.store, record));
      }
      case "unnamed":
        return this.#pool.acquire(weights.key, baseModel, () =>
          Promise.reject(new HttpError(410, "The sampler's weights are gone.")),
        );
      default:
        return weights satisfies never;
    }
  }

  #count(job: SampleJob, cacheHits: number, sampledTokens: number): void {
    const { usage } = this.#options.store;
    const at = this.#options.clock.wallNow();
    const prompt = job.call.prompt.length;
    const common = { owner: job.owner, sessionId: job.sessionId, baseModel: job.call.baseModel };
    usage.add(at, { ...common, kind: "prefill", count: prompt - cacheHits });
    // The other samples of a request share its prompt.
    usage.add(at, {
      ...common,
      kind: "cached_prefill",
      count: cacheHits + prompt * (job.call.numSamples - 1),
    });
    usage.add(at, { ...common, kind: "sample", count: sampledTokens });
  }

  /** Stops the samples of a session that is over and frees its samplers. */
  async endSession(session: LiveSession, failure: Failure): Promise<void> {
    for (const [requestId, running] of this.#running) {
      if (running.session !== session) continue;
      running.isCancelled = true;
      running.failure = failure;
      this.#options.engine.cancelSample(requestId);
    }
    for (const id of [...session.samplerIds]) {
      const sampler = this.#samplers.get(id);
      if (sampler !== undefined) await this.#remove(sampler);
    }
  }
}
