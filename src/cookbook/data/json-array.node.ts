import { TinkerError } from "../../errors.js";
import { type RowScanner, RowStarts } from "./indexed-rows.node.js";

const [QUOTE, BACKSLASH, COMMA] = [0x22, 0x5c, 0x2c];
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d];
const FIRST_VISIBLE = 0x21;

/** The items of a file that is one JSON list. Only its brackets, commas and quotes are looked at. */
export class ListScanner implements RowScanner {
  readonly starts = new RowStarts();
  #depth = 0;
  #isInText = false;
  #isEscaped = false;
  /** Whether an item has begun since the last comma of the list itself. */
  #hasItem = false;
  #hasComma = false;
  #end: number | undefined;

  scan(bytes: Buffer, position: number): void {
    for (let at = 0; at < bytes.length; at += 1) {
      const byte = bytes[at]!;
      if (this.#isInText) {
        if (this.#isEscaped) this.#isEscaped = false;
        else if (byte === BACKSLASH) this.#isEscaped = true;
        else if (byte === QUOTE) this.#isInText = false;
      } else if (byte >= FIRST_VISIBLE) this.#look(byte, position + at);
    }
  }

  #look(byte: number, offset: number): void {
    if (this.#depth === 0) {
      // A byte order mark may stand before the list.
      if (byte === OPEN_LIST && this.#end === undefined) this.#depth = 1;
      else if (this.#end !== undefined)
        throw new TinkerError(
          "something follows the end of the list: a file holds one list, or one row a line",
        );
      return;
    }
    if (this.#depth === 1 && byte === COMMA) {
      if (!this.#hasItem) throw this.#emptyItem();
      this.#hasItem = false;
      this.#hasComma = true;
      return;
    }
    if (this.#depth === 1 && byte === CLOSE_LIST) {
      if (!this.#hasItem && this.#hasComma) throw this.#emptyItem();
      this.#depth = 0;
      this.#end = offset;
      return;
    }
    if (this.#depth === 1 && !this.#hasItem) {
      this.#hasItem = true;
      this.starts.add(offset);
    }
    if (byte === QUOTE) this.#isInText = true;
    else if (byte === OPEN_LIST || byte === OPEN_OBJECT) this.#depth += 1;
    else if (byte === CLOSE_LIST || byte === CLOSE_OBJECT) this.#depth -= 1;
  }

  #emptyItem(): TinkerError {
    return new TinkerError(
      `nothing stands before or after the comma behind ${this.place(this.starts.count - 1)}`,
    );
  }

  finish(): number {
    if (this.#end === undefined)
      throw new TinkerError(
        `the list is not closed after ${this.place(this.starts.count - 1)}: the file is cut off, or a quote or bracket is missing`,
      );
    return this.#end;
  }

  place(index: number): string {
    return `row ${index + 1}`;
  }
}

/** An item without the comma behind it. */
export function withoutComma(bytes: Uint8Array): Uint8Array {
  let end = bytes.length;
  while (end > 0 && (bytes[end - 1]! < FIRST_VISIBLE || bytes[end - 1] === COMMA)) end -= 1;
  return bytes.subarray(0, end);
}
