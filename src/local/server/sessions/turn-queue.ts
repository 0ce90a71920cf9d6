import type { Clock } from "../../../transport/clock.js";
import type { Failure, Future, FutureOutcome, FutureStore, QueueInfo } from "../futures/future-store.js";
import { conflict, describeFailure, HttpError, tooBusy } from "../http/http-error.js";
import type { Limits } from "../http/limits.js";
import type { OwnerShares } from "../http/owner-shares.js";
import type { TraceLog } from "./trace-log.js";

/** One request of a model. */
export interface QueuedRequest {
  /** Absent for clients that do not number their requests: they run in the order of arrival. */
  readonly seqId: number | undefined;
  /** Equal for equal payloads, however they were encoded. */
  readonly fingerprint: string;
  /** As traces show it. */
  readonly name: string;
  /** Bytes of memory that it takes while it waits. */
  readonly bytes: number;
  /** Looks at a request that is new, not a repeat; throws to refuse it. */
  readonly check?: () => void;
  readonly execute: () => Promise<FutureOutcome>;
}

interface Waiting {
  readonly seqId: number;
  readonly turn: QueuedRequest;
  readonly future: Future;
  readonly submittedAt: number;
}

/** Settings of the queue of one model. */
export interface TurnQueueOptions {
  readonly modelId: string;
  readonly owner: string;
  readonly clock: Clock;
  readonly futures: FutureStore;
  readonly limits: Limits;
  readonly trace: TraceLog;
  /** Bytes of the requests that wait in all queues. */
  readonly backlog: OwnerShares;
  /** The client is absent: nothing more is executed until `resume`. */
  readonly isPaused: () => boolean;
}

/** Bytes of a request beside its data: many small ones fill memory too. */
const REQUEST_BYTES = 1024;

// Enough to recognise any repeat a client can still send; an older one is answered with 410.
const MAX_REMEMBERED = 4096;

/**
 * The training requests of one model, executed one after the other strictly by number (`seqId`), not by the order in
 * which they arrive. Creating the model is number 0. A number whose request was refused is skipped.
 */
export class TurnQueue {
  readonly #options: TurnQueueOptions;
  readonly #waiting = new Map<number, Waiting>();
  readonly #known = new Map<number, { fingerprint: string; requestId: string }>();
  readonly #refused = new Set<number>();
  // Requests that took a refused number after the queue had moved past it.
  readonly #late: Waiting[] = [];
  #next = 0;
  #highest = -1;
  #running: Waiting | undefined;
  #closedBecause: string | undefined;
  #idle: (() => void)[] = [];

  constructor(options: TurnQueueOptions) {
    this.#options = options;
  }

  /** Number of the next request to execute; 1 = nothing but the creation has been executed. */
  get position(): number {
    return this.#next;
  }

  get length(): number {
    return this.#waiting.size + this.#late.length + (this.#running === undefined ? 0 : 1);
  }

