import type { Context, Env } from "hono";
import type { Message, ToolCall } from "../renderers/messages.js";
import type { ConversationError } from "../renderers/prepare-answer.js";
import type { ChatHost } from "./chat-host.js";
import type { SentConversation } from "./chat-model.js";
import type { JsonFields, ParamError } from "./param-error.js";

/** Called for each field that cannot be honoured: throws it, or records it so that the field is left out. */
export type Refuse = (error: ParamError) => void;

/** How a host handles fields that a model cannot honour. */
export function refuseOf<E extends Env>(host: ChatHost<E>, call: Context<E>): Refuse {
  if (host.onIgnored === undefined)
    return (error) => {
      throw error;
    };
  return ({ param, message }) => host.onIgnored?.(call, { param: param ?? "body", message });
}

/** The conversation without the part that could not be prepared; undefined if nothing remains. */
export function withoutField(
  conversation: SentConversation,
  { field }: ConversationError,
): SentConversation | undefined {
  switch (field) {
    case "thinking":
      return conversation.thinking === undefined ? undefined : { ...conversation, thinking: undefined };
    case "toolChoice":
      return conversation.toolChoice === undefined ? undefined : { ...conversation, toolChoice: undefined };
    case "responseFormat":
      return withFormatAsText(conversation);
    case "tools":
      return conversation.tools === undefined ? undefined : { ...conversation, tools: undefined };
    case "messages":
      return withSimplerMessages(conversation);
    default:
      return field satisfies never;
  }
}

/** The answer format is requested in words. */
function withFormatAsText(conversation: SentConversation): SentConversation | undefined {
  const { responseFormat: format, messages } = conversation;
  if (format === undefined) return undefined;
  const wish =
    format.type === "json_object"
      ? "Answer with a JSON object and nothing else."
      : `Answer with JSON that fits this schema, and nothing else: ${JSON.stringify(format.schema)}`;
  const [first, ...others] = messages;
  const isSystem = first?.role === "system" && typeof first.content === "string";
  return {
    ...conversation,
    responseFormat: undefined,
    messages: isSystem
      ? [{ ...first, content: `${first.content}\n\n${wish}` }, ...others]
      : [{ role: "system", content: wish }, ...messages],
  };
}

/** System messages after the first become user messages, and arguments that are not a JSON object become one. */
function withSimplerMessages(conversation: SentConversation): SentConversation | undefined {
  const ids = new Map(conversation.ids);
  let isChanged = false;
  const messages = conversation.messages.map((message, index): Message => {
    const isLate = message.role === "system" && index > 0;
    const calls = message.toolCalls ?? [];
    if (!isLate && calls.every(hasObject)) return message;
    isChanged = true;
    const simpler: Message = isLate
      ? { ...message, role: "user" }
      : { ...message, toolCalls: calls.map((call) => (hasObject(call) ? call : wrapped(call))) };
    const known = ids.get(message);
    if (known !== undefined) ids.set(simpler, known);
    return simpler;
  });
  return isChanged ? { ...conversation, messages, ids } : undefined;
}

function wrapped(call: ToolCall): ToolCall {
  return { ...call, arguments: JSON.stringify({ arguments: call.arguments }) };
}

function hasObject({ arguments: given }: ToolCall): boolean {
  try {
    return isObject(JSON.parse(given));
  } catch {
    return false;
  }
}

/** Whether a value is a JSON object. */
export function isObject(value: unknown): value is JsonFields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
