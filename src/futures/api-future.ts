import { APITimeoutError } from "../errors.js";
import { type Clock, linkSignals, systemClock } from "../transport/index.js";
import { abortSignal, type FieldsOf, optional, optionTable, value } from "../wire/index.js";

/** How long to wait for a result. */
export interface ResultOptions {
  /** How long this wait may take, in milliseconds. The operation itself continues. */
  timeout?: number;
  /** Ends this wait. The operation itself continues; the call's own `signal` ends it. */
  signal?: AbortSignal;
}

const RESULT_OPTIONS = optionTable({
  timeout: optional(
    value<number>("a number of milliseconds", (given) => typeof given === "number" && given >= 0),
  ),
  signal: optional(abortSignal),
} satisfies FieldsOf<ResultOptions>);

/** The parts of a future. */
export interface APIFutureSource<T> {
  /** Settles with the request id when the server has accepted the request. */
  submitted: Promise<string>;
  result: Promise<T>;
  clock?: Clock;
  /** Called when the result is first awaited. */
  onAwaited?: () => void;
}

/**
 * A long operation that has been started. Await it for the result, or `submitted` for the moment the server
 * accepted it. The result is kept, so it can be awaited any number of times. A failed future that is not
 * awaited does not end the process.
 */
export class APIFuture<T> implements Promise<T> {
  /** The server's id for the request, once it is accepted. The first one for a request sent in chunks. */
  requestId: string | undefined;
  /** Resolves when the server has accepted the request; rejects when it could not be sent. */
  readonly submitted: Promise<void>;
  readonly [Symbol.toStringTag] = "APIFuture";
  readonly #result: Promise<T>;
  readonly #clock: Clock;
  readonly #onAwaited: (() => void) | undefined;
  #isAwaited = false;

  constructor(source: APIFutureSource<T>) {
    this.#result = source.result;
    this.#clock = source.clock ?? systemClock;
    this.#onAwaited = source.onAwaited;
    this.submitted = source.submitted.then((requestId) => {
      this.requestId = requestId;
    });
    this.#result.catch(() => {});
    this.submitted.catch(() => {});
  }

  /** Whether the result was ever awaited. */
  get isAwaited(): boolean {
    return this.#isAwaited;
  }

  /** @internal Called at the end; does not count as awaiting the result. */
  onEnd(callback: (failure: { error: unknown } | undefined) => void): void {
    this.#result.then(
      () => callback(undefined),
      (error: unknown) => callback({ error }),
    );
  }

  /** Waits for the result, for at most `timeout` milliseconds or until `signal` is aborted. */
  async result(options: ResultOptions = {}): Promise<T> {
    const { timeout, signal } = RESULT_OPTIONS.check(options, "result");
    const result = this.#awaited();
    if (timeout === undefined && signal === undefined) return result;
    const waiting = linkSignals(signal);
    const limit = this.#clock.sleep(timeout ?? Number.POSITIVE_INFINITY, waiting.signal).then(() => {
      throw new APITimeoutError(
        `No result within ${timeout} ms for request ${this.requestId ?? "(not accepted yet)"}. ` +
          "The operation continues: await the future again, or give a longer timeout.",
      );
    });
    try {
      return await Promise.race([result, limit]);
    } finally {
      waiting.release();
      limit.catch(() => {});
      waiting.signal.abort();
    }
  }

  // biome-ignore lint/suspicious/noThenProperty: a future is a promise.
  then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#awaited().then(onFulfilled, onRejected);
  }

  catch<B = never>(onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<T | B> {
    return this.#awaited().catch(onRejected);
  }

  finally(onFinally?: (() => void) | null): Promise<T> {
    return this.#awaited().finally(onFinally);
  }

  /** Returns a future for this operation with its result transformed. */
  map<U>(transform: (value: T) => U | PromiseLike<U>): APIFuture<U> {
    return new APIFuture<U>({
      submitted: this.submitted.then(() => this.requestId ?? ""),
      result: this.#result.then(transform),
      clock: this.#clock,
      onAwaited: () => this.#awaited(),
    });
  }

  #awaited(): Promise<T> {
    this.#isAwaited = true;
    this.#onAwaited?.();
    return this.#result;
  }
}
