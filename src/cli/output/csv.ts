import { writeFile } from "node:fs/promises";
import type { CommandContext } from "../context.js";
import { type Cell, type Column, cellOf } from "./columns.js";
import { printableLines } from "./text.js";

/** RFC 4180, but with the line ends of this platform. */
export function renderCsv<T>(items: readonly T[], columns: readonly Column<T>[]): string {
  const rows = [
    columns.map(({ name }) => name),
    ...items.map((item) => columns.map((column) => cellOf(column, item))),
  ];
  return rows.map((row) => `${row.map(quote).join(",")}\n`).join("");
}

function quote(cell: Cell): string {
  const text = printableLines(
    cell === null || cell === undefined ? "" : typeof cell === "object" ? cell.join(";") : String(cell),
  );
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Writes CSV to a file, or to standard output for "-". */
export async function writeCsv<T>(
  { stdout, notify }: CommandContext,
  file: string,
  items: readonly T[],
  columns: readonly Column<T>[],
): Promise<void> {
  const text = renderCsv(items, columns);
  if (file === "-") stdout.write(text);
  else {
    await writeFile(file, text);
    notify(`${file} holds ${items.length} row${items.length === 1 ? "" : "s"}`);
  }
}
