import { randomUUID } from "node:crypto";
import { type FileHandle, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ValidationError } from "../../errors.js";
import { cannotWrite, writeFully } from "../../files.node.js";
import { openLines } from "./json-lines.node.js";
import type { OpenRows } from "./rows.js";

const WRITE_BYTES = 1 << 20;

/** A file without a name: it is gone when it is closed, or its process is, however that ends. */
export async function temporaryFile(): Promise<FileHandle> {
  const path = join(tmpdir(), `tinkerts-rows-${randomUUID()}`);
  try {
    const file = await open(path, "wx+", 0o600);
    await rm(path);
    return file;
  } catch (error) {
    throw cannotWrite(path, error);
  }
}

/** Writes texts, one a line, and reads them back as rows. */
export async function spillTexts(
  texts: AsyncIterable<string>,
  place: (number: number) => string,
): Promise<OpenRows<string>> {
  const file = await temporaryFile();
  try {
    let position = 0;
    let waiting = "";
    const flush = async () => {
      const bytes = Buffer.from(waiting);
      waiting = "";
      await writeFully(file, bytes, position).catch((error: unknown) => {
        throw cannotWrite(tmpdir(), error);
      });
      position += bytes.length;
    };
    for await (const text of texts) {
      waiting += `${text}\n`;
      if (waiting.length >= WRITE_BYTES) await flush();
    }
    await flush();
  } catch (error) {
    await file.close();
    throw error;
  }
  return await openLines(file, place);
}

/** Keeps rows on disk: those that were taken already, and the rest. */
export function spillRows(
  first: readonly unknown[],
  rest: Iterator<unknown> | AsyncIterator<unknown>,
): Promise<OpenRows<string>> {
  async function* texts() {
    for (const row of first) yield rowText(row);
    for (let next = await rest.next(); !next.done; next = await rest.next()) yield rowText(next.value);
  }
  return spillTexts(texts(), (number) => `row ${number}`);
}

/** A row as one line of JSON. */
export function rowText(row: unknown): string {
  return JSON.stringify(row ?? null, (key, value: unknown) => {
    if (typeof value === "bigint") return Number(value);
    if (!(value instanceof Uint8Array)) return value;
    throw new ValidationError(
      key,
      `${key} must be a data: URI where there are too many rows to keep in memory`,
    );
  });
}
