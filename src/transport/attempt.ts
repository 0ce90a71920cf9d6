import { AnswerTooLargeError, APIConnectionError, APITimeoutError, TinkerError } from "../errors.js";
import { onAbort } from "./abort.js";
import type { CallScope } from "./call-scope.js";
import type { Clock } from "./clock.js";
import { Interruption } from "./interruption.js";
import type { HttpAnswer } from "./sender.js";

/**
 * One try at a request. It ends when the answer is read, when the call is interrupted, or when nothing has
 * moved for `timeoutMs`; `release` must be called then, and leaves no timer and no listener behind.
 */
export class HttpAttempt {
  responseBytes = 0;
  readonly #scope: CallScope;
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  readonly #signal = new Interruption();
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
        this.#signal.abort(error);
      };
    });
    this.#interruption.catch(() => {});
    if (scope.interrupted) this.#interrupt(scope.error());
    this.#unsubscribe = onAbort(scope.signal, () => this.#interrupt(scope.error()));
    if (Number.isFinite(timeoutMs)) this.#watch(timeoutMs);
  }

  /** Sends and resolves when the headers have come. */
  async send(start: (signal: AbortSignal) => Promise<HttpAnswer>): Promise<HttpAnswer> {
    const coming = start(this.#signal);
    try {
      const answer = await Promise.race([coming, this.#interruption]);
      this.#lastProgressMs = this.#clock.now();
      return answer;
    } catch (error) {
      // An answer that comes too late still holds a connection until its body is given up.
      coming.then((late) => late.cancel()).catch(() => {});
      throw this.#explain(error);
    }
  }

  /** The whole body, in memory of its own; an AnswerTooLargeError where it has more than `maxBytes`, decompressed. */
  async read(answer: HttpAnswer, maxBytes: number): Promise<Uint8Array> {
    const tooLarge = () => new AnswerTooLargeError(this.#scope.what, maxBytes);
    try {
      if (Number(answer.header("content-length")) > maxBytes) throw tooLarge();
      const body = answer.readAll((bytes) => {
        this.#lastProgressMs = this.#clock.now();
        this.responseBytes += bytes;
        if (this.responseBytes > maxBytes) throw tooLarge();
      });
      return await Promise.race([body, this.#interruption]);
    } catch (error) {
      answer.cancel();
      throw this.#explain(error);
    }
  }

  /**
   * Hands the body to the caller piece by piece. The timeout ends here, since the caller sets the pace; the
   * signal stays in force until the body is read or cancelled, and `onEnd` is called then.
   */
  stream(answer: HttpAnswer, onEnd: () => void): Response {
    this.#stopTimer();
    const end = () => {
      this.release();
      onEnd();
    };
    if (NULL_BODY_STATUSES.has(answer.status)) {
      answer.cancel();
      end();
      return buildResponse(answer, null);
    }
    const body = new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          try {
            // First in the race: where both have failed already, ours says why.
            const chunk = await Promise.race([this.#interruption, answer.read()]);
            if (chunk !== undefined) return controller.enqueue(chunk);
            controller.close();
          } catch (error) {
            answer.cancel();
            controller.error(this.#explain(error));
          }
          end();
        },
        cancel: () => {
          answer.cancel();
          end();
        },
      },
      { highWaterMark: 0 },
    );
    return buildResponse(answer, body);
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

  /** A network error as one of the SDK's errors. */
  #explain(error: unknown): TinkerError {
    if (error instanceof TinkerError) return error;
    const reason = networkReason(error);
    const message = `${this.#scope.what} failed: ${reason.text}. Check the base URL and the network.`;
    return reason.isTimeout
      ? new APITimeoutError(message, { cause: error })
      : new APIConnectionError(message, { cause: error });
  }
}

/** Statuses whose answers have no body, and to which `Response` allows none. */
export const NULL_BODY_STATUSES: ReadonlySet<number> = new Set([204, 205, 304]);

function buildResponse(answer: HttpAnswer, body: ReadableStream<Uint8Array> | null): Response {
  const { status, statusText, headers, url } = answer;
  const response = new Response(body, { status, statusText, headers });
  Object.defineProperty(response, "url", { value: url });
  return response;
}

const TIMEOUT_CODES: ReadonlySet<unknown> = new Set(["UND_ERR_CONNECT_TIMEOUT", "ETIMEDOUT"]);

/** Why a request did not get through, in words without a full stop. */
export function networkReason(error: unknown): { text: string; isTimeout: boolean } {
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
