import { randomInt } from "node:crypto";
import type { Clock } from "../../../transport/clock.js";
import { endpoints } from "../../../wire/endpoints/index.js";
import { decodeSampleResponse, encodeSampleResponse } from "../../../wire/protobuf.js";
import type { SampleResponse } from "../../../wire/sampling/sampling-types.js";
import {
  CancelledError,
  type Engine,
  type OnToken,
  type SampledToken,
  type SampleResult,
} from "../../engine/engine.js";
import { checkConstraintSize } from "../../engine/sampling/json/schema-grammar.js";
import type { Store } from "../../store/store.js";
import type { Activity } from "../activity.js";
import { readCheckpoint } from "../checkpoints/find-checkpoint.js";
import {
  EncodedResult,
  type Failure,
  type Future,
  type FutureOutcome,
  type FutureStore,
  outcomeOf,
} from "../futures/future-store.js";
import { describeFailure, HttpError, tooBusy } from "../http/http-error.js";
import type { Limits } from "../http/limits.js";
import type { OwnerShares } from "../http/owner-shares.js";
import { type Absence, type LiveSession, newAbsence, PAUSE_AFTER_MS } from "../sessions/live-sessions.js";
import type { AdapterLease, AdapterPool } from "./adapter-pool.js";
import { type SampleJob, toSampleResponse } from "./sample-call.js";

const MAX_SEED = 2 ** 48 - 1;
/** Memory of a schema that is parsed in the server and again in the engine; `{},` takes the most. */
const BYTES_PER_SCHEMA_CHARACTER = 40;

/** Samples that are being drawn. */
export interface Drawing {
  /** Fails with an `HttpError`. */
  readonly result: Promise<SampleResponse>;
  cancel(): void;
}

/** Parts of the server that running samples use. */
export interface SampleRunsOptions {
  readonly engine: Engine;
  readonly store: Pick<Store, "runs" | "checkpoints" | "usage">;
  readonly clock: Clock;
  readonly futures: FutureStore;
  readonly limits: Limits;
  /** A limit that owners share. */
  readonly shared: (limit: number) => OwnerShares;
  readonly adapters: AdapterPool;
  /** A request without a session is cancelled if it was not polled for this time. */
  readonly timeoutMs: number;
  readonly activity: Activity;
}

/** Open polls of a request without a session: they show whether a client still waits for it. */
interface Waiter {
  openPolls: number;
  /** When its last poll was closed without an answer, if none is open since. */
  goneAt: number | undefined;
  absence: Absence | undefined;
}

interface Running {
  readonly session: LiveSession | undefined;
  /** Set if the request has no session. */
  readonly waiter: Waiter | undefined;
  readonly owner: string;
  /** Key for taking turns: the session, or the owner if there is no session. */
  readonly turnOf: string;
  readonly sequences: number;
  isCancelled: boolean;
  /** Taken out of the engine while its client is absent. */
  isPaused: boolean;
  startedAt: number;
  /** Set when it was not the client that cancelled it. */
  failure?: Failure;
}

/** The samples that are being drawn or wait for it; many at once, which the engine batches. */
export class SampleRuns {
  readonly #options: SampleRunsOptions;
  readonly #running = new Map<string, Running>();
  readonly #queued: OwnerShares;
  readonly #queuedBytes: OwnerShares;

  constructor(options: SampleRunsOptions) {
    this.#options = options;
    this.#queued = options.shared(options.limits.queuedSequences);
    this.#queuedBytes = options.shared(options.limits.queuedBytes);
  }

  /** How many sequences are being drawn or wait for it. */
  get sequences(): number {
    return this.#queued.total;
  }

  /** Draws samples whose result is fetched later, by the id of the request. */
  start(
    job: SampleJob,
    {
      onForgotten = () => {},
      onEnd = () => {},
    }: { onForgotten?: Future["onForgotten"]; onEnd?: (outcome: FutureOutcome) => void } = {},
  ): Future {
    const { futures } = this.#options;
    const { requestId, owner } = job;
    const { result, cancel } = this.draw(job);
    const future = futures.create({ requestId, owner, cancel, onForgotten });
    void result
      .then(encodedOutcome)
      .catch(failedOutcome)
      .then((outcome) => {
        futures.end(future, outcome);
        onEnd(outcome);
      });
    return future;
  }

