import { type BatchThread, startBatchThread } from "./batch-thread.js";
import type { TokenizerFiles } from "./files.js";
import type { EncodeOptions, TextTokenizer } from "./text-tokenizer.js";

/** Below this, making a second tokenizer in a thread would take longer than the work itself. */
const THREAD_CHARACTERS = 250_000;
/** A longer text alone would keep the event loop from its other work. */
const LONG_TEXT_CHARACTERS = 30_000;
/** Some ten milliseconds of work: timers and sockets get their turn in between. */
const SLICE_CHARACTERS = 10_000;
/** A thread that has nothing to do waits this long for the next batch. */
const THREAD_IDLE_MS = 30_000;
/** One message to the thread. */
const MESSAGE_CHARACTERS = 500_000;

/** Encodes many texts without keeping the event loop from its other work. */
export class BatchEncoder {
  readonly #text: TextTokenizer;
  readonly #files: TokenizerFiles;
  #thread: Promise<BatchThread | undefined> | undefined;
  #lastTurn: Promise<unknown> = Promise.resolve();
  #users = 0;
  #idle: ReturnType<typeof setTimeout> | undefined;

  constructor(text: TextTokenizer, files: TokenizerFiles) {
    this.#text = text;
    this.#files = files;
  }

  async encode(texts: readonly string[], options: EncodeOptions): Promise<number[][]> {
    const characters = texts.reduce((sum, text) => sum + text.length, 0);
    const isLong = texts.some(({ length }) => length >= LONG_TEXT_CHARACTERS);
    if (isLong || characters >= THREAD_CHARACTERS) {
      const encoded = await this.#encodeInThread(texts, options);
      if (encoded !== undefined) return encoded;
    }
    const encoded: number[][] = [];
    for (const slice of slices(texts, SLICE_CHARACTERS)) {
      if (encoded.length > 0) await turnOfOthers();
      for (const text of slice) encoded.push(this.#text.encode(text, options));
    }
    return encoded;
  }

  /** Undefined where there are no threads. */
  async #encodeInThread(texts: readonly string[], options: EncodeOptions): Promise<number[][] | undefined> {
    this.#users++;
    clearTimeout(this.#idle);
    try {
      const encoded: number[][] = [];
      for (const slice of slices(texts, MESSAGE_CHARACTERS)) {
        const batch = await this.#inTurn((thread) => thread.encode(slice, options));
        if (batch === undefined) return undefined;
        let start = 0;
        for (const length of batch.lengths) {
          encoded.push(Array.from(batch.tokens.subarray(start, start + length)));
          start += length;
        }
      }
      return encoded;
    } finally {
      this.#users--;
      if (this.#users === 0) this.#endWhenIdle();
    }
  }

  /** One message after the other, so that batches take turns; a thread that has ended is replaced. */
  async #inTurn<T>(work: (thread: BatchThread) => Promise<T>): Promise<T | undefined> {
    const before = this.#lastTurn;
    const mine = (async () => {
      await before;
      this.#thread ??= startBatchThread(this.#files);
      const thread = await this.#thread;
      if (thread === undefined) return undefined;
      try {
        return await work(thread);
      } finally {
        if (thread.hasEnded) this.#thread = undefined;
      }
    })();
    this.#lastTurn = mine.catch(() => {});
    return mine;
  }

  #endWhenIdle(): void {
    const idle = setTimeout(() => {
      const thread = this.#thread;
      this.#thread = undefined;
      void thread?.then((running) => running?.end());
    }, THREAD_IDLE_MS);
    // In browsers it is a number.
    if (typeof idle === "object") idle.unref();
    this.#idle = idle;
  }
}

function* slices(texts: readonly string[], maxCharacters: number): Generator<string[]> {
  let slice: string[] = [];
  let characters = 0;
  for (const text of texts) {
    if (slice.length > 0 && characters + text.length > maxCharacters) {
      yield slice;
      slice = [];
      characters = 0;
    }
    slice.push(text);
    characters += text.length;
  }
  if (slice.length > 0) yield slice;
}

function turnOfOthers(): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, 0);
  });
}
