import type { Clock } from "../../../transport/clock.js";
import type { FutureCompletion, FuturesRetrieveResponse } from "../../../wire/endpoints/futures.js";
import { waitAmong } from "./future-store.js";

/** A client that never polls leaves at most this many behind: twice as many as it may have under way. */
const MAX_KEPT = 4_000;

/** The requests of one sampling client that have ended, in order, for it to learn of many with one poll. */
export class CompletionLog {
  readonly #clock: Clock;
  readonly #waiters = new Set<() => void>();
  #completions: FutureCompletion[] = [];
  /** Cursor of the first completion kept; cursors count from 1. */
  #firstCursor = 1;
  #closed = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(completion: FutureCompletion): void {
    this.#completions.push(completion);
    if (this.#completions.length > MAX_KEPT) this.#trim(this.#firstCursor + MAX_KEPT / 10);
    for (const wake of [...this.#waiters]) wake();
  }

  /** Everything after `cursor`, which the client has seen; waits for something while there is nothing. */
  async after(cursor: number, timeoutMs: number, signal: AbortSignal): Promise<FuturesRetrieveResponse> {
    this.#trim(cursor + 1);
    if (this.#completions.length === 0 && !this.#closed && !signal.aborted)
      await waitAmong(this.#waiters, this.#clock, timeoutMs, signal);
    const lastCursor = this.#firstCursor + this.#completions.length - 1;
    return { completions: [...this.#completions], cursor: Math.max(lastCursor, cursor) };
  }

  close(): void {
    this.#closed = true;
    for (const wake of [...this.#waiters]) wake();
  }

  #trim(firstCursor: number): void {
    const surplus = Math.min(firstCursor - this.#firstCursor, this.#completions.length);
    if (surplus <= 0) return;
    this.#completions = this.#completions.slice(surplus);
    this.#firstCursor += surplus;
  }
}
