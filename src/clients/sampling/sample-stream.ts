import { APIUserAbortError, TinkerError } from "../../errors.js";
import { Interruption } from "../../transport/index.js";
import type { SampledPiece, SampleResponse } from "../../wire/index.js";

/**
 * Tokens as they are sampled, for one `for await` loop; leaving the loop early makes the server stop. Tokens that
 * arrive faster than they are read wait in memory, at most `maxTokens` per sample.
 */
export class SampleStream implements AsyncIterable<SampledPiece> {
  /** The whole response, as `sample` returns it. It resolves even if the tokens are not read, and rejects if the loop is left early. */
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
    // A reader of the tokens sees the failure in the loop and need not await the result.
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
