import { untilAborted } from "../../transport/index.js";

/** A number in a model's sequence of requests, while the request that took it is being sent. */
export interface SequenceNumber {
  readonly seqId: number;
  /** A request that had this number was lost on the way: the server may have given the number to it. */
  readonly mayBeTaken: boolean;
}

/**
 * The order of one model's training requests. The server executes them by number, so they are sent one turn
 * after another, and a number whose request was not accepted goes to the next one: a hole would stop the model.
 */
export class RequestOrder {
  #lastTurn: Promise<void> = Promise.resolve();
  #next = 1;
  readonly #returned: SequenceNumber[] = [];

  /** Runs `send` when every earlier request was accepted or has failed. Aborting while waiting takes no number. */
  async turn<T>(signal: AbortSignal, send: () => Promise<T>): Promise<T> {
    const previous = this.#lastTurn;
    let end: () => void = () => {};
    this.#lastTurn = new Promise((resolve) => {
      end = resolve;
    });
    try {
      await untilAborted(previous, signal);
      return await send();
    } finally {
      previous.then(end);
    }
  }

  take(): SequenceNumber {
    return this.#returned.shift() ?? { seqId: this.#next++, mayBeTaken: false };
  }

  /** Gives back a number whose request was not accepted as far as we know. */
  giveBack(number: SequenceNumber): void {
    this.#returned.push(number);
    this.#returned.sort((a, b) => a.seqId - b.seqId);
  }
}
