import type { Clock } from "../../transport/clock.js";

export interface Completion {
  readonly state: "finished" | "failed";
  readonly request_id: string;
  readonly response_payload_uncompressed_size?: number;
}

// A client that never polls leaves at most this many behind.
const KEPT = 20_000;

/** The requests of one sampling client that have ended, in order, for it to learn of many with one poll. */
export class CompletionLog {
  readonly #clock: Clock;
  readonly #waiters = new Set<() => void>();
  #completions: Completion[] = [];
  /** Cursor of the first completion kept; cursors count from 1. */
  #firstCursor = 1;
  #closed = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(completion: Completion): void {
    this.#completions.push(completion);
    if (this.#completions.length > KEPT) this.#trim(this.#firstCursor + KEPT / 10);
    for (const wake of [...this.#waiters]) wake();
  }

  /** Everything after `cursor`, which the client has seen; waits for something while there is nothing. */
  async after(
    cursor: number,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<{ completions: Completion[]; cursor: number }> {
    this.#trim(cursor + 1);
    if (this.#completions.length === 0 && !this.#closed) await this.#wait(timeoutMs, signal);
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

  #wait(timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        this.#waiters.delete(done);
        signal.removeEventListener("abort", done);
        cancelTimer();
        resolve();
      };
      const cancelTimer = this.#clock.setTimer(done, timeoutMs, { background: true });
      signal.addEventListener("abort", done, { once: true });
      this.#waiters.add(done);
    });
  }
}
