import { type FileHandle, open } from "node:fs/promises";
import { errorCode } from "../../files.node.js";
import { parseJsonObject } from "../../training/json-lines.node.js";

const NEWLINE = 0x0a;
const CHUNK_BYTES = 1 << 20;
/** Longer lines are skipped. */
const MAX_LINE_BYTES = 8 << 20;
/** A longer last line waits for its newline, so that it is not read again with each piece. */
const MAX_LAST_BYTES = 1 << 20;
/** So much before the place that was reached must still be there, or the file is another one. */
const FINGERPRINT_BYTES = 64;

/** Callbacks for a file while it is read. */
export interface TailListener {
  /** Whole lines, one after the other, with the newline at the end of each; the bytes are used again afterwards. */
  lines(content: Buffer): void;
  /** Earlier lines no longer count: the file was replaced, cut or removed. */
  reset(): void;
  /** A line that is too long to be one. */
  skipped(): void;
}

/**
 * Reads a file that others write: whole lines only, each once, and from the beginning where the file is another one.
 * A last line without a newline is whole if it can be read as an object, because nothing that follows could belong to it.
 */
export class LineTail {
  readonly #path: string;
  readonly #listener: TailListener;
  #identity: string | undefined;
  /** All lines up to this byte have been passed on. */
  #offset = 0;
  /** Up to here the file was looked at, and holds no new line behind `#offset`. */
  #scanned = 0;
  #isSkipping = false;
  /** The end up to which the last line was no whole one. */
  #refused = -1;
  #fingerprint: Buffer = Buffer.alloc(0);
  /** Memory of the pieces, while the file is read. */
  #chunk: Buffer = Buffer.alloc(0);

  constructor(path: string, listener: TailListener) {
    this.#path = path;
    this.#listener = listener;
  }

  /** Tells what is new. Not to be called again before it is done. */
  async read(): Promise<void> {
    let handle: FileHandle;
    try {
      handle = await open(this.#path, "r");
    } catch (error) {
      if (!["ENOENT", "EACCES", "ENOTDIR"].includes(errorCode(error) ?? "")) throw error;
      this.#begin(undefined);
      return;
    }
    try {
      const { dev, ino, size } = await handle.stat();
      const identity = `${dev}:${ino}`;
      const isSame =
        identity === this.#identity && size >= this.#scanned && (await this.#matches(handle, size));
      if (!isSame) this.#begin(identity);
      while (this.#scanned < size) await this.#readChunk(handle, size);
      await this.#readLast(handle);
    } finally {
      this.#chunk = Buffer.alloc(0);
      await handle.close();
    }
  }

  #begin(identity: string | undefined): void {
    if (this.#identity !== undefined) this.#listener.reset();
    this.#identity = identity;
    this.#offset = 0;
    this.#scanned = 0;
    this.#isSkipping = false;
    this.#refused = -1;
    this.#fingerprint = Buffer.alloc(0);
  }

  /** A file that was rewritten in place may be longer than before. */
  async #matches(handle: FileHandle, size: number): Promise<boolean> {
    const { length } = this.#fingerprint;
    if (size === this.#scanned || length === 0) return true;
    const found = Buffer.alloc(length);
    await handle.read(found, 0, length, this.#offset - length);
    return found.equals(this.#fingerprint);
  }

  async #readChunk(handle: FileHandle, size: number): Promise<void> {
    const pending = this.#isSkipping ? 0 : this.#scanned - this.#offset;
    const from = this.#scanned - pending;
    const length = pending + Math.min(CHUNK_BYTES, size - this.#scanned);
    if (this.#chunk.length < length) this.#chunk = Buffer.allocUnsafe(length);
    const { bytesRead } = await handle.read(this.#chunk, 0, length, from);
    const content = this.#chunk.subarray(0, bytesRead);
    if (bytesRead <= pending) {
      // It became shorter meanwhile, which the next call sees.
      this.#scanned = size;
      return;
    }
    this.#scanned = from + bytesRead;
    let start = 0;
    if (this.#isSkipping) {
      const end = content.indexOf(NEWLINE);
      if (end < 0) return;
      this.#isSkipping = false;
      start = end + 1;
      this.#reach(from + start, content.subarray(0, start));
    }
    const last = content.lastIndexOf(NEWLINE);
    if (last >= start) {
      this.#listener.lines(content.subarray(start, last + 1));
      this.#reach(from + last + 1, content.subarray(0, last + 1));
    }
    if (this.#scanned - this.#offset > MAX_LINE_BYTES) {
      this.#isSkipping = true;
      this.#listener.skipped();
    }
  }

  /** Programs that were killed, and some that were not, leave a last line without its newline. */
  async #readLast(handle: FileHandle): Promise<void> {
    const length = this.#scanned - this.#offset;
    if (length === 0 || length > MAX_LAST_BYTES || this.#isSkipping || this.#refused === this.#scanned)
      return;
    const content = Buffer.alloc(length);
    const { bytesRead } = await handle.read(content, 0, length, this.#offset);
    const text = content.toString("utf8", 0, bytesRead);
    if (bytesRead < length || parseJsonObject(text) === undefined) {
      this.#refused = this.#scanned;
      return;
    }
    this.#listener.lines(Buffer.from(`${text}\n`));
    this.#reach(this.#scanned, content);
  }

  #reach(offset: number, content: Buffer): void {
    this.#offset = offset;
    this.#fingerprint = Buffer.from(content.subarray(-FINGERPRINT_BYTES));
  }
}
