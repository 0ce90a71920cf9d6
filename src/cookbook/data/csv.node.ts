import { TinkerError } from "../../errors.js";
import { markLength, type RowScanner, RowStarts } from "./indexed-rows.node.js";

const [QUOTE, NEWLINE, RETURN] = [0x22, 0x0a, 0x0d];
const DELIMITERS = [",", ";", "\t", "|"] as const;
const MAX_COLUMNS = 1000;
const UTF8 = new TextDecoder("utf-8", { fatal: true });

/** Where the scanner stands within a record. */
type Place = "record" | "cell" | "text" | "quoted" | "quote";

/** The records of a CSV or TSV file, quoted as in RFC 4180; the first one names the columns. */
export class CsvScanner implements RowScanner {
  readonly starts = new RowStarts();
  #columns: readonly string[] = [];
  #delimiter: string;
  #delimiterByte = 0;
  /** Bytes of the first record so far. */
  #header: Buffer[] | undefined = [];
  #place: Place = "record";
  #cells = 0;

  /** `delimiter` is that of a TSV file; that of a CSV file is found in its first record. */
  constructor(delimiter: "\t" | undefined) {
    this.#delimiter = delimiter ?? "";
  }

  /** Names in the first record. */
  get columns(): readonly string[] {
    return this.#columns;
  }

  scan(bytes: Buffer, position: number): void {
    let at = position === 0 ? markLength(bytes) : 0;
    if (this.#header !== undefined) at = this.#readHeader(bytes, at);
    // Local variables: this loop sees every byte of the file.
    const delimiter = this.#delimiterByte;
    let place = this.#place;
    for (; at < bytes.length; at += 1) {
      const byte = bytes[at]!;
      if (place === "quoted") {
        if (byte === QUOTE) place = "quote";
        continue;
      }
      if (place === "record") {
        // A blank line.
        if (byte === NEWLINE || byte === RETURN) continue;
        this.starts.add(position + at);
        this.#cells = 1;
        place = "cell";
      }
      if (byte === delimiter) {
        this.#cells += 1;
        if (this.#cells > this.#columns.length) throw this.#tooManyCells();
        place = "cell";
      } else if (byte === NEWLINE) place = "record";
      else if (byte === QUOTE && (place === "cell" || place === "quote")) place = "quoted";
      else if (place === "quote") {
        if (byte !== RETURN) throw this.#textAfterQuote();
      } else place = "text";
    }
    this.#place = place;
  }

  finish(size: number): number {
    if (this.#header !== undefined) this.#nameColumns(Buffer.concat(this.#header));
    if (this.#place === "quoted")
      throw new TinkerError(
        `${this.place(Math.max(0, this.starts.count - 1))} opens a cell with a quote that is never closed`,
      );
    return size;
  }

  place(index: number): string {
    return `row ${index + 1}`;
  }

  /** The JSON text of a record. Bytes that are not UTF-8 stay as they are, for the reader of rows to refuse. */
  toJson(record: Uint8Array): Uint8Array {
    let text: string;
    try {
      text = UTF8.decode(record);
    } catch {
      return record;
    }
    const cells = cellsOf(text, this.#delimiter);
    // An empty cell is a missing value, as pandas reads it.
    const entries = this.#columns.map((name, index) => [name, cells[index] || null] as const);
    return Buffer.from(JSON.stringify(Object.fromEntries(entries.filter(([name]) => name !== ""))));
  }

  /** Takes the bytes of the first record; returns where the next one begins. */
  #readHeader(bytes: Buffer, from: number): number {
    let isQuoted = this.#place === "quoted";
    for (let at = from; at < bytes.length; at += 1) {
      if (bytes[at] === QUOTE) isQuoted = !isQuoted;
      if (bytes[at] !== NEWLINE || isQuoted) continue;
      const header = Buffer.concat([...this.#header!, bytes.subarray(from, at)]);
      this.#place = "record";
      if (header.toString("latin1").trim() !== "") {
        this.#nameColumns(header);
        return at + 1;
      }
      from = at + 1;
    }
    if (bytes.length > from && this.#header!.length > 0)
      throw new TinkerError("its first line, which names the columns, has no end: is this a CSV file?");
    // The buffer is used again for the next bytes.
    this.#header!.push(Buffer.from(bytes.subarray(from)));
    this.#place = isQuoted ? "quoted" : "record";
    return bytes.length;
  }

  #nameColumns(header: Buffer): void {
    this.#header = undefined;
    let text: string;
    try {
      text = UTF8.decode(header).replace(/\r$/, "");
    } catch {
      throw new TinkerError("its first line is not UTF-8: save the file as UTF-8");
    }
    if (text.includes("\0")) throw new TinkerError("its first line has a zero byte: this is not a text file");
    this.#delimiter ||= likeliestDelimiter(text);
    this.#delimiterByte = this.#delimiter.charCodeAt(0);
    this.#columns = cellsOf(text, this.#delimiter).map((name) => name.trim());
    if (this.#columns.length > MAX_COLUMNS)
      throw new TinkerError(`it has ${this.#columns.length} columns, more than ${MAX_COLUMNS}`);
    const twice = this.#columns.find((name, index) => name !== "" && this.#columns.indexOf(name) !== index);
    if (twice !== undefined) throw new TinkerError(`its first line names the column ${twice} twice`);
  }

  #tooManyCells(): TinkerError {
    return new TinkerError(
      `${this.place(this.starts.count - 1)} has more cells than the ${this.#columns.length} columns that the first ` +
        "line names: a cell with a comma or a line break must be in quotes",
    );
  }

  #textAfterQuote(): TinkerError {
    return new TinkerError(
      `${this.place(this.starts.count - 1)} has text behind a closing quote: a quote within a cell is written twice`,
    );
  }
}

/** The delimiter that is most often in a line, outside of quotes. */
function likeliestDelimiter(line: string): string {
  const plain = line.replaceAll(/"[^"]*"/g, "");
  const count = (delimiter: string) => plain.split(delimiter).length;
  return DELIMITERS.toSorted((one, other) => count(other) - count(one))[0]!;
}

/** The cells of one record, up to the first line break outside of quotes. */
function cellsOf(record: string, delimiter: string): readonly string[] {
  const cells: string[] = [];
  let at = 0;
  for (;;) {
    let cell = "";
    for (let isFirst = true; record[at] === '"'; isFirst = false) {
      const end = record.indexOf('"', at + 1);
      const close = end === -1 ? record.length : end;
      // A quote within a cell is written twice: it ends one part and begins the next.
      cell += (isFirst ? "" : '"') + record.slice(at + 1, close);
      at = close + 1;
    }
    let next = at;
    while (next < record.length && record[next] !== delimiter && record[next] !== "\n") next += 1;
    cells.push(cell + record.slice(at, next).replace(/\r$/, ""));
    if (record[next] !== delimiter) return cells;
    at = next + 1;
  }
}
