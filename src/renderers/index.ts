/** Conversations in the tokens of each family of models: prompts, examples with their weights, answers read back. */
export type { AnswerShape, CallForm, FixedShape, MemberForm, MembersShape } from "./answer-shape.js";
export { beginPrompt, type ConversationPrompt, continuePrompt } from "./conversation-prompt.js";
export {
  type ContentPart,
  type ImagePart,
  type Message,
  type TextPart,
  type ThinkingPart,
  type ToolCall,
  type ToolDeclaration,
  textOf,
  thinkingOf,
  type UnparsedToolCall,
} from "./messages.js";
export { classifyParseFailure, type ParseFailure } from "./parsing.js";
export type { Piece } from "./pieces.js";
export type { JsonObject, JsonValue } from "./python-json.js";
export {
  getRenderer,
  type RendererFactory,
  type RendererOptions,
  registerRenderer,
  rendererNames,
} from "./registry.js";
export {
  type ParsedResponse,
  type ParseTermination,
  type PromptOptions,
  type RenderContext,
  type RenderedMessage,
  Renderer,
  type RendererTokenizer,
  type SupervisedExample,
  type TrainOn,
} from "./renderer.js";
export { type MessageDelta, type StreamFormat, StreamParser } from "./stream-parser.js";
export { type TemplateRendererOptions, templateRenderer } from "./template.js";
export type { ReasoningEffort, Thinking } from "./thinking.js";
