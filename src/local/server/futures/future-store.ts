import type { Clock } from "../../../transport/clock.js";
import type { OperationEndpoint } from "../../../wire/endpoints/endpoint.js";
import type { SentQueueState } from "../../../wire/endpoints/futures.js";
import type { Limits } from "../http/limits.js";
import type { OwnerShares } from "../http/owner-shares.js";

/** Why an operation has no result yet. */
export interface QueueInfo {
  readonly state: SentQueueState;
  readonly reason?: string;
}

/** How an operation ended. Large results are kept in the form most clients fetch. */
export type FutureOutcome =
  | { readonly type: "json"; readonly body: Readonly<Record<string, unknown>> }
  | { readonly type: "encoded"; readonly bytes: Uint8Array; readonly toJson: () => unknown }
  | ({ readonly type: "failed" } & Failure);

/** An error message, and whether the user or the server has to act on it. */
export interface Failure {
  readonly error: string;
  readonly category: "user" | "server";
}

/** The result of an endpoint, as the table stores and answers it. */
export type ResultOf<Result> = Pick<OperationEndpoint<never, Result>, "path" | "tag" | "future">;

/** A result as the protobuf that most clients fetch. */
export class EncodedResult<Result> {
  readonly bytes: Uint8Array;
  readonly decode: (bytes: Uint8Array) => Result;

  constructor(bytes: Uint8Array, decode: (bytes: Uint8Array) => Result) {
    this.bytes = bytes;
    this.decode = decode;
  }
}

/** A result in the form in which it is kept. */
export function outcomeOf<Result>(
  { tag, future }: ResultOf<Result>,
  result: Result | EncodedResult<Result>,
): FutureOutcome {
  if (!(result instanceof EncodedResult))
    return { type: "json", body: { type: tag, ...(future.toJson(result) as object) } };
  const { bytes, decode } = result;
  return { type: "encoded", bytes, toJson: () => future.toJson(decode(bytes)) };
}

/** An accepted operation: its result once there is one, and those who wait for it. */
export interface Future {
  readonly requestId: string;
  readonly owner: string;
  readonly queueInfo: () => QueueInfo;
  readonly cancel: () => void;
  /** Called when the result has been dropped: because its client has it, or by age or for space. */
  readonly onForgotten: (isRetrieved: boolean) => void;
  readonly waiters: Set<() => void>;
  outcome: FutureOutcome | undefined;
  endedAt: number;
}

const NEW_FUTURE = {
  queueInfo: () => ({ state: "active" }),
  cancel: () => {},
  onForgotten: () => {},
  outcome: undefined,
  endedAt: 0,
} as const;

/** The results of one owner, in the order in which they ended and were fetched: the oldest are found at the front. */
interface OwnerResults {
  readonly unfetched: Map<string, Future>;
  readonly fetched: Map<string, { readonly future: Future; readonly at: number }>;
  fetchedBytes: number;
}

const MAX_UNFETCHED_MS = 60 * 60_000;
// Long enough for a client that lost the answer on its way to ask again.
const MAX_FETCHED_MS = 5 * 60_000;

/** All operations that are running or whose results can still be fetched; results are bounded in bytes and age. */
export class FutureStore {
  readonly #clock: Clock;
  readonly #limits: Limits;
  readonly #all = new Map<string, Future>();
  readonly #results = new Map<string, OwnerResults>();
  readonly #resultBytes: OwnerShares;
  #closed = false;

  constructor(clock: Clock, limits: Limits, resultBytes: OwnerShares) {
    this.#clock = clock;
    this.#limits = limits;
    this.#resultBytes = resultBytes;
  }

  /** How many operations are known, running or ended. */
  get size(): number {
    return this.#all.size;
  }

  #resultsOf(owner: string): OwnerResults {
    let results = this.#results.get(owner);
    if (results === undefined) {
      results = { unfetched: new Map(), fetched: new Map(), fetchedBytes: 0 };
      this.#results.set(owner, results);
    }
    return results;
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  create(
    given: Pick<Future, "requestId" | "owner"> &
      Partial<Pick<Future, "queueInfo" | "cancel" | "onForgotten">>,
  ): Future {
    const future: Future = { ...NEW_FUTURE, waiters: new Set(), ...given };
    // A request that failed may have been sent again under its old number.
    const before = this.#all.get(future.requestId);
    if (before !== undefined) this.forget(before);
    this.#all.set(future.requestId, future);
    return future;
  }

