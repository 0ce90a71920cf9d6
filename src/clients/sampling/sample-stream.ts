import { APIUserAbortError, TinkerError } from "../../errors.js";
import { Interruption } from "../../transport/index.js";
import type { SampledPiece, SampleResponse } from "../../wire/index.js";

/**
 * Tokens as they are drawn, for one `for await` loop; leaving the loop early makes the server stop. What is told faster
 * than it is read waits in memory, never more than the `maxTokens` of each sample.
 */
export class SampleStream implements AsyncIterable<SampledPiece> {
  /** The same as `sample` gives; comes also where nobody reads the tokens, and fails where the loop was left early. */
  readonly result: Promise<SampleResponse>;
  readonly #leaving = new Interruption();
  #unread: SampledPiece[] = [];
  #isOver = false;
  #isTaken = false;
  #wake = () => {};

  /** @internal */
  constructor(run: (tell: (piece: SampledPiece) => void, left: AbortSignal) => Promise<SampleResponse>) {
    const tell = (piece: SampledPiece) => {
      this.#unread.push(piece);
      this.#wake();
    };
    this.result = run(tell, this.#leaving);
    const end = () => {
      this.#isOver = true;
      this.#wake();
    };
    // Who reads the tokens hears of the failure there, and need not await the result too.
    this.result.then(end, end);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<SampledPiece, void, undefined> {
    if (this.#isTaken)
      throw new TinkerError("The tokens of a stream can be read once; ask for another stream.");
    this.#isTaken = true;
    try {
      for (;;) {
        const pieces = this.#unread;
        this.#unread = [];
        yield* pieces;
        if (this.#unread.length > 0) continue;
        if (this.#isOver) break;
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
      await this.result;
    } finally {
      this.#unread = [];
      const left = "The loop over the stream was left before the sample ended.";
      if (!this.#isOver) this.#leaving.abort(new APIUserAbortError(left));
    }
  }
}
