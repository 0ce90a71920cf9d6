import { type Message, textOf } from "../renderers/messages.js";
import { withoutAnthropicExtras } from "./anthropic-left-out.js";
import { anthropicAnswer, anthropicMessages } from "./anthropic-request.js";
import { withoutChatExtras } from "./chat-left-out.js";
import type { SentConversation } from "./chat-model.js";
import { openAiAnswer, openAiMessages } from "./chat-request.js";
import { isObject, type Refuse } from "./lenience.js";
import { checkBody, type JsonFields } from "./param-error.js";
import { History, withIds } from "./responses/history.js";
import { readItems } from "./responses/input.js";
import { readableItems } from "./responses/left-out.js";
import { readResponseRequest } from "./responses/read-request.js";
import { inputSchema, responseConversation } from "./responses/request.js";
import type { ResponseStore } from "./responses/store.js";

/** An API whose requests hold conversations. */
export type ConversationApi = "chat" | "messages" | "responses";

/** An answer of another service. */
export interface ServiceAnswer {
  readonly message: Message;
  /** Ids that it may come back with, besides those of its calls. */
  readonly ids: readonly string[];
  /** Why it ended, in the service's words. */
  readonly stopReason: string;
}

/** A request that another service answers, read to be remembered. */
export interface PassedRequest {
  readonly conversation: SentConversation;
  /** Reads the service's answers from its body. Throws for a body that is none. */
  answers(body: JsonFields): readonly ServiceAnswer[];
}

/** Parts that models here cannot read, such as images, are remembered as notes. */
const leaveOut: Refuse = () => {};

/**
 * Reads a request that another service answers. Throws where it holds no conversation. Responses are stored, so that a
 * later request can name them.
 */
export function readPassedRequest(
  api: ConversationApi,
  body: JsonFields,
  stored: { readonly responses: ResponseStore; readonly owner: string },
): PassedRequest {
  switch (api) {
    case "chat":
      return { conversation: openAiMessages(withoutChatExtras(body, leaveOut)), answers: chatAnswers };
    case "messages":
      return {
        conversation: anthropicMessages(withoutAnthropicExtras(body, leaveOut), leaveOut),
        answers: messageAnswers,
      };
    case "responses": {
      const { responses, owner } = stored;
      const history = new History(responses, owner);
      const { request, items, added } = readResponseRequest(body, history, leaveOut);
      const { conversation } = responseConversation(request, items, leaveOut);
      return {
        conversation,
        answers: (response) => {
          const { id } = response;
          if (typeof id === "string" && request.store !== false)
            responses.add(owner, {
              response: { ...response, id },
              input: withIds(added),
              output: withIds(listOf(response["output"])),
              previousId: request.previous_response_id ?? undefined,
            });
          return responseAnswers(response);
        },
      };
    }
    default:
      return api satisfies never;
  }
}

function chatAnswers(body: JsonFields): ServiceAnswer[] {
  return listOf(body["choices"]).map((choice) => ({
    message: openAiAnswer(isObject(choice["message"]) ? choice["message"] : {}),
    ids: [],
    stopReason: String(choice["finish_reason"] ?? ""),
  }));
}

function messageAnswers(body: JsonFields): ServiceAnswer[] {
  const content = listOf(body.content).filter(({ type }) => READ_BLOCKS.includes(String(type)));
  return [{ ...anthropicAnswer({ content }), stopReason: String(body["stop_reason"] ?? "") }];
}

/** Text, thoughts and calls of an Anthropic message, without the service's own blocks, such as searches. */
const READ_BLOCKS = ["text", "thinking", "tool_use"];

/** Items of one answer become one message; where the service used tools of its own in between, the last one counts. */
function responseAnswers(response: JsonFields): ServiceAnswer[] {
  const items = checkBody({ input: readableItems(listOf(response["output"]), leaveOut) }, inputSchema).input;
  const { messages, ids } = readItems(items, leaveOut);
  const message = messages.at(-1) ?? { role: "assistant", content: "" };
  return [{ message, ids: ids.get(message) ?? [], stopReason: String(response["status"] ?? "") }];
}

/** The text and calls of an answer as the client receives them. */
export function givenAnswerOf({ message, ids }: ServiceAnswer) {
  return { text: textOf(message), calls: message.toolCalls ?? [], ids };
}

function listOf(value: unknown): JsonFields[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}
