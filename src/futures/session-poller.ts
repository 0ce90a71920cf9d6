import { APIError, TinkerError } from "../errors.js";
import {
  abortError,
  BACK_OFF,
  backOffMs,
  isRetryableError,
  MAX_UNREADABLE_ANSWERS,
  onAbort,
  throwIfAborted,
} from "../transport/index.js";
import { encodeRequest, endpoints, type FuturesRetrieveResponse } from "../wire/index.js";
import type { FutureContext } from "./context.js";

const POLL_TIMEOUT_MS = 45_000;

interface Waiter {
  resolve(sizeBytes: number | undefined): void;
  reject(error: unknown): void;
}

/**
 * One long poll for all requests of a sampling session, where the server offers it: each sample waits here for
 * its completion instead of holding a connection of its own. Runs only while requests wait.
 */
export class SessionFuturesPoller {
  readonly #context: FutureContext;
  readonly #samplingSessionId: string;
  /** Which copy of the sampler polls; known once the copy has joined. */
  readonly #copyId: () => number;
  readonly #waiters = new Map<string, Waiter>();
  /** Completions that were reported before their request asked. */
  readonly #early = new Map<string, number | undefined>();
  readonly #retrieved = new Set<string>();
  #cursor = 0;
  #running = false;

  constructor(context: FutureContext, samplingSessionId: string, copyId: () => number) {
    this.#context = context;
    this.#samplingSessionId = samplingSessionId;
    this.#copyId = copyId;
  }

  /** Resolves with the size of the result, if the server reports it, once the request is complete. */
  async waitFor(requestId: string, signal: AbortSignal): Promise<number | undefined> {
    throwIfAborted(signal);
    if (this.#early.has(requestId)) {
      const size = this.#early.get(requestId);
      this.#early.delete(requestId);
      return size;
    }
    const done = new Promise<number | undefined>((resolve, reject) => {
      this.#waiters.set(requestId, { resolve, reject });
    });
    const release = onAbort(signal, () => this.#waiters.get(requestId)?.reject(abortError(signal)));
    this.#start();
    try {
      return await done;
    } finally {
      release();
      this.#waiters.delete(requestId);
    }
  }

  /** Tells the server with the next poll that it may drop the result. */
  markRetrieved(requestId: string): void {
    this.#retrieved.add(requestId);
    this.#start();
  }

  #start(): void {
    if (this.#running) return;
    this.#running = true;
    void this.#run();
  }

  async #run(): Promise<void> {
    const { clock, closed, billing } = this.#context;
    let badAnswers = 0;
    let failures = 0;
    try {
      while ((this.#waiters.size > 0 || this.#retrieved.size > 0) && !closed.aborted) {
        try {
          await this.#learn();
          badAnswers = 0;
          failures = 0;
        } catch (error) {
          if (closed.aborted) break;
          // Proxies inject both: a 400 of their own, or a page of theirs as a success.
          const badAnswer = error instanceof APIError && (error.status === 400 || error.status < 300);
          if (billing.shouldPause(error)) await billing.wait(closed);
          else if (isRetryableError(error) || (badAnswer && badAnswers++ < MAX_UNREADABLE_ANSWERS))
            await clock.sleep(backOffMs(BACK_OFF.patient, failures++), closed);
          else throw error;
        }
      }
    } catch (error) {
      this.#fail(error);
    }
    // In the same turn as the last look at the waiters: one that comes later must find the loop ended.
    this.#running = false;
  }

  /** One poll, and whom it concerns. */
  async #learn(): Promise<void> {
    const retrieved = [...this.#retrieved];
    const answer = await this.#poll(retrieved);
    for (const requestId of retrieved) this.#retrieved.delete(requestId);
    this.#cursor = answer.cursor;
    for (const completion of answer.completions) {
      const size =
        completion.state === "finished"
          ? (completion.responsePayloadUncompressedSize ?? undefined)
          : undefined;
      const waiter = this.#waiters.get(completion.requestId);
      if (waiter === undefined) this.#early.set(completion.requestId, size);
      else waiter.resolve(size);
      this.#waiters.delete(completion.requestId);
    }
  }

  async #poll(retrieved: string[]): Promise<FuturesRetrieveResponse> {
    const response = await this.#context.http.exchange({
      ...encodeRequest(endpoints.retrieveFutures, {
        target: {
          type: "sampling_session",
          samplingSessionId: this.#samplingSessionId,
          clonedSamplerId: this.#copyId(),
        },
        prevCursor: this.#cursor,
        retrievedRequestIds: retrieved,
      }),
      timeout: POLL_TIMEOUT_MS,
      maxRetries: 0,
      patienceMs: Number.POSITIVE_INFINITY,
      signal: this.#context.closed,
    });
    return endpoints.retrieveFutures.answer.fromJson(response.json());
  }

  #fail(error: unknown): void {
    const failure = new TinkerError(
      `Polling the results of sampling session ${this.#samplingSessionId} failed: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
    for (const waiter of this.#waiters.values()) waiter.reject(failure);
    this.#waiters.clear();
    this.#retrieved.clear();
  }
}
