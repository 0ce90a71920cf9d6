import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { basename } from "node:path";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { messageOf, TinkerError } from "../../errors.js";
import { errorCode } from "../../files.node.js";
import { openLines } from "./json-lines.node.js";
import type { OpenRows } from "./rows.js";
import { temporaryFile } from "./spill.node.js";

/** The rows of a file, each as the text of a JSON object. */
export async function openFile(path: string): Promise<OpenRows<string>> {
  try {
    if (/\.parquet$/i.test(path)) {
      const { openParquet } = await import("./parquet.node.js");
      return await openParquet(path);
    }
    const name = basename(path);
    return await openLines(
      /\.gz$/i.test(path) ? await unzipped(path) : await open(path),
      (line) => `${name} line ${line}`,
    );
  } catch (error) {
    if (errorCode(error) === "ENOENT") throw new TinkerError(`There is no file ${path}.`, { cause: error });
    if (error instanceof TinkerError) throw error;
    throw new TinkerError(`${path} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

async function unzipped(path: string) {
  const file = await temporaryFile();
  try {
    await pipeline(createReadStream(path), createGunzip(), file.createWriteStream({ autoClose: false }));
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}
