import { basename } from "node:path";
import { TinkerError } from "../../errors.js";
import type { OpenRows } from "./rows.js";
import { rowText, spillTexts } from "./spill.node.js";

/** What of a table is read. */
const COLUMNS = ["messages", "tools", "prompt", "completion"];

/** The rows of a Parquet file, each as the text of a JSON object, kept on disk; one group of rows is in memory at a time. */
export async function openParquet(path: string): Promise<OpenRows<string>> {
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
  async function* texts() {
    let rowStart = 0;
    for (const group of metadata.row_groups) {
      const rowEnd = rowStart + Number(group.num_rows);
      const rows = await hyparquet.parquetReadObjects({
        file,
        metadata,
        columns,
        compressors,
        rowStart,
        rowEnd,
      });
      for (const row of rows) yield rowText(row);
      rowStart = rowEnd;
    }
  }
  return await spillTexts(texts(), (number) => `${name} row ${number}`);
}
