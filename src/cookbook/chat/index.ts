/** Text in, text out: a conversation is rendered, sampled and read back as a message with its tokens. */
export { type ChatAnswer, type ChatOptions, type ChatSample, chat, isContextOverflow } from "./chat.js";
export { type ChatDelta, chatStream } from "./chat-stream.js";
export { type ChatSampler, rendererFor, rendererOf } from "./renderer-of.js";
