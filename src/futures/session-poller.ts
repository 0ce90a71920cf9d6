import { APIError, TinkerError } from "../errors.js";
import { abortError, isRetryableError, onAbort } from "../transport/index.js";
import { type FuturesRetrieveResponse, fromWireJson } from "../wire/index.js";
import type { FutureContext } from "./context.js";

const POLL_TIMEOUT_MS = 45_000;
const RETRY_MS = 1_000;
const MAX_BAD_REQUESTS = 3;

interface Waiter {
  resolve(sizeBytes: number | undefined): void;
  reject(error: unknown): void;
}

/**
 * One long poll for all requests of a sampling session, where the server offers it: each sample waits here for
 * its completion instead of holding a connection of its own. Runs only while somebody waits.
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

  /** Resolves with the size of the result, when the server told it, once the request is complete. */
  async waitFor(requestId: string, signal: AbortSignal): Promise<number | undefined> {
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
    this.#run()
      .catch((error) => this.#fail(error))
      .finally(() => {
        this.#running = false;
      });
  }

  async #run(): Promise<void> {
    const { clock, closed } = this.#context;
    let badRequests = 0;
    while ((this.#waiters.size > 0 || this.#retrieved.size > 0) && !closed.aborted) {
      const retrieved = [...this.#retrieved];
      try {
        const answer = await this.#poll(retrieved);
        badRequests = 0;
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
      } catch (error) {
        if (closed.aborted) return;
        const badRequest = error instanceof APIError && error.status === 400;
        if (this.#context.billing.shouldPause(error)) await this.#context.billing.wait(closed);
        else if (isRetryableError(error) || (badRequest && badRequests++ < MAX_BAD_REQUESTS))
          await clock.sleep(RETRY_MS, closed);
        else throw error;
      }
    }
  }

  async #poll(retrieved: string[]): Promise<FuturesRetrieveResponse> {
    const response = await this.#context.http.exchange({
      method: "POST",
      path: "/api/v1/retrieve_futures",
      json: {
        target: {
          type: "sampling_session",
          sampling_session_id: this.#samplingSessionId,
          cloned_sampler_id: this.#copyId(),
        },
        prev_cursor: this.#cursor,
        retrieved_request_ids: retrieved,
      },
      pool: "retrieve",
      timeout: POLL_TIMEOUT_MS,
      maxRetries: 0,
      signal: this.#context.closed,
    });
    return fromWireJson<FuturesRetrieveResponse>(response.json());
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