  /** Accepts a request, or finds the future it was given when it was sent before. */
  submit(turn: QueuedRequest): Future {
    const { futures, limits, backlog, modelId, owner } = this.#options;
    if (this.#closedBecause !== undefined) throw new HttpError(410, this.#closedBecause);
    const seqId = turn.seqId ?? Math.max(this.#highest, 0) + 1;
    const before = this.#known.get(seqId);
    if (before !== undefined) return this.#repeated(seqId, turn, before);
    const isLate = seqId < this.#next;
    if (isLate && !this.#refused.has(seqId)) {
      throw new HttpError(
        410,
        `Request ${seqId} of model ${modelId} was executed long ago; the next one is ${this.#next}.`,
      );
    }
    const ahead = Math.max(this.length, seqId - this.#next);
    if (ahead >= limits.queuedRequestsPerModel) {
      throw tooBusy(
        `Request ${seqId} of model ${modelId} is ${ahead} ahead of the next one to be executed, ${this.#next}; at most ${limits.queuedRequestsPerModel} may wait. Await some results first.`,
      );
    }
    const bytes = turn.bytes + REQUEST_BYTES;
    if (!backlog.admits(owner, bytes)) {
      throw tooBusy(
        `Training requests of ${backlog.heldBy(owner)} bytes of yours are waiting to be processed; at most ${Math.floor(backlog.limitFor(owner))} may wait now. Await some results first.`,
      );
    }
    turn.check?.();
    const waiting: Waiting = {
      seqId,
      turn,
      submittedAt: this.#options.clock.now(),
      future: futures.create({
        requestId: `${modelId}:${seqId}`,
        owner,
        queueInfo: () => this.#infoFor(seqId),
      }),
    };
    this.#refused.delete(seqId);
    this.#remember(seqId, turn.fingerprint, waiting.future.requestId);
    this.#highest = Math.max(this.#highest, seqId);
    backlog.add(owner, bytes);
    if (isLate) this.#late.push(waiting);
    else this.#waiting.set(seqId, waiting);
    void this.#run();
    return waiting.future;
  }

  #repeated(seqId: number, turn: QueuedRequest, before: { fingerprint: string; requestId: string }): Future {
    const { futures, modelId } = this.#options;
    if (before.fingerprint !== turn.fingerprint) {
      throw conflict(
        `Model ${modelId} has already accepted another request under number ${seqId}; each request needs a number of its own.`,
      );
    }
    const future = futures.get(before.requestId);
    if (future === undefined) {
      throw new HttpError(
        410,
        `Request ${seqId} of model ${modelId} was executed, and its result has expired.`,
      );
    }
    return future;
  }

  #remember(seqId: number, fingerprint: string, requestId: string): void {
    this.#known.set(seqId, { fingerprint, requestId });
    if (this.#known.size > MAX_REMEMBERED) this.#known.delete(this.#known.keys().next().value!);
  }

  /** A request with this number was refused: the ones behind it must not wait for it forever. */
  refuse(seqId: number): void {
    if (seqId < Math.max(this.#next, 1) || this.#known.has(seqId)) return;
    if (seqId - this.#next > this.#options.limits.queuedRequestsPerModel) return;
    this.#refused.add(seqId);
    if (this.#refused.size > MAX_REMEMBERED) this.#refused.delete(this.#refused.values().next().value!);
    this.#highest = Math.max(this.#highest, seqId);
    void this.#run();
  }

  /** Goes on after a pause. */
  resume(): void {
    void this.#run();
  }

  /** Resolves once everything that can run has run. */
  whenIdle(): Promise<void> {
    if (this.#running === undefined) return Promise.resolve();
    return new Promise((resolve) => {
      this.#idle.push(resolve);
    });
  }

  /** Fails what waits and refuses what comes; the request being executed goes on. */
  close(failure: Failure): void {
    if (this.#closedBecause !== undefined) return;
    this.#closedBecause = failure.error;
    for (const waiting of [...this.#late.splice(0), ...this.#waiting.values()]) {
      this.#finish(waiting, { type: "failed", ...failure });
    }
    this.#waiting.clear();
  }

  async #run(): Promise<void> {
    if (this.#running !== undefined) return;
    for (let entry = this.#take(); entry !== undefined; entry = this.#take()) {
      this.#running = entry;
      const startedAt = this.#options.clock.now();
      let outcome: FutureOutcome;
      try {
        outcome = await entry.turn.execute();
      } catch (error) {
        outcome = { type: "failed", ...describeFailure(error) };
      }
      this.#options.trace.add({
        name: entry.turn.name,
        track: this.#options.modelId,
        submittedAt: entry.submittedAt,
        startedAt,
        endedAt: this.#options.clock.now(),
        failed: outcome.type === "failed",
        details: { seqId: entry.seqId, requestId: entry.future.requestId },
      });
      this.#running = undefined;
      this.#finish(entry, outcome);
    }
    for (const resolve of this.#idle.splice(0)) resolve();
  }

  #take(): Waiting | undefined {
    if (this.#options.isPaused()) return undefined;
    const late = this.#late.shift();
    if (late !== undefined) return late;
    while (this.#refused.has(this.#next) && !this.#waiting.has(this.#next)) this.#next += 1;
    const entry = this.#waiting.get(this.#next);
    if (entry === undefined) return undefined;
    this.#waiting.delete(this.#next);
    this.#next += 1;
    return entry;
  }

  #finish(waiting: Waiting, outcome: FutureOutcome): void {
    this.#options.backlog.add(this.#options.owner, -waiting.turn.bytes - REQUEST_BYTES);
    this.#options.futures.end(waiting.future, outcome);
  }

  #infoFor(seqId: number): QueueInfo {
    const isBlocked = this.#running === undefined && this.#waiting.has(seqId) && seqId > this.#next;
    if (!isBlocked) return { state: "active" };
    return {
      state: "paused_capacity",
      reason: `waiting for request ${this.#next} of model ${this.#options.modelId}, which has not arrived; ${this.length} later ones are queued behind it`,
    };
  }
}
