import { ConflictError } from "../../errors.js";
import {
  type Accepted,
  type APIFuture,
  resultOf,
  type Submission,
  startOperation,
  submit,
} from "../../futures/index.js";
import type { Interruption, RequestOptions } from "../../transport/index.js";
import { type ClientContext, queueLogger } from "../context.js";
import { RequestOrder, type SequenceNumber } from "./request-order.js";

/** One request of a model; its number is added when it is sent. */
export interface ModelRequest<T> extends Submission<T> {
  /** Has no number, but is sent in its turn. */
  readonly isUnnumbered?: boolean;
}

/** An accepted request, with its number. */
interface Sent<T> {
  readonly submission: Submission<T>;
  readonly accepted: Accepted<T>;
}

const UNNUMBERED: SequenceNumber = { seqId: 0, mayBeTaken: false };

/** Sends one model's requests to the server in the order of the calls, and waits for their results. */
export class ModelRequests {
  readonly #context: ClientContext;
  readonly #order = new RequestOrder();
  readonly #queue;

  constructor(context: ClientContext, modelId: string) {
    this.#context = context;
    this.#queue = queueLogger(context, modelId);
  }

  /** Starts one request. */
  start<T, R = T>(
    request: ModelRequest<T>,
    options: RequestOptions,
    finish: (result: T) => R = (result) => result as unknown as R,
  ): APIFuture<R> {
    return this.startAll([request], options, ([result]) => finish(result as T));
  }

  /** Starts several requests in one turn and combines their results. */
  startAll<T, R>(
    requests: readonly ModelRequest<T>[],
    options: RequestOptions,
    finish: (results: T[]) => R,
  ): APIFuture<R> {
    return startOperation(this.#context, options.signal, async (signal, onAccepted) =>
      finish(await this.run(requests, options, signal, onAccepted)),
    );
  }

  /** Sends requests in their turn and waits for their results. */
  async run<T>(
    requests: readonly ModelRequest<T>[],
    options: RequestOptions,
    signal: Interruption,
    onAccepted: (accepted: Accepted) => void,
  ): Promise<T[]> {
    const sent = await this.inTurn(signal, () => this.sendAll(requests, options, signal));
    onAccepted(sent[0]!.accepted);
    return this.resultsOf(sent, options, signal);
  }

  /** Runs `send` when every earlier call was sent or has failed. */
  inTurn<T>(signal: AbortSignal, send: () => Promise<T>): Promise<T> {
    return this.#order.turn(signal, send);
  }

  /**
   * Sends requests under the next numbers; only in their turn. If the server allows it they are sent in parallel, the
   * first one last: the server starts with it, and then finds the others already there.
   */
  async sendAll<T>(
    requests: readonly ModelRequest<T>[],
    options: RequestOptions,
    signal: AbortSignal,
  ): Promise<Sent<T>[]> {
    const numbers = requests.map(({ isUnnumbered }) => (isUnnumbered ? UNNUMBERED : this.#order.take()));
    const unsent = new Set(numbers);
    const sent: Sent<T>[] = [];
    const send = async (index: number) => {
      unsent.delete(numbers[index]!);
      sent[index] = await this.#send(requests[index]!, numbers[index]!, options, signal);
    };
    try {
      if (requests.length > 1 && this.#context.session.config.parallelFwdbwdChunks) {
        const others = await Promise.allSettled(requests.slice(1).map((_, index) => send(index + 1)));
        for (const other of others) if (other.status === "rejected") throw other.reason;
        await send(0);
      } else {
        for (const index of requests.keys()) await send(index);
      }
      return sent;
    } finally {
      for (const number of unsent) this.#order.giveBack(number);
    }
  }

  /** Waits for the results; after a failure, the rest of a batch is not polled. */
  async resultsOf<T>(sent: readonly Sent<T>[], options: RequestOptions, signal: Interruption): Promise<T[]> {
    try {
      return await Promise.all(
        sent.map(({ submission, accepted }) =>
          resultOf(this.#context, submission, accepted, { ...options, signal, queue: this.#queue }),
        ),
      );
    } catch (error) {
      if (sent.length > 1) signal.abort(error);
      throw error;
    }
  }

  /** Sends under this number, or under the next free one; the number of a request that was not accepted is freed. */
  async #send<T>(
    request: ModelRequest<T>,
    firstNumber: SequenceNumber,
    options: RequestOptions,
    signal: AbortSignal,
  ): Promise<Sent<T>> {
    const skipped: SequenceNumber[] = [];
    for (let number = firstNumber; ; number = this.#order.take()) {
      const { seqId, mayBeTaken } = number;
      const finalStatuses = mayBeTaken ? [409] : undefined;
      const submission = request.isUnnumbered
        ? request
        : { ...request, message: { ...request.message, seqId } };
      const outcome = await submit(this.#context, submission, { ...options, signal, finalStatuses });
      if (outcome.type === "accepted") return { submission, accepted: outcome.value };
      const isConflict = outcome.error instanceof ConflictError;
      // The request lost under this number had arrived after all: the number is used.
      if (mayBeTaken && isConflict) {
        skipped.push(number);
        continue;
      }
      // The server may object to the request and not to its number: then the skipped numbers are still free.
      if (isConflict) for (const each of skipped) this.#order.giveBack(each);
      const isTakenByAnother = isConflict && request.doneAlready === undefined;
      if (!request.isUnnumbered)
        this.#order.giveBack({
          seqId,
          mayBeTaken: mayBeTaken || isTakenByAnother || outcome.type === "unknown",
        });
      throw outcome.error;
    }
  }
}
