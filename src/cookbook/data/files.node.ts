import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { basename } from "node:path";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { messageOf, TinkerError } from "../../errors.js";
import { errorCode } from "../../files.node.js";
import { openLines } from "./json-lines.node.js";
import type { OpenRows } from "./rows.js";
import { spillBytes } from "./spill.node.js";

/** The rows of a file, each as the UTF-8 of a JSON object. */
export async function openFile(path: string): Promise<OpenRows<Uint8Array>> {
  const place = (line: number) => `${basename(path)} line ${line}`;
  try {
    if (/\.parquet$/i.test(path)) {
      const { openParquet } = await import("./parquet.node.js");
      return await openParquet(path);
    }
    if (!/\.gz$/i.test(path)) return await openLines(await open(path), place);
    return await pipeline(createReadStream(path), createGunzip(), (chunks) => spillBytes(chunks, place));
  } catch (error) {
    if (errorCode(error) === "ENOENT") throw new TinkerError(`There is no file ${path}.`, { cause: error });
    if (error instanceof TinkerError) throw error;
    throw new TinkerError(`${path} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}
