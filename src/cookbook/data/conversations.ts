import * as f from "../../wire/fields/index.js";
import { type Conversation, ROW_FORMATS } from "./conversation.js";
import { conversationShape, FIELD_NAMES, questionShape, type RowNames } from "./row-formats.js";
import { type RowsFrom, rowsFrom } from "./row-sources.js";
import type { Source } from "./rows.js";

/** Source of conversations, for training or evaluation. */
export type ConversationSource = Source<Conversation>;

/** A row in code: a conversation, or an object with the fields of a file's line. */
export type ConversationLike = Conversation | Readonly<Record<string, unknown>>;

/** One or more files, or rows in an array or iterable. */
export type ConversationsFrom = RowsFrom<ConversationLike>;

/** How rows are read, where their format or columns are not recognized. */
export interface ConversationsOptions extends RowNames {}

const columns = f.customField((given, path): Readonly<Record<string, string>> => {
  f.checkObject(given, path);
  f.checkKeys(given, new Set(FIELD_NAMES), path);
  for (const [field, column] of Object.entries(given)) f.text.check(column, `${path}.${field}`);
  return given as Readonly<Record<string, string>>;
});

/** The option table of `conversations` and `questions`. */
export const CONVERSATIONS_OPTIONS = f.optionTable({
  format: f.option(f.optional(f.oneOf(...ROW_FORMATS)), "format of the rows", {
    otherwise: "recognized by their fields",
  }),
  columns: f.option(f.optional(columns), "columns of other names, as prompt=NAME,completion=NAME"),
} satisfies f.OptionsOf<ConversationsOptions>);

/**
 * Reads conversations from files or from rows in code. Files are `.jsonl`, `.json` (a list), `.csv`, `.tsv`, `.parquet`,
 * also zipped (`.gz`), or data sets of the Hugging Face Hub: `hf:OWNER/NAME`, with `@REVISION`, `/CONFIG` and `:SPLIT`
 * behind it where needed. A name may have `*`, and a weight behind it: `conversations(["a/*.jsonl=3", "b.csv=1"])` mixes
 * them in these shares. A row is `{ messages, tools? }` in OpenAI's format, a conversation of ShareGPT's, Alpaca's
 * `{ instruction, input, output }`, or `{ prompt, completion }`. JSON lines, lists and CSV may be larger than memory;
 * nothing is read before it is needed.
 */
export function conversations(
  from: ConversationsFrom,
  options: ConversationsOptions = {},
): ConversationSource {
  const names = CONVERSATIONS_OPTIONS.check(options, "conversations");
  return rowsFrom(from, conversationShape(names), columnsOf(names));
}

/** Reads questions from files or rows: conversations, and rows with a `prompt` and no answer. */
export function questions(from: ConversationsFrom, options: ConversationsOptions = {}): ConversationSource {
  const names = CONVERSATIONS_OPTIONS.check(options, "questions");
  return rowsFrom(from, questionShape(names), columnsOf(names));
}

/** The columns that the user named. */
export function columnsOf({ columns: named }: RowNames): readonly string[] {
  return Object.values(named ?? {});
}
