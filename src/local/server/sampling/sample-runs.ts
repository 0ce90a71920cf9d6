import { randomInt, randomUUID } from "node:crypto";
import type { Clock } from "../../../transport/clock.js";
import { endpoints } from "../../../wire/endpoints/index.js";
import { decodeSampleResponse, encodeSampleResponse } from "../../../wire/protobuf.js";
import type { TensorData } from "../../../wire/tensors/tensor-data.js";
import {
  CancelledError,
  type Engine,
  type OnToken,
  type SampledToken,
  type SampleResult,
} from "../../engine/engine.js";
import type { Store } from "../../store/store.js";
import type { Activity } from "../activity.js";
import { readCheckpoint } from "../checkpoints/find-checkpoint.js";
import {
  EncodedResult,
  type Failure,
  type Future,
  type FutureStore,
  type Outcome,
  outcomeOf,
} from "../futures/future-store.js";
import { describeFailure, HttpError, tooBusy } from "../http/http-error.js";
import type { Limits } from "../http/limits.js";
import type { Identity } from "../http/route.js";
import { type Absence, type LiveSession, newAbsence, PAUSE_AFTER_MS } from "../sessions/live-sessions.js";
import type { AdapterLease, AdapterPool } from "./adapter-pool.js";
import { type SampleWork, toSampleResponse } from "./sample-call.js";
import type { SampledModel, SampledWeights } from "./sampling-sessions.js";

const MAX_SEED = 2 ** 48 - 1;

/** One sample request, checked. */
export interface SampleJob {
  readonly requestId: string;
  readonly owner: string;
  /** What traces draw it under. */
  readonly track: string;
  readonly session: LiveSession | undefined;
  readonly weights: SampledWeights;
  readonly call: SampleWork;
  readonly targets?: TensorData | undefined;
  /** Hears each token of each sample once and in order, however often the engine begins again. */
  readonly onToken?: OnToken | undefined;
  readonly onForgotten?: () => void;
  readonly onEnd?: (outcome: Outcome) => void;
}

/** What running samples needs of the server. */
export interface SampleRunsOptions {
  readonly engine: Engine;
  readonly store: Pick<Store, "runs" | "checkpoints" | "usage">;
  readonly clock: Clock;
  readonly futures: FutureStore;
  readonly limits: Limits;
  readonly adapters: AdapterPool;
  /** A request without a session that nobody has asked for in this time is given up. */
  readonly timeoutMs: number;
  readonly activity: Activity;
}

/** Who waits for a request that is of no session: its polls are all there is to see of them. */
interface Waiter {
  openPolls: number;
  /** When its last poll was closed without an answer; nobody has asked since. */
  goneAt: number | undefined;
  absence: Absence | undefined;
}

interface Running {
  readonly session: LiveSession | undefined;
  /** Set where there is no session. */
  readonly waiter: Waiter | undefined;
  /** Whose turn it takes: the session's, or its owner's where there is none. */
  readonly turnOf: string;
  readonly sequences: number;
  isCancelled: boolean;
  /** Taken out of the engine because nobody waits for it. */
  isPaused: boolean;
  startedAt: number;
  /** Set when it was not the client that cancelled it. */
  failure?: Failure;
}

/** The samples that are being drawn or wait for it; many at once, which the engine batches. */
export class SampleRuns {
  readonly #options: SampleRunsOptions;
  readonly #running = new Map<string, Running>();
  #queuedSequences = 0;

  constructor(options: SampleRunsOptions) {
    this.#options = options;
  }

  /** How many sequences are being drawn or wait for it. */
  get sequences(): number {
    return this.#queuedSequences;
  }

  /** Accepts a request that is of no session; every one of them is new. */
  startAlone(
    identity: Identity,
    { info, weights }: SampledModel,
    call: SampleWork,
    more: Pick<SampleJob, "targets" | "onToken" | "onEnd"> = {},
  ): Future {
    const requestId = `sample-${randomUUID()}`;
    const { owner } = identity;
    return this.start({ requestId, owner, track: info.name, session: undefined, weights, call, ...more });
  }

