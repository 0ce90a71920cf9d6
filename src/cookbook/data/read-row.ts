import { messageOf } from "../../errors.js";
import { readPythonJson } from "../../renderers/python-json.js";
import type { ReadRow } from "./conversation.js";
import { type Fields, RowReader } from "./row-reader.js";

/** Builds one kind of row from its fields. The result is ignored if the row has problems. */
export type RowShape<Row> = (fields: Fields, reader: RowReader) => Row;

const UTF8 = new TextDecoder("utf-8", { fatal: true });

/** Reads a line of a file. */
export function readLine<Row>(line: Uint8Array, shape: RowShape<Row>): ReadRow<Row> {
  let text: string;
  try {
    text = UTF8.decode(line).trimEnd();
  } catch {
    return rowProblem("the row is not UTF-8: save the file as UTF-8");
  }
  try {
    return readRow(readPythonJson(text), shape);
  } catch (error) {
    // The first line of a file that contains one indented JSON list.
    const advice = text === "[" || text === "{" ? ": a file holds one row a line" : "";
    return rowProblem(`the row is not JSON: ${messageOf(error)}${advice}`);
  }
}

const rowProblem = (message: string) => ({ problems: [{ field: "", message }] });

/** Reads a row; unknown fields are ignored. */
export function readRow<Row>(row: unknown, shape: RowShape<Row>): ReadRow<Row> {
  const reader = new RowReader();
  const fields = reader.record(row, "");
  if (fields === undefined) return { problems: reader.problems };
  const made = shape(fields, reader);
  const { format, problems } = reader;
  const named = format === undefined ? {} : { format };
  return problems.length === 0 ? { row: made, ...named } : { problems, ...named };
}