  get(requestId: string): Future | undefined {
    this.sweep();
    return this.#all.get(requestId);
  }

  end(future: Future, outcome: FutureOutcome): void {
    if (future.outcome !== undefined) return;
    future.outcome = outcome;
    future.endedAt = this.#clock.now();
    this.#resultsOf(future.owner).unfetched.set(future.requestId, future);
    this.#resultBytes.add(future.owner, sizeOf(outcome));
    this.#wake(future);
    future.waiters.clear();
    this.sweep();
  }

  #wake(future: Future): void {
    for (const wake of [...future.waiters]) wake();
  }

  /** Waits until the operation has ended, the time is over, the caller is gone or the server closes. */
  wait(future: Future, timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (future.outcome !== undefined || signal.aborted || this.#closed) return Promise.resolve();
    return waitAmong(future.waiters, this.#clock, timeoutMs, signal);
  }

  markFetched(future: Future): void {
    const results = this.#resultsOf(future.owner);
    if (!results.unfetched.delete(future.requestId) || future.outcome === undefined) return;
    results.fetched.set(future.requestId, { future, at: this.#clock.now() });
    results.fetchedBytes += sizeOf(future.outcome);
    this.sweep();
  }

  /** Drops a result; `isRetrieved` where its client says it has it. */
  forget(future: Future, { isRetrieved = false } = {}): void {
    if (future.outcome === undefined || this.#all.get(future.requestId) !== future) return;
    const { owner, requestId, outcome } = future;
    const results = this.#resultsOf(owner);
    this.#all.delete(requestId);
    results.unfetched.delete(requestId);
    if (results.fetched.delete(requestId)) results.fetchedBytes -= sizeOf(outcome);
    this.#resultBytes.add(owner, -sizeOf(outcome));
    if (results.unfetched.size + results.fetched.size === 0) this.#results.delete(owner);
    future.onForgotten(isRetrieved);
  }

  /** Drops results that are too old, then, of an owner who has too many bytes, fetched ones before others. */
  sweep(): void {
    for (const [owner, results] of this.#results) this.#sweepOf(owner, results);
  }

  #sweepOf(owner: string, results: OwnerResults): void {
    const { fetched, unfetched } = results;
    const now = this.#clock.now();
    const limits = this.#limits;
    const isOverShare = () => this.#resultBytes.heldBy(owner) > this.#resultBytes.limitFor(owner);
    for (const { future, at } of fetched.values()) {
      const isOld = at + MAX_FETCHED_MS <= now;
      // The newest always stays: its answer may be the one that is being lost on its way.
      const isTooMuch =
        fetched.size > limits.fetchedResults ||
        results.fetchedBytes > limits.fetchedResultBytes ||
        isOverShare();
      if (!isOld && !(isTooMuch && fetched.size > 1)) break;
      this.forget(future);
    }
    for (const future of unfetched.values()) {
      const isOld = future.endedAt + MAX_UNFETCHED_MS <= now;
      // The newest always stays: a single result above the limit must still reach its client.
      if (!isOld && !(unfetched.size > 1 && isOverShare())) break;
      this.forget(future);
    }
  }

  /** Ends every wait; used when the server closes. */
  close(): void {
    this.#closed = true;
    for (const future of this.#all.values()) this.#wake(future);
  }
}

function sizeOf(outcome: FutureOutcome): number {
  return outcome.type === "encoded" ? outcome.bytes.byteLength : 512;
}

/** Joins those who wait, until they are woken, the time is over or the caller is gone. */
export function waitAmong(
  waiters: Set<() => void>,
  clock: Clock,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      waiters.delete(done);
      signal.removeEventListener("abort", done);
      cancelTimer();
      resolve();
    };
    const cancelTimer = clock.setTimer(done, timeoutMs, { background: true });
    signal.addEventListener("abort", done, { once: true });
    waiters.add(done);
  });
}
