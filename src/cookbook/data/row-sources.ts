import { TinkerError, ValidationError } from "../../errors.js";
import { wrongValue } from "../../wire/index.js";
import type { ReadRow } from "./conversation.js";
import { type RowShape, readLine, readRow } from "./read-row.js";
import { joinRows, listRows, mapRows, type OpenRows, openAll, type Source } from "./rows.js";

/** One file or several (`.jsonl`, `.jsonl.gz`, `.parquet`), or rows: in a list, or one after the other. */
export type RowsFrom<RowLike> = string | readonly string[] | Iterable<RowLike> | AsyncIterable<RowLike>;

/** Rows of one kind. Reading one that is wrong throws, and names it. */
export function rowsFrom<Row>(from: RowsFrom<unknown>, shape: RowShape<Row>): Source<Row> {
  const rows = checkedRows(from, shape);
  return {
    open: async () => {
      const opened = await rows.open();
      return mapRows(opened, (row, index) => rightRow(row, opened.place(index)));
    },
  };
}

function rightRow<Row>({ row, problems }: ReadRow<Row>, place: string): Row {
  if (problems === undefined) return row as Row;
  const [first, ...others] = problems;
  const more = others.length === 0 ? "" : ` (and ${others.length} more in this row)`;
  throw new ValidationError(first!.field, `${place}: ${first!.message}${more}`);
}

/** The same rows, each with all that is wrong in it instead of an error at the first. */
export function checkedRows<Row>(from: RowsFrom<unknown>, shape: RowShape<Row>): Source<ReadRow<Row>> {
  if (typeof from === "string") return fileRows(from, shape);
  if (!Array.isArray(from)) return iterableRows(checkIterable(from), shape);
  const items: readonly unknown[] = from;
  if (items.length === 0 || !items.every((item) => typeof item === "string")) {
    return { open: async () => mapRows(listRows(items), (row) => readRow(row, shape)) };
  }
  return { open: async () => oneAfterTheOther(await openAll(items.map((path) => fileRows(path, shape)))) };
}

function fileRows<Row>(path: string, shape: RowShape<Row>): Source<ReadRow<Row>> {
  return {
    open: async () => {
      const { openFile } = await import("./files.node.js");
      return mapRows(await openFile(path), (line) => readLine(line, shape));
    },
  };
}

function oneAfterTheOther<T>(parts: readonly OpenRows<T>[]): OpenRows<T> {
  const length = parts.reduce((sum, rows) => sum + rows.length, 0);
  const partAt = new Uint32Array(length);
  const rowAt = new Uint32Array(length);
  let start = 0;
  for (const [part, rows] of parts.entries()) {
    const end = start + rows.length;
    partAt.fill(part, start, end);
    for (let position = start; position < end; position += 1) rowAt[position] = position - start;
    start = end;
  }
  return joinRows(parts, partAt, rowAt);
}

function checkIterable(from: unknown): Iterable<unknown> | AsyncIterable<unknown> {
  const isObject = typeof from === "object" && from !== null;
  if (isObject && (Symbol.iterator in from || Symbol.asyncIterator in from)) {
    return from as Iterable<unknown> | AsyncIterable<unknown>;
  }
  throw wrongValue("from", "a file, a list of files, or rows", from);
}

/** More than these are kept on disk. */
const MAX_ROWS_IN_MEMORY = 10_000;

function iterableRows<Row>(
  from: Iterable<unknown> | AsyncIterable<unknown>,
  shape: RowShape<Row>,
): Source<ReadRow<Row>> {
  let isSpent = false;
  return {
    open: async () => {
      if (isSpent) {
        throw new TinkerError(
          "These rows were read already, and can be read only once: give a list or a file.",
        );
      }
      isSpent = ONE_SHOT.some((name) => name in from);
      const rows = following([], from);
      const first: unknown[] = [];
      for (let next = await rows.next(); !next.done; next = await rows.next()) {
        first.push(next.value);
        if (first.length <= MAX_ROWS_IN_MEMORY) continue;
        const { spillRows } = await import("./spill.node.js");
        const spilt = await spillRows(following(first, rows), (number) => `row ${number}`);
        return mapRows(spilt, (line) => readLine(line, shape));
      }
      return mapRows(listRows(first), (row) => readRow(row, shape));
    },
  };
}

/** Generators have `next`, streams of the web `getReader`, those of Node `pipe`. */
const ONE_SHOT = ["next", "getReader", "pipe"];

async function* following(first: readonly unknown[], rest: Iterable<unknown> | AsyncIterable<unknown>) {
  yield* first;
  yield* rest;
}
