import { APIError, ConflictError } from "../../errors.js";
import {
  type Accepted,
  type APIFuture,
  type AttemptSettings,
  type Fate,
  handIn,
  resultOf,
  startOperation,
  valueOrThrow,
} from "../../futures/index.js";
import type { ApiResponse, Interruption, RequestOptions } from "../../transport/index.js";
import type { FutureKind } from "../../wire/index.js";
import { type ClientContext, queueLogger } from "../context.js";
import { RequestOrder, type SequenceNumber } from "./request-order.js";

/** One request of a model. */
export interface ModelRequest<T> {
  readonly kind: FutureKind<T>;
  /** One attempt; called again with the same number after a failure that may pass. */
  send(seqId: number, settings: AttemptSettings): Promise<ApiResponse>;
  /** Statuses that mean, after an attempt that may have arrived, that it has done the work; and its result then. */
  readonly doneAlready?: { readonly statuses: readonly number[]; readonly result: T };
  /** It stands outside the numbering, but is sent in its turn all the same. */
  readonly isUnnumbered?: boolean;
}

/** A request that the server has accepted. */
interface Sent<T> {
  readonly request: ModelRequest<T>;
  readonly seqId: number;
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

  /** Starts several requests in one turn, and makes one result of theirs. */
  startAll<T, R>(
    requests: readonly ModelRequest<T>[],
    options: RequestOptions,
    finish: (results: T[]) => R,
  ): APIFuture<R> {
    return startOperation(this.#context, options.signal, async (signal, onAccepted) =>
      finish(await this.run(requests, options, signal, onAccepted)),
    );
  }

  /** Sends requests when it is their turn, and waits for their results. */
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

  /** Runs `send` when everything that was called before has been sent or has failed. */
  inTurn<T>(signal: AbortSignal, send: () => Promise<T>): Promise<T> {
    return this.#order.turn(signal, send);
  }

  /**
   * Sends requests under the next numbers; only for those whose turn it is. Where the server allows it they go side
   * by side and the first one last: the server starts with it, and then finds the others already there.
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

  /** Waits for the results; the rest of a batch that has failed is not polled any further. */
  async resultsOf<T>(sent: readonly Sent<T>[], options: RequestOptions, signal: Interruption): Promise<T[]> {
    try {
      return await Promise.all(
        sent.map(({ request, seqId, accepted }) => {
          const sendAgain = async () =>
            valueOrThrow(await this.#deliver(request, seqId, { ...options, signal, sentBefore: true }));
          const { kind } = request;
          return resultOf(this.#context, { kind, queue: this.#queue, sendAgain }, accepted, signal);
        }),
      );
    } catch (error) {
      if (sent.length > 1) signal.abort(error);
      throw error;
    }
  }

  /** Sends under this number, or under the next one that is free; a number whose request is not accepted goes back. */
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
      const fate = await this.#deliver(request, seqId, { ...options, signal, finalStatuses });
      if (fate.type === "accepted") return { request, seqId, accepted: fate.value };
      const isConflict = fate.error instanceof ConflictError;
      // The request that was lost under this number had arrived after all: it is used up.
      if (mayBeTaken && isConflict) {
        skipped.push(number);
        continue;
      }
      // The server may object to the request and not to its number: then the ones skipped are still free.
      if (isConflict) for (const each of skipped) this.#order.giveBack(each);
      const isTakenByAnother = isConflict && request.doneAlready === undefined;
      if (!request.isUnnumbered)
        this.#order.giveBack({
          seqId,
          mayBeTaken: mayBeTaken || isTakenByAnother || fate.type === "unknown",
        });
      throw fate.error;
    }
  }

  async #deliver<T>(
    request: ModelRequest<T>,
    seqId: number,
    options: Parameters<typeof handIn>[3],
  ): Promise<Fate<Accepted<T>>> {
    const { kind, doneAlready } = request;
    const finalStatuses = options.finalStatuses ?? doneAlready?.statuses;
    const fate = await handIn(this.#context, kind.requestType, (settings) => request.send(seqId, settings), {
      ...options,
      finalStatuses,
    });
    if (fate.type !== "unknown" || doneAlready === undefined || options.finalStatuses !== undefined)
      return fate;
    if (!(fate.error instanceof APIError && doneAlready.statuses.includes(fate.error.status))) return fate;
    return { type: "accepted", value: { requestId: "", submitMs: 0, result: doneAlready.result } };
  }
}
