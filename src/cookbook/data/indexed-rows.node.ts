import type { FileHandle } from "node:fs/promises";
import { TinkerError } from "../../errors.js";
import { type OpenRows, openRows } from "./rows.js";

const SCAN_BYTES = 1 << 20;
/** Neighbouring rows are read together, up to this many bytes. */
const MAX_READ_BYTES = 4 << 20;
const FIRST_CAPACITY = 1024;
/** A row is read as a whole, so it must fit into memory; images are part of it. */
export const MAX_ROW_BYTES = 64 << 20;
const MAX_ROWS = 100_000_000;

/** Finds where the rows of a file begin, as its bytes pass by. */
export interface RowScanner {
  /** Looks at the next bytes of the file; `position` is that of the first one. */
  scan(bytes: Buffer, position: number): void;
  /** Ends the scan and says where the last row ends. What is wrong with the file as a whole is an error. */
  finish(size: number): number;
  readonly starts: RowStarts;
  /** Where a row stands in the file: `line 12`. */
  place(index: number): string;
}

/** The offset of each row: eight bytes a row, which is all of a file that is kept in memory. */
export class RowStarts {
  #offsets = new Float64Array(FIRST_CAPACITY);
  count = 0;

  add(offset: number): void {
    if (this.count === MAX_ROWS)
      throw new TinkerError(`it has more than ${MAX_ROWS.toLocaleString("en-US")} rows: split it`);
    if (this.count === this.#offsets.length) {
      const larger = new Float64Array(2 * this.#offsets.length);
      larger.set(this.#offsets);
      this.#offsets = larger;
    }
    this.#offsets[this.count] = offset;
    this.count += 1;
  }

  /** The offsets, and behind them where the last row ends. */
  until(end: number): Float64Array {
    const offsets = new Float64Array(this.count + 1);
    offsets.set(this.#offsets.subarray(0, this.count));
    offsets[this.count] = end;
    return offsets;
  }
}

/** The rows of a file, each as its bytes up to the next row. Closing the rows closes the file. `name` may be empty. */
export async function openIndexed(
  file: FileHandle,
  name: string,
  scanner: RowScanner,
): Promise<OpenRows<Uint8Array>> {
  const place = (index: number) => `${name} ${scanner.place(index)}`.trimStart();
  const starts = await indexRows(file, scanner, place).catch(async (error: unknown) => {
    await file.close();
    throw error instanceof TinkerError ? new TinkerError(`${name}: ${error.message}`) : error;
  });
  const read = async (indices: readonly number[]): Promise<readonly Uint8Array[]> => {
    const rows = new Map<number, Uint8Array>();
    await Promise.all(
      runs(indices, starts).map(async ([first, last]) => {
        const from = starts[first]!;
        const bytes = await readFully(file, from, starts[last + 1]! - from);
        if (bytes === undefined)
          throw new TinkerError(`${place(first)}: the file became shorter since it was opened`);
        for (let index = first; index <= last; index += 1) {
          rows.set(index, bytes.subarray(starts[index]! - from, starts[index + 1]! - from));
        }
      }),
    );
    return indices.map((index) => rows.get(index)!);
  };
  return openRows({ length: starts.length - 1, read, place }, () => file.close());
}

async function indexRows(
  file: FileHandle,
  scanner: RowScanner,
  place: (index: number) => string,
): Promise<Float64Array> {
  const buffer = Buffer.allocUnsafe(SCAN_BYTES);
  let position = 0;
  for (;;) {
    const { bytesRead } = await file.read(buffer, 0, SCAN_BYTES, position);
    if (bytesRead === 0) break;
    if (position === 0) refuseUtf16(buffer.subarray(0, bytesRead));
    scanner.scan(buffer.subarray(0, bytesRead), position);
    position += bytesRead;
  }
  const starts = scanner.starts.until(scanner.finish(position));
  const long = starts.findIndex((start, index) => starts[index + 1]! - start > MAX_ROW_BYTES);
  if (long !== -1) {
    const size = Math.ceil((starts[long + 1]! - starts[long]!) / 2 ** 20);
    throw new TinkerError(
      `${place(long)} has ${size} MiB, more than the ${MAX_ROW_BYTES >> 20} MiB that a row may have`,
    );
  }
  return starts;
}

/** Length of the byte order mark that some programs write at the start. */
export function markLength([first, second, third]: Uint8Array): number {
  return first === 0xef && second === 0xbb && third === 0xbf ? 3 : 0;
}

function refuseUtf16([first, second]: Uint8Array): void {
  if ((first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff))
    throw new TinkerError("the text is UTF-16, and must be UTF-8");
}

/** Space, tab, carriage return. */
export function isSpace(byte: number): boolean {
  return byte === 0x20 || byte === 0x09 || byte === 0x0d;
}

/** The requested rows as runs of neighbours that are read at once: first and last of each. */
function runs(indices: readonly number[], starts: Float64Array): (readonly [number, number])[] {
  const found: [number, number][] = [];
  for (const index of Float64Array.from(new Set(indices)).sort()) {
    const run = found.at(-1);
    if (run?.[1] === index - 1 && starts[index + 1]! - starts[run[0]]! <= MAX_READ_BYTES) run[1] = index;
    else found.push([index, index]);
  }
  return found;
}

/** Undefined if the file ends earlier. */
async function readFully(file: FileHandle, position: number, length: number): Promise<Buffer | undefined> {
  const bytes = Buffer.allocUnsafe(length);
  for (let done = 0; done < length; ) {
    const { bytesRead } = await file.read(bytes, done, length - done, position + done);
    if (bytesRead === 0) return undefined;
    done += bytesRead;
  }
  return bytes;
}