  /** Accepts a sample request; 429 when too many are waiting. */
  start(job: SampleJob): Future {
    const { limits, futures, engine, clock } = this.#options;
    const sequences = job.call.numSamples;
    const turnOf = job.session?.record.id ?? `owner ${job.owner}`;
    if (this.#queuedSequences + sequences > limits.queuedSequences) this.#checkShare(turnOf, sequences);
    const running: Running = {
      session: job.session,
      waiter: job.session ? undefined : { openPolls: 0, goneAt: undefined, absence: undefined },
      turnOf,
      sequences,
      isCancelled: false,
      isPaused: false,
      startedAt: clock.now(),
    };
    const future = futures.create({
      requestId: job.requestId,
      owner: job.owner,
      cancel: () => {
        running.isCancelled = true;
        noteSeen(running.waiter);
        engine.cancelSample(job.requestId);
      },
      onForgotten: () => job.onForgotten?.(),
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

  /** Where the queue is full, only those may go on filling it who have less than their share of it. */
  #checkShare(turnOf: string, sequences: number): void {
    const queued = new Map<string, number>([[turnOf, 0]]);
    for (const other of this.#running.values())
      queued.set(other.turnOf, (queued.get(other.turnOf) ?? 0) + other.sequences);
    const own = queued.get(turnOf)!;
    const { queuedSequences } = this.#options.limits;
    if (own === 0 || own + sequences <= queuedSequences / queued.size) return;
    throw tooBusy(
      `${this.#queuedSequences} sequences are being sampled or waiting, ${own} of them yours; at most ${queuedSequences} may. Try again in a moment.`,
    );
  }

  async #run(job: SampleJob, running: Running): Promise<Outcome> {
    const { clock } = this.#options;
    const { requestId, call } = job;
    const submittedAt = clock.now();
    let outcome: Outcome;
    let tokens = 0;
    try {
      const result = await this.#draw(job, running);
      for (const sequence of result.sequences) tokens += sequence.tokens.length;
      this.#count(job, result.promptCacheHitTokens, tokens);
      this.#options.activity.sampled(tokens, running.startedAt);
      const response = toSampleResponse(result, call.prompt, job.targets);
      const encoded = new EncodedResult(encodeSampleResponse(response), decodeSampleResponse);
      outcome = outcomeOf(endpoints.sample, encoded);
    } catch (error) {
      outcome = { type: "failed", ...(running.failure ?? describeFailure(error)) };
    }
    job.session?.trace.add({
      name: "sample",
      track: job.track,
      submittedAt,
      startedAt: running.startedAt,
      endedAt: clock.now(),
      failed: outcome.type === "failed",
      details: { requestId, promptTokens: call.prompt.length, samples: call.numSamples, tokens },
    });
    return outcome;
  }

  /** Draws in the engine; what a pause takes out of it begins again when the client is back. */
  async #draw(job: SampleJob, running: Running): Promise<SampleResult> {
    const { clock, engine } = this.#options;
    const { requestId, call } = job;
    const client = job.session ?? running.waiter;
    // Chosen here and not by the engine, so that a sample that begins again draws what has been told already.
    const seed = call.seed ?? (job.onToken && randomInt(MAX_SEED));
    const onToken = job.onToken && this.#inOrder(requestId, running, job.onToken);
    for (;;) {
      await client?.absence?.over;
      running.isPaused = false;
      const lease = await this.#lease(job);
      try {
        // Cancelled or paused while its weights were being loaded: the engine does not know of it yet.
        if (running.isCancelled) throw new CancelledError("The request was cancelled.");
        if (client?.absence !== undefined) continue;
        running.startedAt = clock.now();
        const session = running.turnOf;
        return await engine.sample(
          { ...call, seed, requestId, session, adapterId: lease?.adapterId },
          onToken,
        );
      } catch (error) {
        if (running.isCancelled || !running.isPaused) throw error;
      } finally {
        lease?.release();
      }
    }
  }

  /** Tells of each position once; a listener that throws ends its sample and nobody else's. */
  #inOrder(requestId: string, running: Running, onToken: OnToken): OnToken {
    const told = new Array<number>(running.sequences).fill(0);
    return (token: SampledToken) => {
      if (running.isCancelled || token.position !== told[token.index]) return;
      told[token.index]! += 1;
      try {
        onToken(token);
      } catch (error) {
        running.isCancelled = true;
        running.failure = describeFailure(error);
        this.#options.engine.cancelSample(requestId);
      }
    };
  }

  async #lease({ weights, call }: SampleJob): Promise<AdapterLease | undefined> {
    const { adapters, store } = this.#options;
    switch (weights.type) {
      case "base":
        return undefined;
      case "checkpoint": {
        const { record } = weights;
        // The time tells an overwritten checkpoint from the one before it.
        const key = `${record.runId}/${record.kind}/${record.name}@${record.createdAt}`;
        return adapters.acquire(key, call.baseModel, () => readCheckpoint(store, record));
      }
      case "unnamed":
        return adapters.acquire(weights.key, call.baseModel, () =>
          Promise.reject(
            new HttpError(
              410,
              "The sampler's weights are gone: they had no name, and the engine that held them was lost. Save weights under a name to keep them.",
            ),
          ),
        );
      default:
        return weights satisfies never;
    }
  }

