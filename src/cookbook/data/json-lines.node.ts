import { TinkerError } from "../../errors.js";
import { isSpace, markLength, type RowScanner, RowStarts } from "./indexed-rows.node.js";

const NEWLINE = 0x0a;
/** Each is remembered, so that a row is named by its line. */
const MAX_BLANK_LINES = 10_000_000;

/** The lines of a file, without the blank ones. */
export class LineScanner implements RowScanner {
  readonly starts = new RowStarts();
  /** For each blank line, the number of rows before it. */
  readonly #blanks: number[] = [];
  #lineStart = 0;
  #isBlank = true;

  scan(bytes: Buffer, position: number): void {
    let at = position === 0 ? markLength(bytes) : 0;
    if (position === 0) this.#lineStart = at;
    while (at < bytes.length) {
      while (this.#isBlank && at < bytes.length && isSpace(bytes[at]!)) at += 1;
      if (at === bytes.length) return;
      if (this.#isBlank && bytes[at] !== NEWLINE) {
        this.#isBlank = false;
        this.starts.add(this.#lineStart);
      }
      const newline = bytes.indexOf(NEWLINE, at);
      if (newline === -1) return;
      if (this.#isBlank) this.#addBlank();
      this.#isBlank = true;
      at = newline + 1;
      this.#lineStart = position + at;
    }
  }

  #addBlank(): void {
    if (this.#blanks.length === MAX_BLANK_LINES)
      throw new TinkerError(`it has more than ${MAX_BLANK_LINES.toLocaleString("en-US")} blank lines`);
    this.#blanks.push(this.starts.count);
  }

  finish(size: number): number {
    return size;
  }

  place(index: number): string {
    return `line ${index + 1 + this.#blanks.filter((row) => row <= index).length}`;
  }
}
