import { untilAborted } from "../transport/index.js";

/** A number in a model's sequence of requests, while the request that took it is being sent. */
export interface SequenceNumber {
  readonly seqId: number;
  /** A request that had this number was lost on the way; the server may know it or not. */
  readonly doubtful: boolean;
}

/**
 * The order of one model's training requests. The server executes them by number, so they are sent one turn
 * after another, and a number whose request was not accepted goes to the next one: a hole would stop the model.
 */
export class RequestOrder {
  #lastTurn: Promise<void> = Promise.resolve();
  readonly #numbers: { next: number; readonly returned: SequenceNumber[] };

  constructor(numbers = { next: 1, returned: [] as SequenceNumber[] }) {
    this.#numbers = numbers;
  }

  /** An order of turns within one turn of this one, on the same numbers. */
  nested(): RequestOrder {
    return new RequestOrder(this.#numbers);
  }

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
    return this.#numbers.returned.shift() ?? { seqId: this.#numbers.next++, doubtful: false };
  }

  /** Gives back a number whose request was not accepted as far as we know. */
  giveBack(seqId: number, mayHaveArrived: boolean): void {
    this.#numbers.returned.push({ seqId, doubtful: mayHaveArrived });
    this.#numbers.returned.sort((a, b) => a.seqId - b.seqId);
  }
}
