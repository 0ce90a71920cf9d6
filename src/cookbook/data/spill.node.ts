import { randomUUID } from "node:crypto";
import { open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cannotWrite, writeFully } from "../../files.node.js";
import { printPythonJson } from "../../renderers/python-json.js";
import { bytesToBase64, isRecord } from "../../wire/index.js";
import { openLines } from "./json-lines.node.js";
import type { OpenRows } from "./rows.js";

const WRITE_CHARACTERS = 1 << 20;

/** Keeps the bytes of a JSONL file on disk, where it is gone when its rows are closed, and reads its lines from there. */
export async function spillBytes(
  chunks: AsyncIterable<Uint8Array>,
  place: (line: number) => string,
): Promise<OpenRows<Uint8Array>> {
  const path = join(tmpdir(), `tinkerts-rows-${randomUUID()}`);
  const refuse = (error: unknown) => {
    throw cannotWrite(path, error);
  };
  const file = await open(path, "wx+", 0o600).catch(refuse);
  try {
    // Without a name it also goes away when the process does, however that ends.
    await rm(path);
    let position = 0;
    for await (const chunk of chunks) {
      await writeFully(file, chunk, position).catch(refuse);
      position += chunk.length;
    }
  } catch (error) {
    await file.close();
    throw error;
  }
  return await openLines(file, place);
}

/** The same for rows, each written as one line. */
export function spillRows(
  rows: AsyncIterable<unknown>,
  place: (line: number) => string,
): Promise<OpenRows<Uint8Array>> {
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
  return spillBytes(lines(), place);
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