  /** Draws samples for a caller in this process; 429 when too many are waiting. */
  draw(job: SampleJob): Drawing {
    const { engine, clock } = this.#options;
    const sequences = job.call.numSamples;
    const turnOf = job.session?.record.id ?? `owner ${job.owner}`;
    const { owner } = job;
    if (this.#queued.heldBy(owner) + sequences > this.#queued.limitFor(owner))
      this.#checkShare(owner, turnOf, sequences);
    const bytes = bytesOf(job.call);
    if (!this.#queuedBytes.admits(owner, bytes))
      throw tooBusy(
        `${this.#queuedBytes.heldBy(owner)} bytes of your prompts and schemas are being sampled or waiting; at most ${Math.floor(this.#queuedBytes.limitFor(owner))} may now. Try again in a moment.`,
      );
    const running: Running = {
      session: job.session,
      waiter: job.session ? undefined : { openPolls: 0, goneAt: undefined, absence: undefined },
      owner,
      turnOf,
      sequences,
      isCancelled: false,
      isPaused: false,
      startedAt: clock.now(),
    };
    this.#queued.add(owner, sequences);
    this.#queuedBytes.add(owner, bytes);
    this.#running.set(job.requestId, running);
    const result = this.#run(job, running).finally(() => {
      this.#queued.add(owner, -sequences);
      this.#queuedBytes.add(owner, -bytes);
      this.#running.delete(job.requestId);
    });
    const cancel = () => {
      if (this.#running.get(job.requestId) !== running) return;
      running.isCancelled = true;
      noteSeen(running.waiter);
      engine.cancelSample(job.requestId);
    };
    return { result, cancel };
  }

  /** Where an owner's part of the queue is full, only those sessions may go on filling it that have less than their share. */
  #checkShare(owner: string, turnOf: string, sequences: number): void {
    const queued = new Map<string, number>([[turnOf, 0]]);
    for (const other of this.#running.values())
      if (other.owner === owner) queued.set(other.turnOf, (queued.get(other.turnOf) ?? 0) + other.sequences);
    const own = queued.get(turnOf)!;
    const limit = Math.floor(this.#queued.limitFor(owner));
    if (own === 0 || own + sequences <= limit / queued.size) return;
    throw tooBusy(
      `${this.#queued.total} sequences are being sampled or waiting, ${own} of them yours; at most ${limit} may. Try again in a moment.`,
    );
  }

  async #run(job: SampleJob, running: Running): Promise<SampleResponse> {
    const { clock } = this.#options;
    const { requestId, call } = job;
    const submittedAt = clock.now();
    let failed = true;
    let tokens = 0;
    try {
      const result = await this.#draw(job, running);
      for (const sequence of result.sequences) tokens += sequence.tokens.length;
      this.#count(job, result.promptCacheHitTokens, tokens);
      this.#options.activity.sampled(tokens, running.startedAt);
      const response = toSampleResponse(result, call.prompt, job.targets);
      failed = false;
      return response;
    } catch (error) {
      const failure = running.failure ?? describeFailure(error);
      throw new HttpError(failure.category === "user" ? 400 : 500, failure.error);
    } finally {
      job.session?.trace.add({
        name: "sample",
        track: job.track,
        submittedAt,
        startedAt: running.startedAt,
        endedAt: clock.now(),
        failed,
        details: { requestId, promptTokens: call.prompt.length, samples: call.numSamples, tokens },
      });
    }
  }

  /** Draws in the engine; what a pause takes out of it begins again when the client is back. */
  async #draw(job: SampleJob, running: Running): Promise<SampleResult> {
    const { clock, engine } = this.#options;
    const { requestId, call } = job;
    const client = job.session ?? running.waiter;
    // Chosen here and not by the engine, so that a sample that begins again draws the same tokens.
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
        const { owner } = job;
        const session = job.session?.record.id;
        return await engine.sample(
          { ...call, seed, requestId, owner, session, adapterId: lease?.adapterId },
          onToken,
        );
      } catch (error) {
        if (running.isCancelled || !running.isPaused) throw error;
      } finally {
        lease?.release();
      }
    }
  }

  /** Reports each position once; a listener that throws ends only its own sample. */
  #inOrder(requestId: string, running: Running, onToken: OnToken): OnToken {
    const reported = new Array<number>(running.sequences).fill(0);
    return (token: SampledToken) => {
      if (running.isCancelled || token.position !== reported[token.index]) return;
      reported[token.index]! += 1;
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
        // The time distinguishes an overwritten checkpoint from the one before it.
        const key = `${record.runId}/${record.kind}/${record.name}@${record.createdAt}`;
        return adapters.acquire(key, call.baseModel, () => readCheckpoint(store, record));
      }
      case "unnamed":
        return adapters.acquire(weights.key, call.baseModel, () =>
          Promise.reject(
            new HttpError(
              410,
              "The sampler's weights are gone: they had no name, and the engine that held them was lost or your share of the disk was full. Save weights under a name to keep them.",
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

  /** Notes a poll for a request; without a session, polls are the only sign of life. */
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

  /** Pauses and cancels requests that are not polled; time in which this server was away does not count. */
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
      const error = `Request ${requestId} was cancelled: it was not polled for ${Math.round(timeoutMs / 1000)} s.`;
      running.failure = { error, category: "server" };
      noteSeen(waiter);
    }
  }

  /** Ends the samples that are of no session, since the server closes; those of sessions end with them. */
  close(): void {
    for (const [requestId, running] of this.#running) {
      if (running.session !== undefined) continue;
      running.isCancelled = true;
      running.failure = { error: "This server is closing.", category: "server" };
      noteSeen(running.waiter);
      this.#options.engine.cancelSample(requestId);
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

/** Memory that a request takes in the server and in the engine. */
function bytesOf({ prompt, constraint }: SampleJob["call"]): number {
  const schema = constraint === undefined ? 0 : checkConstraintSize(constraint);
  return 2 * prompt.byteLength + BYTES_PER_SCHEMA_CHARACTER * schema;
}

function encodedOutcome(response: SampleResponse): FutureOutcome {
  const encoded = new EncodedResult(encodeSampleResponse(response), decodeSampleResponse);
  return outcomeOf(endpoints.sample, encoded);
}

function failedOutcome(error: unknown): FutureOutcome {
  return { type: "failed", ...describeFailure(error) };
}

function noteSeen(waiter: Waiter | undefined): void {
  if (waiter === undefined) return;
  waiter.goneAt = undefined;
  waiter.absence?.end();
  waiter.absence = undefined;
}
