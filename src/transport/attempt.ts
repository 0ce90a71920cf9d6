import { APIConnectionError, APITimeoutError, TinkerError } from "../errors.js";
import { onAbort } from "./abort.js";
import type { CallScope } from "./call-scope.js";
import type { Clock } from "./clock.js";

/**
 * One try at a request. It ends when the answer is read, when the call is interrupted, or when nothing has
 * moved for `timeoutMs`; `release` must be called then, and leaves no timer and no listener behind.
 */
export class Attempt {
  responseBytes = 0;
  readonly #scope: CallScope;
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  readonly #controller = new AbortController();
  readonly #interruption: Promise<never>;
  #interrupt!: (error: TinkerError) => void;
  #lastProgressMs: number;
  #cancelTimer: (() => void) | undefined;
  #released = false;
  readonly #unsubscribe: () => void;

  constructor(scope: CallScope, clock: Clock, timeoutMs: number) {
    this.#scope = scope;
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
    this.#lastProgressMs = clock.now();
    this.#interruption = new Promise((_, reject) => {
      this.#interrupt = (error) => {
        // The rejection first: the runtime's own abort error must not win the race.
        reject(error);
        this.#controller.abort(error);
      };
    });
    this.#interruption.catch(() => {});
    if (scope.interrupted) this.#interrupt(scope.error());
    this.#unsubscribe = onAbort(scope.signal, () => this.#interrupt(scope.error()));
    if (Number.isFinite(timeoutMs)) this.#watch(timeoutMs);
  }

  /** Sends and resolves when the headers have come. */
  async send(start: (signal: AbortSignal) => Promise<Response>): Promise<Response> {
    const answer = start(this.#controller.signal);
    try {
      const response = await Promise.race([answer, this.#interruption]);
      this.#lastProgressMs = this.#clock.now();
      return response;
    } catch (error) {
      // An answer that comes too late still holds a connection until its body is given up.
      answer.then((late) => late.body?.cancel()).catch(() => {});
      throw this.#explain(error);
    }
  }

  /** The whole body. */
  async read(response: Response): Promise<Uint8Array> {
    if (response.body === null) return new Uint8Array(0);
    const reader = response.body.getReader();
    const chunks: Uint8Array[] = [];
    try {
      for (;;) {
        const { done, value } = await Promise.race([reader.read(), this.#interruption]);
        if (done) break;
        this.#lastProgressMs = this.#clock.now();
        this.responseBytes += value.byteLength;
        chunks.push(value);
      }
    } catch (error) {
      reader.cancel().catch(() => {});
      throw this.#explain(error);
    }
    return chunks.length === 1 ? chunks[0]! : concatenate(chunks, this.responseBytes);
  }

  /**
   * Hands the body to the caller piece by piece. The timeout ends here, since the caller sets the pace; the
   * signal stays in force until the body is read or cancelled, and `onEnd` is called then.
   */
  stream(response: Response, onEnd: () => void): Response {
    this.#stopTimer();
    const end = () => {
      this.release();
      onEnd();
    };
    if (response.body === null) {
      end();
      return rebuild(response, null);
    }
    const reader = response.body.getReader();
    const body = new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          try {
            const { done, value } = await Promise.race([reader.read(), this.#interruption]);
            if (!done) return controller.enqueue(value);
            controller.close();
          } catch (error) {
            reader.cancel().catch(() => {});
            controller.error(this.#explain(error));
          }
          end();
        },
        cancel: (reason) => {
          end();
          return reader.cancel(reason);
        },
      },
      { highWaterMark: 0 },
    );
    return rebuild(response, body);
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#stopTimer();
    this.#unsubscribe();
  }

  #watch(delayMs: number): void {
    this.#cancelTimer = this.#clock.setTimer(() => {
      const leftMs = this.#lastProgressMs + this.#timeoutMs - this.#clock.now();
      if (leftMs > 0) return this.#watch(leftMs);
      this.#interrupt(
        new APITimeoutError(
          `${this.#scope.what} got no answer within ${this.#timeoutMs / 1000} s. Check the connection, or raise the timeout option.`,
        ),
      );
    }, delayMs);
  }

  #stopTimer(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  /** What went wrong on the network, in the SDK's own terms. */
  #explain(error: unknown): TinkerError {
    if (error instanceof TinkerError) return error;
    const reason = networkReason(error);
    const message = `${this.#scope.what} failed: ${reason.text}. Check the base URL and the network.`;
    return reason.isTimeout
      ? new APITimeoutError(message, { cause: error })
      : new APIConnectionError(message, { cause: error });
  }
}

const TIMEOUT_CODES: ReadonlySet<unknown> = new Set(["UND_ERR_CONNECT_TIMEOUT", "ETIMEDOUT"]);

function networkReason(error: unknown): { text: string; isTimeout: boolean } {
  // fetch says only "fetch failed"; the reason is its cause, and behind several addresses a list of them.
  let inner: unknown = error;
  while (inner instanceof Error) {
    const next: unknown = inner instanceof AggregateError ? inner.errors[0] : inner.cause;
    if (!(next instanceof Error)) break;
    inner = next;
  }
  const code: unknown = inner instanceof Error && "code" in inner ? inner.code : undefined;
  const message = inner instanceof Error ? inner.message : String(inner);
  const text = typeof code === "string" && !message.includes(code) ? `${message} (${code})` : message;
  return { text: (text || "no reason given").replace(/\.$/, ""), isTimeout: TIMEOUT_CODES.has(code) };
}

function concatenate(chunks: readonly Uint8Array[], byteLength: number): Uint8Array {
  const bytes = new Uint8Array(byteLength);
  let offset = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, offset);
    offset += chunk.byteLength;
  }
  return bytes;
}

/** A Response of the global class, whichever implementation the answer came from. */
function rebuild(response: Response, body: ReadableStream<Uint8Array> | null): Response {
  const { status, statusText } = response;
  const rebuilt = new Response(body, { status, statusText, headers: new Headers([...response.headers]) });
  Object.defineProperty(rebuilt, "url", { value: response.url });
  return rebuilt;
}
