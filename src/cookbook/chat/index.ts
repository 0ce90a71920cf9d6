/** Text in, text out: a conversation is rendered, sampled and parsed into a message with its tokens. */
export * from "./chat.js";
export * from "./chat-stream.js";
export * from "./renderer-of.js";
