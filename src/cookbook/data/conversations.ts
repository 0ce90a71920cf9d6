import { TinkerError, ValidationError } from "../../errors.js";
import { wrongValue } from "../../wire/index.js";
import type { Conversation, ReadRow } from "./conversation.js";
import { readLine, readRow } from "./read-row.js";
import { joinRows, listRows, mapRows, type OpenRows, openAll, type Source } from "./rows.js";

/** Where conversations come from. */
export type ConversationSource = Source<Conversation>;

/** A row as it may be given in code: a conversation, or what a line of a file would hold. */
export type ConversationLike = Conversation | Readonly<Record<string, unknown>>;

/** One file or several, or rows: in a list, or one after the other. */
export type ConversationsFrom =
  | string
  | readonly string[]
  | Iterable<ConversationLike>
  | AsyncIterable<ConversationLike>;

/**
 * Conversations from files (`.jsonl`, `.jsonl.gz`, `.parquet`) or from rows in code. A row is `{ messages, tools? }` as
 * OpenAI writes it, or `{ prompt, completion }`. Files may be larger than memory; nothing is read before it is needed.
 */
export function conversations(from: ConversationsFrom): ConversationSource {
  const rows = checkedRows(from);
  return {
    open: async () => {
      const opened = await rows.open();
      return mapRows(opened, (row, index) => conversationOf(row, opened.place(index)));
    },
  };
}

function conversationOf({ conversation, problems }: ReadRow, place: string): Conversation {
  if (conversation !== undefined) return conversation;
  const [first, ...others] = problems;
  const more = others.length === 0 ? "" : ` (and ${others.length} more in this row)`;
  throw new ValidationError(first!.field, `${place}: ${first!.message}${more}`);
}

/** The same rows, each with all that is wrong in it instead of an error at the first. */
export function checkedRows(from: ConversationsFrom): Source<ReadRow> {
  if (typeof from === "string") return fileRows(from);
  if (!Array.isArray(from)) return iterableRows(checkIterable(from));
  const items: readonly unknown[] = from;
  if (items.length === 0 || !items.every((item) => typeof item === "string")) {
    return { open: async () => mapRows(listRows(items), readRow) };
  }
  return { open: async () => oneAfterTheOther(await openAll(items.map(fileRows))) };
}

function fileRows(path: string): Source<ReadRow> {
  return {
    open: async () => {
      const { openFile } = await import("./files.node.js");
      return mapRows(await openFile(path), readLine);
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

function iterableRows(from: Iterable<unknown> | AsyncIterable<unknown>): Source<ReadRow> {
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
        return mapRows(await spillRows(following(first, rows), (number) => `row ${number}`), readLine);
      }
      return mapRows(listRows(first), readRow);
    },
  };
}

/** Generators have `next`, streams of the web `getReader`, those of Node `pipe`. */
const ONE_SHOT = ["next", "getReader", "pipe"];

async function* following(first: readonly unknown[], rest: Iterable<unknown> | AsyncIterable<unknown>) {
  yield* first;
  yield* rest;
}
