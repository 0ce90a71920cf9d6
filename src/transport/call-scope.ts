import { APIConnectionError, type TinkerError } from "../errors.js";
import { abortError } from "./clock.js";

/** What ends a call from outside: the caller's signal, or the client being closed. It holds one listener. */
export class CallScope {
  readonly what: string;
  readonly #userSignal: AbortSignal | undefined;
  readonly #open: Set<CallScope>;
  readonly #controller = new AbortController();
  readonly #onUserAbort = () => this.#controller.abort(this.#userSignal?.reason);

  constructor(what: string, userSignal: AbortSignal | undefined, open: Set<CallScope>) {
    this.what = what;
    this.#userSignal = userSignal;
    this.#open = open;
    if (userSignal?.aborted) this.#onUserAbort();
    else userSignal?.addEventListener("abort", this.#onUserAbort, { once: true });
    open.add(this);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get interrupted(): boolean {
    return this.#controller.signal.aborted;
  }

  /** Why the call was interrupted. */
  error(): TinkerError {
    return this.#userSignal?.aborted
      ? abortError(this.#userSignal, this.what)
      : new APIConnectionError(`${this.what} was given up because the client was closed.`);
  }

  throwIfInterrupted(): void {
    if (this.interrupted) throw this.error();
  }

  /** Waits for a promise that knows nothing of signals, but not longer than the call lives. */
  async orInterrupted<T>(promise: Promise<T>): Promise<T> {
    this.throwIfInterrupted();
    let onAbort: (() => void) | undefined;
    try {
      return await Promise.race([
        promise,
        new Promise<never>((_, reject) => {
          onAbort = () => reject(this.error());
          this.signal.addEventListener("abort", onAbort, { once: true });
        }),
      ]);
    } finally {
      if (onAbort !== undefined) this.signal.removeEventListener("abort", onAbort);
    }
  }

  /** The client closes: whatever the call is doing ends now. */
  interrupt(): void {
    this.#controller.abort();
  }

  /** The call is over: nothing of it stays on the caller's signal. */
  end(): void {
    this.#userSignal?.removeEventListener("abort", this.#onUserAbort);
    this.#open.delete(this);
  }
}
