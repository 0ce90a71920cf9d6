import type { Conversation } from "./conversation.js";
import { conversationShape, questionShape } from "./read-row.js";
import { type RowsFrom, rowsFrom } from "./row-sources.js";
import type { Source } from "./rows.js";

/** Where conversations come from. */
export type ConversationSource = Source<Conversation>;

/** A row as it may be given in code: a conversation, or what a line of a file would hold. */
export type ConversationLike = Conversation | Readonly<Record<string, unknown>>;

/** One file or several, or rows: in a list, or one after the other. */
export type ConversationsFrom = RowsFrom<ConversationLike>;

/**
 * Conversations from files (`.jsonl`, `.jsonl.gz`, `.parquet`) or from rows in code. A row is `{ messages, tools? }` as
 * OpenAI writes it, or `{ prompt, completion }`. Files may be larger than memory; nothing is read before it is needed.
 */
export function conversations(from: ConversationsFrom): ConversationSource {
  return rowsFrom(from, conversationShape);
}

/** What a model is asked, from the same places: conversations, and rows with a `prompt` that nobody has answered. */
export function questions(from: ConversationsFrom): ConversationSource {
  return rowsFrom(from, questionShape);
}
