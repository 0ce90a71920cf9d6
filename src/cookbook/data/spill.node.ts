import { randomUUID } from "node:crypto";
import { type FileHandle, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { TinkerError } from "../../errors.js";
import { cannotWrite, writeFully } from "../../files.node.js";
import { printPythonJson } from "../../renderers/python-json.js";
import { bytesToBase64, isRecord } from "../../wire/index.js";
import { openIndexed } from "./indexed-rows.node.js";
import { LineScanner } from "./json-lines.node.js";
import type { OpenRows } from "./rows.js";

const WRITE_CHARACTERS = 1 << 20;
/** A zipped file may hold a thousand times its size; this much may be on disk. */
const MAX_SPILT_BYTES = 64 * 2 ** 30;

/** Keeps bytes on disk until the file is closed. */
export async function spillBytes(chunks: AsyncIterable<Uint8Array>): Promise<FileHandle> {
  const path = join(tmpdir(), `tinkerts-rows-${randomUUID()}`);
  const refuse = (error: unknown) => {
    throw cannotWrite(path, error);
  };
  const file = await open(path, "wx+", 0o600).catch(refuse);
  try {
    // Already unlinked, so it also disappears when the process is killed.
    await rm(path);
    let position = 0;
    for await (const chunk of chunks) {
      if (position + chunk.length > MAX_SPILT_BYTES)
        throw new TinkerError(`it holds more than ${MAX_SPILT_BYTES / 2 ** 30} GiB: split it`);
      await writeFully(file, chunk, position).catch(refuse);
      position += chunk.length;
    }
  } catch (error) {
    await file.close();
    throw error;
  }
  return file;
}

/** Spills rows to disk, each as one line. `name` stands before `row 12` in messages. */
export async function spillRows(rows: AsyncIterable<unknown>, name: string): Promise<OpenRows<Uint8Array>> {
  async function* lines() {
    let waiting = "";
    for await (const row of rows) {
      waiting += `${printPythonJson(withoutBytes(row), { ensureAscii: false })}\n`;
      if (waiting.length < WRITE_CHARACTERS) continue;
      yield Buffer.from(waiting);
      waiting = "";
    }
    yield Buffer.from(waiting);
  }
  return await openIndexed(await spillBytes(lines()), name, new SpiltRows());
}

/** Lines that were written here, where none is blank. */
class SpiltRows extends LineScanner {
  override place(index: number): string {
    return `row ${index + 1}`;
  }
}

/** JSON has no bytes: images become `data:` URIs. */
function withoutBytes(value: unknown): unknown {
  if (value instanceof Uint8Array) {
    return `data:image/${value[0] === 0x89 ? "png" : "jpeg"};base64,${bytesToBase64(value)}`;
  }
  if (Array.isArray(value)) return value.map(withoutBytes);
  if (!isRecord(value) || Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withoutBytes(item)]));
}
