import { basename } from "node:path";
import { TinkerError } from "../../errors.js";
import type { OpenRows } from "./rows.js";
import { spillRows } from "./spill.node.js";

/** What of a table is read. */
const COLUMNS = ["messages", "tools", "prompt", "completion"];

/** The rows of a Parquet file, each as the UTF-8 of a JSON object. They are kept on disk; one group of rows is in memory at a time. */
export async function openParquet(path: string): Promise<OpenRows<Uint8Array>> {
  const [hyparquet, { compressors }] = await Promise.all([
    import("hyparquet"),
    import("hyparquet-compressors"),
  ]);
  const file = await hyparquet.asyncBufferFromFile(path);
  const metadata = await hyparquet.parquetMetadataAsync(file);
  const found = hyparquet.parquetSchema(metadata).children.map(({ element }) => element.name);
  const columns = COLUMNS.filter((column) => found.includes(column));
  const name = basename(path);
  if (columns.length === 0) {
    throw new TinkerError(
      `${name} has no column messages, and none prompt and completion: it has ${found.join(", ")}.`,
    );
  }
  async function* rows() {
    let rowStart = 0;
    for (const group of metadata.row_groups) {
      const rowEnd = rowStart + Number(group.num_rows);
      yield* await hyparquet.parquetReadObjects({
        file,
        metadata,
        columns,
        compressors,
        rowStart,
        rowEnd,
      });
      rowStart = rowEnd;
    }
  }
  return await spillRows(rows(), (number) => `${name} row ${number}`);
}
