import { APIError, APIUserAbortError, ConflictError } from "../errors.js";
import {
  type Accepted,
  type APIFuture,
  type FutureKind,
  type QueueStateLogger,
  readAcceptance,
  startOperation,
  submitWithRetries,
} from "../futures/index.js";
import { type ApiRequest, type ApiResponse, isDoubtful, type RequestOptions } from "../transport/index.js";
import type { ClientContext } from "./context.js";
import { RequestOrder, type SequenceNumber } from "./request-order.js";

/** How one numbered request is sent; called again with the same number after a failure that may be mended. */
export type SendNumbered = (
  seqId: number,
  request: Pick<ApiRequest, "signal" | "maxRetries" | "timeout" | "headers">,
) => Promise<ApiResponse>;

/** Answers of the server that say something about the request itself when an earlier try of it may have arrived. */
export interface Refusal<T> {
  readonly statuses: readonly number[];
  /** The answer to the caller; throws what the caller must know. */
  answer(error: APIError, mayHaveArrived: boolean): T;
}

/** Sends one model's requests to the server in order, and starts polling each as soon as it is accepted. */
export class TrainingQueue {
  readonly #context: ClientContext;
  readonly #order: RequestOrder;
  readonly queue: QueueStateLogger;

  constructor(context: ClientContext, queue: QueueStateLogger, order = new RequestOrder()) {
    this.#context = context;
    this.queue = queue;
    this.#order = order;
  }

  /** One request, one number. */
  start<T, R = T>(request: {
    kind: FutureKind<T>;
    send: SendNumbered;
    finish?: (result: T) => R;
    options?: RequestOptions | undefined;
    refusal?: Refusal<T>;
  }): APIFuture<R> {
    let number: number | undefined;
    return startOperation<T, R>(this.#context, {
      kind: request.kind,
      queue: this.queue,
      signal: request.options?.signal,
      submit: async (signal) => {
        if (number !== undefined) return this.sendAs<T>(number, request, signal);
        return this.inTurn(signal, async () => {
          const sent = await this.sendNext<T>(request, signal);
          number = sent.seqId;
          return sent.accepted;
        });
      },
      finish: (result) => (request.finish ? request.finish(result) : (result as unknown as R)),
    });
  }

  /** A request outside the numbering, sent in its turn all the same. */
  startUnnumbered<T, R>(request: {
    kind: FutureKind<T>;
    send: (settings: Parameters<SendNumbered>[1]) => Promise<ApiResponse>;
    finish: (result: T) => R;
    options: RequestOptions;
    refusal?: Refusal<T>;
  }): APIFuture<R> {
    const send: SendNumbered = (_, settings) => request.send(settings);
    return startOperation<T, R>(this.#context, {
      ...request,
      queue: this.queue,
      signal: request.options.signal,
      submit: (signal) => this.inTurn(signal, () => this.sendAs(0, { ...request, send }, signal)),
    });
  }

  inTurn<T>(signal: AbortSignal, send: () => Promise<T>): Promise<T> {
    return this.#order.turn(signal, send);
  }

  /** One turn for several requests with work between them; they are sent through the queue `use` is given. */
  holdTurn<T>(signal: AbortSignal, use: (turn: TrainingQueue) => Promise<T>): Promise<T> {
    const turn = new TrainingQueue(this.#context, this.queue, this.#order.nested());
    return this.inTurn(signal, () => use(turn));
  }

  /** Takes the next number and sends under it; a number whose request is not accepted goes back. */
  async sendNext<T>(
    request: Parameters<TrainingQueue["sendAs"]>[1] & { number?: SequenceNumber },
    signal: AbortSignal,
  ): Promise<{ seqId: number; accepted: Accepted<T> }> {
    const skipped: SequenceNumber[] = [];
    for (let number = request.number ?? this.#order.take(); ; number = this.#order.take()) {
      try {
        const accepted = await this.sendAs<T>(
          number.seqId,
          { ...request, doubtful: number.doubtful },
          signal,
        );
        return { seqId: number.seqId, accepted };
      } catch (error) {
        const isConflict = error instanceof ConflictError;
        // The request that was lost under this number had arrived after all: it is used up.
        if (number.doubtful && isConflict) {
          skipped.push(number);
          continue;
        }
        // The server may object to the request and not to its number: then the ones skipped are still free.
        if (isConflict) for (const each of skipped) this.giveBackUnsent(each);
        const mayBeUsed =
          number.doubtful ||
          (isConflict && request.refusal === undefined) ||
          isDoubtful(error) ||
          error instanceof APIUserAbortError;
        this.#order.giveBack(number.seqId, mayBeUsed);
        throw error;
      }
    }
  }

  takeNumbers(count: number): SequenceNumber[] {
    return Array.from({ length: count }, () => this.#order.take());
  }

  giveBackUnsent(number: SequenceNumber): void {
    this.#order.giveBack(number.seqId, number.doubtful);
  }

  async sendAs<T>(
    seqId: number,
    request: {
      kind: { requestType: string };
      send: SendNumbered;
      options?: RequestOptions | undefined;
      refusal?: Refusal<unknown> | undefined;
      doubtful?: boolean;
    },
    signal: AbortSignal,
  ): Promise<Accepted<T>> {
    const { options, refusal, doubtful } = request;
    const finalStatuses = doubtful ? [409] : (refusal?.statuses ?? []);
    return submitWithRetries(
      this.#context,
      async ({ mayHaveArrived: earlierMayHaveArrived }) => {
        try {
          const response = await request.send(seqId, {
            signal,
            timeout: options?.timeout,
            headers: options?.headers,
            // Each try must be seen here where its outcome changes the meaning of the next one's.
            maxRetries: finalStatuses.length > 0 ? 0 : options?.maxRetries,
          });
          return readAcceptance(response, request.kind.requestType) as Accepted<T>;
        } catch (error) {
          const isRefusal = error instanceof APIError && refusal?.statuses.includes(error.status);
          if (!isRefusal || doubtful) throw error;
          return { requestId: "", result: refusal?.answer(error, earlierMayHaveArrived) as T };
        }
      },
      { signal, finalStatuses },
    );
  }
}
