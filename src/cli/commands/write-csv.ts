import { writeFile } from "node:fs/promises";
import type { CommandContext } from "../context.js";
import { type Column, renderCsv } from "../output/index.js";

/** Writes CSV to a file, or to standard output for "-". */
export async function writeCsv<T>(
  { stdout, stderr }: CommandContext,
  file: string,
  items: readonly T[],
  columns: readonly Column<T>[],
): Promise<void> {
  const text = renderCsv(items, columns);
  if (file === "-") stdout.write(text);
  else {
    await writeFile(file, text);
    stderr.write(`${file} holds ${items.length} row${items.length === 1 ? "" : "s"}\n`);
  }
}
