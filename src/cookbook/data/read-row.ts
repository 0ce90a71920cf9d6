import { messageOf } from "../../errors.js";
import type { Message } from "../../renderers/index.js";
import { readPythonJson } from "../../renderers/python-json.js";
import type { Conversation, ReadRow } from "./conversation.js";
import { type Fields, isAbsent, RowReader } from "./row-reader.js";

/** Makes one kind of row of its fields. What it makes of a row that has problems is not used. */
export type RowShape<Row> = (fields: Fields, reader: RowReader) => Row;

const UTF8 = new TextDecoder("utf-8", { fatal: true });

/** Reads a line of a file. */
export function readLine<Row>(line: Uint8Array, shape: RowShape<Row>): ReadRow<Row> {
  let text: string;
  try {
    text = UTF8.decode(line).trimEnd();
  } catch {
    return rowProblem("the row is not UTF-8");
  }
  try {
    return readRow(readPythonJson(text), shape);
  } catch (error) {
    // The first line of a file that is one list, written for people.
    const advice = text === "[" || text === "{" ? ": a file holds one row a line" : "";
    return rowProblem(`the row is not JSON: ${messageOf(error)}${advice}`);
  }
}

const rowProblem = (message: string) => ({ problems: [{ field: "", message }] });

/** Reads a row; what it holds besides is left alone. */
export function readRow<Row>(row: unknown, shape: RowShape<Row>): ReadRow<Row> {
  const reader = new RowReader();
  const fields = reader.record(row, "");
  if (fields === undefined) return { problems: reader.problems };
  const made = shape(fields, reader);
  return reader.problems.length === 0 ? { row: made } : { problems: reader.problems };
}

/** A conversation in OpenAI's shape, the Python cookbook's or ours. */
export const conversationShape: RowShape<Conversation> = (fields, reader) => {
  const tools = reader.tools(fields);
  return { messages: messagesOf(fields, reader), ...(tools && { tools }) };
};

/** The same, and a `prompt` that nobody has answered. */
export const questionShape: RowShape<Conversation> = (fields, reader) => {
  const isUnanswered = isAbsent(fields["messages"]) && isAbsent(fields["completion"]);
  return isUnanswered && !isAbsent(fields["prompt"])
    ? { messages: reader.spoken(fields["prompt"], "prompt", "user") }
    : conversationShape(fields, reader);
};

function messagesOf(fields: Fields, reader: RowReader): readonly Message[] {
  if (!isAbsent(fields["messages"])) return reader.messages(fields["messages"], "messages");
  if (isAbsent(fields["prompt"]) && isAbsent(fields["completion"])) {
    reader.missing("messages", "messages is missing, and so are prompt and completion", fields);
    return [];
  }
  return [
    ...reader.spoken(fields["prompt"], "prompt", "user"),
    ...reader.spoken(fields["completion"], "completion", "assistant"),
  ];
}
