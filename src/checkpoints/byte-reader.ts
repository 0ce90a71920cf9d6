import { ArchiveError } from "./safe-path.js";

/** Takes exact numbers of bytes out of a stream of chunks of any size. */
export class ByteReader {
  readonly #chunks: AsyncIterator<Uint8Array>;
  #chunk: Uint8Array = new Uint8Array(0);

  constructor(chunks: AsyncIterable<Uint8Array>) {
    this.#chunks = chunks[Symbol.asyncIterator]();
  }

  /** The next `length` bytes; undefined if the stream ended before the first of them. */
  async read(length: number): Promise<Uint8Array | undefined> {
    const bytes = new Uint8Array(length);
    let filled = 0;
    while (filled < length) {
      const piece = await this.#next(length - filled);
      if (piece === undefined) {
        if (filled === 0) return undefined;
        throw new ArchiveError("damaged", "The archive ends in the middle of a header.");
      }
      bytes.set(piece, filled);
      filled += piece.length;
    }
    return bytes;
  }

  /** The next `length` bytes in pieces; each piece is valid until the next is read. */
  async *pieces(length: number): AsyncGenerator<Uint8Array> {
    for (let left = length; left > 0; ) {
      const piece = await this.#next(left);
      if (piece === undefined) throw new ArchiveError("damaged", "The archive ends in the middle of a file.");
      left -= piece.length;
      yield piece;
    }
  }

  async drain(): Promise<void> {
    while ((await this.#next(Number.POSITIVE_INFINITY)) !== undefined);
  }

  async close(): Promise<void> {
    await this.#chunks.return?.();
  }

  async #next(most: number): Promise<Uint8Array | undefined> {
    while (this.#chunk.length === 0) {
      const { done, value } = await this.#chunks.next();
      if (done) return undefined;
      this.#chunk = value;
    }
    const piece = this.#chunk.subarray(0, most);
    this.#chunk = this.#chunk.subarray(piece.length);
    return piece;
  }
}