  #count({ owner, session, call }: SampleJob, cacheHits: number, sampledTokens: number): void {
    const { usage } = this.#options.store;
    const at = this.#options.clock.wallNow();
    const { prompt, numSamples, baseModel } = call;
    const common = { owner, sessionId: session?.record.id ?? null, baseModel };
    usage.add(at, { ...common, kind: "prefill", count: prompt.length - cacheHits });
    // The other samples of a request share its prompt.
    const shared = cacheHits + prompt.length * (numSamples - 1);
    usage.add(at, { ...common, kind: "cached_prefill", count: shared });
    usage.add(at, { ...common, kind: "sample", count: sampledTokens });
  }

  /** Somebody asks for a request; where it is of no session, that is the only sign of life. */
  async whilePolling<T>(requestId: string, signal: AbortSignal, poll: () => Promise<T>): Promise<T> {
    const waiter = this.#running.get(requestId)?.waiter;
    if (waiter === undefined) return poll();
    noteSeen(waiter);
    waiter.openPolls += 1;
    try {
      return await poll();
    } finally {
      waiter.openPolls -= 1;
      if (signal.aborted && waiter.openPolls === 0) waiter.goneAt = this.#options.clock.now();
    }
  }

  /** Pauses and gives up what nobody has asked for again; not counting the time in which this server itself was away. */
  expire(awayMs: number): void {
    const { clock, engine, timeoutMs } = this.#options;
    for (const [requestId, running] of this.#running) {
      const { waiter } = running;
      if (waiter?.goneAt === undefined) continue;
      waiter.goneAt = Math.min(waiter.goneAt + awayMs, clock.now());
      const goneMs = clock.now() - waiter.goneAt;
      if (goneMs >= PAUSE_AFTER_MS && waiter.absence === undefined) {
        waiter.absence = newAbsence();
        running.isPaused = true;
        engine.cancelSample(requestId);
      }
      if (goneMs < timeoutMs) continue;
      running.isCancelled = true;
      const error = `Nobody has asked for request ${requestId} for ${Math.round(timeoutMs / 1000)} s.`;
      running.failure = { error, category: "server" };
      noteSeen(waiter);
    }
  }

  /** Takes the samples of a session out of the engine until its absence is over. */
  pauseSession(session: LiveSession): void {
    this.#stop(session, (running) => {
      running.isPaused = true;
    });
  }

  /** Stops the samples of a session that is over. */
  endSession(session: LiveSession, failure: Failure): void {
    this.#stop(session, (running) => {
      running.isCancelled = true;
      running.failure = failure;
    });
  }

  #stop(session: LiveSession, note: (running: Running) => void): void {
    for (const [requestId, running] of this.#running) {
      if (running.session !== session) continue;
      note(running);
      this.#options.engine.cancelSample(requestId);
    }
  }
}

function noteSeen(waiter: Waiter | undefined): void {
  if (waiter === undefined) return;
  waiter.goneAt = undefined;
  waiter.absence?.end();
  waiter.absence = undefined;
}
