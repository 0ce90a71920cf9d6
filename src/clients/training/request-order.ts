import { untilAborted } from "../../transport/index.js";

/** A number in a model's sequence of requests, while its request is being sent. */
export interface SequenceNumber {
  readonly seqId: number;
  /** A request with this number was lost: the server may have used the number. */
  readonly mayBeTaken: boolean;
}

/**
 * Keeps the order of one model's training requests. The server executes them by number, so they are sent one turn after
 * another, and the number of a refused request goes to the next one: a gap would stop the model.
 */
export class RequestOrder {
  #lastTurn: Promise<void> = Promise.resolve();
  #next = 1;
  readonly #returned: SequenceNumber[] = [];

  /** Runs `send` when every earlier request was accepted or has failed. Aborting while it waits takes no number. */
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

  /** Frees a number whose request was not accepted as far as we know. */
  giveBack(number: SequenceNumber): void {
    this.#returned.push(number);
    this.#returned.sort((a, b) => a.seqId - b.seqId);
  }
}
