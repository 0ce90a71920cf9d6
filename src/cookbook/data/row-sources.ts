import { TinkerError, ValidationError } from "../../errors.js";
import { wrongValue } from "../../wire/index.js";
import type { ReadRow } from "./conversation.js";
import { type RowShape, readLine, readRow } from "./read-row.js";
import { listRows, mapRows, type Source } from "./rows.js";

/** One or more files (also with `*`, a weight, or of the Hub, as `conversations` explains), or rows in an array or iterable. */
export type RowsFrom<RowLike> = string | readonly string[] | Iterable<RowLike> | AsyncIterable<RowLike>;

/**
 * Rows of one kind. Reading an invalid row throws an error that names it. `columns` are read from tables besides those
 * with a known name.
 */
export function rowsFrom<Row>(
  from: RowsFrom<unknown>,
  shape: RowShape<Row>,
  columns: readonly string[] = [],
): Source<Row> {
  const rows = checkedRows(from, shape, columns);
  return {
    open: async () => {
      const opened = await rows.open();
      const formats = new Set<string>();
      const right = mapRows(opened, (row, index) => {
        if (row.format !== undefined) formats.add(row.format);
        return rightRow(row, opened.place(index));
      });
      return { ...right, formats };
    },
  };
}

function rightRow<Row>({ row, problems }: ReadRow<Row>, place: string): Row {
  if (problems === undefined) return row as Row;
  const [first, ...others] = problems;
  const more = others.length === 0 ? "" : ` (and ${others.length} more in this row)`;
  throw new ValidationError(first!.field, `${place}: ${first!.message}${more}`);
}

/** Rows with all their problems, instead of an error at the first problem. */
export function checkedRows<Row>(
  from: RowsFrom<unknown>,
  shape: RowShape<Row>,
  columns: readonly string[] = [],
): Source<ReadRow<Row>> {
  if (typeof from === "string") return fileRows([from], shape, columns);
  if (!Array.isArray(from)) return iterableRows(checkIterable(from), shape);
  const items: readonly unknown[] = from;
  if (items.length === 0 || !items.every((item) => typeof item === "string")) {
    return { open: async () => mapRows(listRows(items), (row) => readRow(row, shape)) };
  }
  return fileRows(items, shape, columns);
}

function fileRows<Row>(
  names: readonly string[],
  shape: RowShape<Row>,
  columns: readonly string[],
): Source<ReadRow<Row>> {
  return {
    open: async () => {
      const { openFiles } = await import("./named-files.node.js");
      return mapRows(await openFiles(names, columns), (line) => readLine(line, shape));
    },
  };
}

function checkIterable(from: unknown): Iterable<unknown> | AsyncIterable<unknown> {
  const isObject = typeof from === "object" && from !== null;
  if (isObject && (Symbol.iterator in from || Symbol.asyncIterator in from)) {
    return from as Iterable<unknown> | AsyncIterable<unknown>;
  }
  throw wrongValue("from", "a file, a list of files, or rows", from);
}

/** More rows than this are kept on disk. */
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
        const spilt = await spillRows(following(first, rows), "");
        return mapRows(spilt, (line) => readLine(line, shape));
      }
      return mapRows(listRows(first), (row) => readRow(row, shape));
    },
  };
}

/** Generators have `next`, web streams `getReader`, Node's streams `pipe`. */
const ONE_SHOT = ["next", "getReader", "pipe"];

async function* following(first: readonly unknown[], rest: Iterable<unknown> | AsyncIterable<unknown>) {
  yield* first;
  yield* rest;
}
