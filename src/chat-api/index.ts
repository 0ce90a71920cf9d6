/** OpenAI's and Anthropic's APIs over any model that can be sampled. */
export { anthropicDialect } from "./anthropic-errors.js";
export { addAnthropicRoutes } from "./anthropic-messages.js";
export type { ChatHost, ChatModels, IgnoredField, ModelEntry } from "./chat-host.js";
export type {
  ChatModel,
  ChatTurn,
  FinishedAnswer,
  PlainPrompt,
  PromptEvent,
  SentConversation,
} from "./chat-model.js";
export { openAiDialect } from "./openai-errors.js";
export { addOpenAiRoutes } from "./openai-routes.js";
export { invalidValue, ParamError } from "./param-error.js";
export { type ConversationApi, givenAnswerOf, readPassedRequest } from "./passed-requests.js";
export { PromptTooLongError, roomBehind } from "./prompt-room.js";
export { ResponseStore } from "./responses/store.js";
export { TokenNames } from "./token-names.js";
