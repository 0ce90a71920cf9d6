/** Conversations from files or code, in an order that the step number decides, as the data of a training step. */
export * from "./batches.js";
export * from "./conversation.js";
export * from "./conversations.js";
export * from "./examples.js";
export * from "./interleave.js";
export * from "./row-sources.js";
export * from "./rows.js";
export * from "./split.js";
