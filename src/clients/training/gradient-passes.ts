import { APIUserAbortError, messageOf, RequestFailedError, TinkerError } from "../../errors.js";
import type { APIFuture } from "../../futures/index.js";
import { untilAborted } from "../../transport/index.js";
import type { ClientContext } from "../context.js";

/** A pass that has not succeeded, or not yet. */
interface Pass {
  /** For messages: `forwardBackward of 8 datums with cross_entropy`. */
  readonly what: string;
  readonly future: APIFuture<unknown>;
  readonly ended: Promise<void>;
  failure?: { readonly error: unknown };
}

/**
 * The passes whose gradients the next optimizer step applies. The server takes a step also where a pass has failed, so
 * that it is up to us to say so: a failure must not vanish because nobody waits for the pass.
 */
export class GradientPasses {
  readonly #context: ClientContext;
  #passes = new Set<Pass>();
  #hasGradients = false;

  constructor(context: ClientContext) {
    this.#context = context;
  }

  add<T>(what: string, future: APIFuture<T>): APIFuture<T> {
    let end: () => void = () => {};
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const pass: Pass = { what, future, ended };
    this.#passes.add(pass);
    future.onEnd((failure) => {
      if (failure === undefined) {
        // Its result may be large and is the caller's now.
        if (this.#passes.delete(pass)) this.#hasGradients = true;
      } else {
        pass.failure = failure;
        this.#logUnseen(pass, failure.error);
      }
      end();
    });
    return future;
  }

  /**
   * Hands the gathered gradients to a step. The returned function waits for that step and for the passes it covers, and
   * throws when one of them has failed; what the caller has already seen fail, he may leave out.
   */
  takeForStep(): <T>(step: Promise<T>, signal: AbortSignal) => Promise<T> {
    const passes = [...this.#passes].filter(({ failure, future }) => !(failure && future.isAwaited));
    const hadGradients = this.#hasGradients || passes.some(({ failure }) => failure === undefined);
    this.forget();
    if (!hadGradients) {
      this.#context.logger.warn(
        "optimStep was called without a forwardBackward since the last one: there are no gradients to apply.",
      );
    }
    return async (step, signal) => {
      try {
        await step;
      } catch (error) {
        // A step that was refused leaves its gradients to the next one.
        if (hadGradients) this.#hasGradients = true;
        // One that the server has not even begun may be known long before its passes have ended.
        if (!(error instanceof RequestFailedError)) throw error;
      }
      await untilAborted(Promise.all(passes.map(({ ended }) => ended)), signal);
      const failed = passes.find(({ failure }) => failure);
      if (failed === undefined) return step;
      const { error } = failed.failure!;
      throw new TinkerError(
        `optimStep went without the gradients of a ${failed.what}, which failed: ${messageOf(error)}`,
        { cause: error },
      );
    };
  }

  /** Other weights were loaded: nothing of what went before counts. */
  forget(): void {
    this.#passes = new Set();
    this.#hasGradients = false;
  }

  #logUnseen({ what, future }: Pass, error: unknown): void {
    const isWanted = error instanceof APIUserAbortError || this.#context.closed.aborted;
    if (isWanted || future.isAwaited) return;
    this.#context.logger.error(`${what} failed, and nothing waits for its result: ${messageOf(error)}`);
  }
}
