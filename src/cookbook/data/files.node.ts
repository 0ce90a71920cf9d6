import { createReadStream } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { basename } from "node:path";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { messageOf, TinkerError } from "../../errors.js";
import { errorCode } from "../../files.node.js";
import { checkColumns } from "./columns.js";
import { CsvScanner } from "./csv.node.js";
import { isSpace, markLength, openIndexed } from "./indexed-rows.node.js";
import { ListScanner, withoutComma } from "./json-array.node.js";
import { LineScanner } from "./json-lines.node.js";
import { mapRows, type OpenRows } from "./rows.js";
import { spillBytes } from "./spill.node.js";

/**
 * The rows of a file, each as the UTF-8 text of a JSON object. `columns` are read from tables besides those with a known
 * name.
 */
export async function openFile(path: string, columns: readonly string[] = []): Promise<OpenRows<Uint8Array>> {
  try {
    if (/\.parquet$/i.test(path)) {
      const { openParquet } = await import("./parquet.node.js");
      return await openParquet(path, columns);
    }
    const isZipped = /\.gz$/i.test(path);
    const file = isZipped
      ? await pipeline(createReadStream(path), createGunzip(), (chunks) => spillBytes(chunks))
      : await open(path);
    return await openText(file, path.replace(/\.gz$/i, ""), basename(path), columns).catch(
      async (error: unknown) => {
        await file.close();
        throw error;
      },
    );
  } catch (error) {
    if (errorCode(error) === "ENOENT") throw new TinkerError(`There is no file ${path}.`, { cause: error });
    if (error instanceof TinkerError) throw error;
    throw new TinkerError(`${path} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

/** The rows of a text file, by its name and by what it begins with. */
async function openText(
  file: FileHandle,
  path: string,
  name: string,
  wanted: readonly string[],
): Promise<OpenRows<Uint8Array>> {
  const [, ending] = /\.(csv|tsv|tab)$/i.exec(path) ?? [];
  if (ending !== undefined) {
    const table = new CsvScanner(ending.toLowerCase() === "csv" ? undefined : "\t");
    const rows = await openIndexed(file, name, table);
    checkColumns(name, table.columns, wanted);
    return mapRows(rows, (record) => table.toJson(record));
  }
  if (!(await isList(file, path))) return await openIndexed(file, name, new LineScanner());
  return mapRows(await openIndexed(file, name, new ListScanner()), withoutComma);
}

const PEEK_BYTES = 4096;

/** Whether a file is one JSON list. A `.jsonl` file is one only if its first line is a bracket alone. */
async function isList(file: FileHandle, path: string): Promise<boolean> {
  const { bytesRead, buffer } = await file.read(Buffer.alloc(PEEK_BYTES), 0, PEEK_BYTES, 0);
  const bytes = buffer.subarray(0, bytesRead);
  const isBlank = (byte: number) => isSpace(byte) || byte === 0x0a;
  const start = bytes.findIndex((byte, index) => index >= markLength(bytes) && !isBlank(byte));
  if (bytes[start] !== 0x5b) return false;
  return !/\.(?:jsonl|ndjson)$/i.test(path) || /^\[\s*?(?:\r?\n|$)/.test(bytes.toString("utf8", start));
}
