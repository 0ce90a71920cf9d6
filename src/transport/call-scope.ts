import { APIConnectionError, type TinkerError } from "../errors.js";
import { abortError, onAbort } from "./abort.js";
import { Interruption } from "./interruption.js";

/** Ends a call from outside: on the caller's signal, or when the client is closed. It holds one listener. */
export class CallScope {
  readonly what: string;
  readonly #userSignal: AbortSignal | undefined;
  readonly #open: Set<CallScope>;
  readonly #interruption = new Interruption();
  readonly #unsubscribe: () => void;

  constructor(what: string, userSignal: AbortSignal | undefined, open: Set<CallScope>) {
    this.what = what;
    this.#userSignal = userSignal;
    this.#open = open;
    if (userSignal?.aborted) this.interrupt();
    this.#unsubscribe = onAbort(userSignal, () => this.interrupt());
    open.add(this);
  }

  get signal(): AbortSignal {
    return this.#interruption;
  }

  get interrupted(): boolean {
    return this.#interruption.aborted;
  }

  /** Why the call was interrupted. */
  error(): TinkerError {
    return this.#userSignal?.aborted
      ? abortError(this.#userSignal, this.what)
      : new APIConnectionError(`${this.what} was cancelled because the client was closed.`);
  }

  throwIfInterrupted(): void {
    if (this.interrupted) throw this.error();
  }

  /** Waits for a promise without a signal, but not longer than the call. */
  async orInterrupted<T>(promise: T | Promise<T>): Promise<T> {
    this.throwIfInterrupted();
    if (!(promise instanceof Promise)) return promise;
    let unsubscribe = () => {};
    const interruption = new Promise<never>((_, reject) => {
      unsubscribe = onAbort(this.signal, () => reject(this.error()));
    });
    try {
      return await Promise.race([promise, interruption]);
    } finally {
      unsubscribe();
    }
  }

  /** Ends the call now, wherever it is. */
  interrupt(): void {
    this.#interruption.abort();
  }

  /** The call is over: nothing of it stays on the caller's signal. */
  end(): void {
    this.#unsubscribe();
    this.#open.delete(this);
  }
}
