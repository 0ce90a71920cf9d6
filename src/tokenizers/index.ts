/** Text to tokens and back: finds a model's tokenizer, loads it once, and writes conversations with its chat template. */
export type { ChatMessage, ChatTemplateOptions } from "./chat-template.js";
export { DecodeStream } from "./decode-stream.js";
export type { TokenizerFiles } from "./files.js";
export { type LoadTokenizerOptions, loadTokenizer, tokenizerForModel } from "./load.js";
export { modelInputFromText } from "./model-input-from-text.js";
export { resolveTokenizerId, type TokenizerModel, type TokenizerReference } from "./resolve-id.js";
export type { DecodeOptions, EncodeOptions, TextTokenizer } from "./text-tokenizer.js";
export { Tokenizer } from "./tokenizer.js";
