import type { FileHandle } from "node:fs/promises";
import { TinkerError } from "../../errors.js";
import { type OpenRows, openRows } from "./rows.js";

const NEWLINE = 0x0a;
const SCAN_BYTES = 1 << 20;
/** Rows that follow each other are read together, up to this. */
const MAX_READ_BYTES = 4 << 20;
const FIRST_CAPACITY = 1024;

/**
 * The lines of a file, without the blank ones. Only where each begins is kept in memory: eight bytes a row. Closing the
 * rows closes the file.
 */
export async function openLines(
  file: FileHandle,
  place: (line: number) => string,
): Promise<OpenRows<Uint8Array>> {
  const { starts, blanks } = await indexLines(file).catch(async (error: unknown) => {
    await file.close();
    throw error instanceof TinkerError ? new TinkerError(`${place(1)}: ${error.message}`) : error;
  });
  const length = starts.length - 1;
  const at = (index: number) => place(index + 1 + blanks.filter((row) => row <= index).length);
  const read = async (indices: readonly number[]): Promise<readonly Uint8Array[]> => {
    const lines = new Map<number, Uint8Array>();
    await Promise.all(
      runs(indices, starts).map(async ([first, last]) => {
        const from = starts[first]!;
        const bytes = await readFully(file, from, starts[last + 1]! - from);
        if (bytes === undefined)
          throw new TinkerError(`${at(first)}: the file became shorter since it was opened`);
        for (let index = first; index <= last; index += 1) {
          lines.set(index, bytes.subarray(starts[index]! - from, starts[index + 1]! - from));
        }
      }),
    );
    return indices.map((index) => lines.get(index)!);
  };
  return openRows({ length, read, place: at }, () => file.close());
}

interface LineIndex {
  /** Where each row begins, and where the file ends. */
  readonly starts: Float64Array;
  /** For each blank line the number of rows before it. */
  readonly blanks: readonly number[];
}

async function indexLines(file: FileHandle): Promise<LineIndex> {
  let starts = new Float64Array(FIRST_CAPACITY);
  let count = 0;
  const blanks: number[] = [];
  const buffer = Buffer.allocUnsafe(SCAN_BYTES);
  let position = 0;
  let lineStart = 0;
  let isBlank = true;
  const add = (start: number) => {
    if (count + 1 >= starts.length) {
      const larger = new Float64Array(2 * starts.length);
      larger.set(starts);
      starts = larger;
    }
    starts[count++] = start;
  };
  for (;;) {
    const { bytesRead } = await file.read(buffer, 0, SCAN_BYTES, position);
    if (bytesRead === 0) break;
    const chunk = buffer.subarray(0, bytesRead);
    let at = 0;
    if (position === 0) {
      at = markLength(chunk);
      lineStart = at;
    }
    while (at < bytesRead) {
      while (isBlank && at < bytesRead && isSpace(chunk[at]!)) at += 1;
      if (at === bytesRead) break;
      if (isBlank && chunk[at] !== NEWLINE) {
        isBlank = false;
        add(lineStart);
      }
      const newline = chunk.indexOf(NEWLINE, at);
      if (newline === -1) break;
      if (isBlank) blanks.push(count);
      isBlank = true;
      at = newline + 1;
      lineStart = position + at;
    }
    position += bytesRead;
  }
  starts[count] = position;
  return { starts: starts.slice(0, count + 1), blanks };
}

/** Bytes of the mark that some programs write before the text. */
function markLength(chunk: Buffer): number {
  const [first, second, third] = chunk;
  if (first === 0xef && second === 0xbb && third === 0xbf) return 3;
  if ((first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff)) {
    throw new TinkerError("the text is UTF-16, and must be UTF-8");
  }
  return 0;
}

/** Space, tab, carriage return. */
function isSpace(byte: number): boolean {
  return byte === 0x20 || byte === 0x09 || byte === 0x0d;
}

/** The rows wanted, as runs of neighbours that are read at once: first and last of each. */
function runs(indices: readonly number[], starts: Float64Array): (readonly [number, number])[] {
  const found: [number, number][] = [];
  for (const index of Float64Array.from(new Set(indices)).sort()) {
    const run = found.at(-1);
    if (run?.[1] === index - 1 && starts[index + 1]! - starts[run[0]]! <= MAX_READ_BYTES) run[1] = index;
    else found.push([index, index]);
  }
  return found;
}

/** Undefined where the file ends before. */
async function readFully(file: FileHandle, position: number, length: number): Promise<Buffer | undefined> {
  const bytes = Buffer.allocUnsafe(length);
  for (let done = 0; done < length; ) {
    const { bytesRead } = await file.read(bytes, done, length - done, position + done);
    if (bytesRead === 0) return undefined;
    done += bytesRead;
  }
  return bytes;
}
