/**
 * An AbortController and its signal in one object. A platform signal is an event target, and several of them for each
 * of thousands of requests cost more than the requests; this one becomes one only when it is used as one.
 */
// Not `implements AbortSignal`, which it does: with older compilers some @types/node give a signal one member more.
export class Interruption {
  onabort: AbortSignal["onabort"] = null;
  #aborted = false;
  #reason: unknown;
  #callbacks: Set<() => void> | undefined;
  #platform: AbortController | undefined;

  get aborted(): boolean {
    return this.#aborted;
  }

  get reason(): unknown {
    return this.#reason;
  }

  abort(reason: unknown = new DOMException("This operation was aborted", "AbortError")): void {
    if (this.#aborted) return;
    this.#aborted = true;
    this.#reason = reason;
    const callbacks = this.#callbacks;
    this.#callbacks = undefined;
    for (const callback of callbacks ?? []) callback();
    this.#platform?.abort(reason);
  }

  /** Calls back once, when aborted; the returned function unsubscribes. */
  subscribe(callback: () => void): () => void {
    if (this.#aborted) return () => {};
    this.#callbacks ??= new Set();
    const callbacks = this.#callbacks.add(callback);
    return () => callbacks.delete(callback);
  }

  throwIfAborted(): void {
    if (this.#aborted) throw this.#reason;
  }

  /** This interruption as an `AbortSignal`, for `fetch` and other functions that need one. */
  get platformSignal(): AbortSignal {
    if (this.#platform === undefined) {
      this.#platform = new AbortController();
      this.#platform.signal.addEventListener("abort", (event) => this.onabort?.(event));
      if (this.#aborted) this.#platform.abort(this.#reason);
    }
    return this.#platform.signal;
  }

  addEventListener(...args: Parameters<AbortSignal["addEventListener"]>): void {
    this.platformSignal.addEventListener(...args);
  }

  removeEventListener(...args: Parameters<AbortSignal["removeEventListener"]>): void {
    this.#platform?.signal.removeEventListener(...args);
  }

  dispatchEvent(event: Event): boolean {
    return this.platformSignal.dispatchEvent(event);
  }
}

/** A signal for `fetch`, which takes none but the platform's own from Node 24 on. */
export function platformSignalOf<T extends AbortSignal | undefined>(signal: T): T | AbortSignal {
  return signal instanceof Interruption ? signal.platformSignal : signal;
}
