import { once } from "node:events";
import { createRequire } from "node:module";
import { basename } from "node:path";
import { pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import { messageOf, TinkerError } from "../../errors.js";
import { checkColumns, KNOWN_COLUMNS } from "./columns.js";
import type { OpenRows } from "./rows.js";
import { spillRows } from "./spill.node.js";

/** A row group is decoded as a whole. */
const MAX_GROUP_BYTES = 2 * 2 ** 30;

/**
 * The thread that decodes. In a damaged file, the decoder rejects promises that it no longer awaits, or allocates
 * memory without end: here that ends the thread; in the main thread it would end the process. It is plain source text,
 * like the heartbeat thread.
 */
const THREAD_SOURCE = `
const { parentPort, workerData } = require("node:worker_threads");
const { path, columns, decoder, decompression } = workerData;
(async () => {
  const { asyncBufferFromFile, parquetMetadataAsync, parquetSchema, parquetReadObjects } = await import(decoder);
  const { compressors } = await import(decompression);
  const file = await asyncBufferFromFile(path);
  const metadata = await parquetMetadataAsync(file);
  const found = parquetSchema(metadata).children.map(({ element }) => element.name);
  const wanted = columns.filter((column) => found.includes(column));
  const bytesOf = ({ columns: parts }) => parts.reduce((sum, { meta_data: part }) =>
    sum + (wanted.includes(part?.path_in_schema[0]) ? Number(part.total_uncompressed_size) : 0), 0);
  const groups = metadata.row_groups.map(({ num_rows }) => Number(num_rows));
  let rowStart = 0;
  parentPort.on("message", async () => {
    const size = groups.shift();
    if (size === undefined) return parentPort.postMessage(null);
    const rowEnd = rowStart + size;
    const options = { file, metadata, columns: wanted, compressors, rowStart, rowEnd };
    parentPort.postMessage(await parquetReadObjects(options));
    rowStart = rowEnd;
  });
  parentPort.postMessage({ found, largest: Math.max(0, ...metadata.row_groups.map(bytesOf)) });
})();
`;

/**
 * The rows of a Parquet file, each as the UTF-8 text of a JSON object. They are kept on disk; one row group is in
 * memory at a time.
 */
export async function openParquet(
  path: string,
  columns: readonly string[] = [],
): Promise<OpenRows<Uint8Array>> {
  const { resolve } = createRequire(import.meta.url);
  const [decoder, decompression] = ["hyparquet", "hyparquet-compressors"].map(
    (name) => pathToFileURL(resolve(name)).href,
  );
  const workerData = { path, columns: [...new Set([...KNOWN_COLUMNS, ...columns])], decoder, decompression };
  const thread = new Worker(THREAD_SOURCE, {
    eval: true,
    workerData,
    execArgv: [],
    name: "tinkerts-parquet",
  });
  // Also between two answers: the thread's other promises may reject while its rows are being written.
  const failure = new Promise<never>((_, reject) => thread.once("error", reject));
  failure.catch(() => {});
  const answer = async () => (await Promise.race([once(thread, "message"), failure]))[0] as unknown;
  async function* rows() {
    for (;;) {
      const group = answer();
      thread.postMessage("next");
      const decoded = (await group) as readonly unknown[] | null;
      if (decoded === null) return;
      yield* decoded;
    }
  }
  const name = basename(path);
  try {
    const { found, largest } = (await answer()) as {
      readonly found: readonly string[];
      readonly largest: number;
    };
    checkColumns(name, found, columns);
    if (largest > MAX_GROUP_BYTES)
      throw new TinkerError(
        `${name} has a row group of ${(largest / 2 ** 30).toFixed(1)} GiB, more than the ${MAX_GROUP_BYTES / 2 ** 30} GiB ` +
          "that are decoded at once: write it with smaller ones (pyarrow: row_group_size=10000).",
      );
    return await spillRows(rows(), name);
  } catch (error) {
    if (error instanceof TinkerError || (error as NodeJS.ErrnoException).code === "ENOENT") throw error;
    throw new TinkerError(
      `${path} cannot be read: it is damaged, or not a Parquet file (${messageOf(error)}).`,
      { cause: error },
    );
  } finally {
    await thread.terminate();
  }
}
