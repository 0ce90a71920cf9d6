import { createReadStream } from "node:fs";
import { MAX_LINE_BYTES } from "./log-file.js";

const NEWLINE = 0x0a;

/** The complete lines of a file as bytes; the incomplete line of a crash and lines that are too long are left out. */
export async function* readWholeLines(
  path: string,
): AsyncGenerator<{ readonly bytes: Buffer; readonly start: number }, void, undefined> {
  const stream = createReadStream(path, { highWaterMark: 1 << 20 });
  let parts: Buffer[] = [];
  let length = 0;
  let start = 0;
  let isSkipping = false;
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      for (let at = 0; at < chunk.length; ) {
        const newline = chunk.indexOf(NEWLINE, at);
        const end = newline < 0 ? chunk.length : newline;
        length += end - at;
        if (length > MAX_LINE_BYTES) isSkipping = true;
        if (isSkipping) parts = [];
        else parts.push(chunk.subarray(at, end));
        at = end + 1;
        if (newline < 0) break;
        if (!isSkipping) yield { bytes: parts.length === 1 ? parts[0]! : Buffer.concat(parts), start };
        start += length + 1;
        parts = [];
        length = 0;
        isSkipping = false;
      }
    }
  } finally {
    stream.destroy();
  }
}
