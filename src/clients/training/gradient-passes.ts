import { APIUserAbortError, messageOf, RequestFailedError, TinkerError } from "../../errors.js";
import type { APIFuture } from "../../futures/index.js";
import { untilAborted } from "../../transport/index.js";
import type { ClientContext } from "../context.js";

/** A pass that has not succeeded, or not yet. */
interface Pass {
  /** Text for messages: `forwardBackward of 8 datums with cross_entropy`. */
  readonly what: string;
  readonly future: APIFuture<unknown>;
  readonly ended: Promise<void>;
  failure?: { readonly error: unknown };
}

/**
 * Tracks the passes whose gradients the next optimizer step applies. The server takes a step even if a pass failed, so
 * the client must report it: a failure must not vanish because the pass is not awaited.
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
        // Its result may be large and belongs to the caller now.
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
   * Assigns the gathered gradients to a step. The returned function waits for that step and its passes, and throws if
   * one of them failed, except for failures that the caller has already seen.
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
        // A refused step leaves its gradients to the next one.
        if (hadGradients) this.#hasGradients = true;
        // A step that the server has not started may fail long before its passes have ended.
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

  /** Other weights were loaded: earlier passes no longer matter. */
  forget(): void {
    this.#passes = new Set();
    this.#hasGradients = false;
  }

  #logUnseen({ what, future }: Pass, error: unknown): void {
    const isExpected = error instanceof APIUserAbortError || this.#context.closed.aborted;
    if (isExpected || future.isAwaited) return;
    this.#context.logger.error(`${what} failed, and nothing waits for its result: ${messageOf(error)}`);
  }
}
