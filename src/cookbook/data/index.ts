/** Conversations from files or code, in an order that the number of a step decides, as the data of a training step. */
export { type Batches, type BatchOptions, batches } from "./batches.js";
export type { Conversation, RowProblem } from "./conversation.js";
export {
  type ConversationLike,
  type ConversationSource,
  type ConversationsFrom,
  conversations,
  questions,
} from "./conversations.js";
export { type DatumOptions, datumFromExample, toExamples } from "./examples.js";
export { interleave, type MixedSource } from "./interleave.js";
export type { RowsFrom } from "./row-sources.js";
export type { OpenRows, Rows, Source } from "./rows.js";
export { defaultTestSize, type Split, type SplitOptions, split } from "./split.js";
