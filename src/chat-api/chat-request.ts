import { z } from "zod";
import type { ContentPart, Message } from "../renderers/messages.js";
import type { ResponseFormat } from "../renderers/prepare-answer.js";
import { REASONING_EFFORTS } from "../renderers/thinking.js";
import type { SentConversation } from "./chat-model.js";
import { MAX_TOP_LOGPROBS, samplingFields } from "./openai-request.js";
import { checkBody, type JsonFields, MAX_TOOLS, type ParamNames, toolName } from "./param-error.js";

const textPart = z.object({ type: z.literal("text"), text: z.string() });
const content = z
  .union([z.string(), z.array(textPart)], { error: "must be a text or a list of parts of type text" })
  .transform((parts) => (typeof parts === "string" ? parts : parts.map(({ text }) => text).join("")));

const toolCall = z.object({
  id: z.string(),
  type: z.literal("function").optional(),
  function: z.object({ name: z.string().min(1), arguments: z.string() }),
});

const message = z.discriminatedUnion("role", [
  z.object({ role: z.enum(["system", "developer", "user"]), content }),
  z.object({
    role: z.literal("assistant"),
    content: content.nullish(),
    reasoning_content: z.string().nullish(),
    tool_calls: z.array(toolCall).nullish(),
  }),
  z.object({ role: z.literal("tool"), content, tool_call_id: z.string(), name: z.string().nullish() }),
]);

const declaration = z.object({
  type: z.literal("function"),
  function: z.object({
    name: toolName,
    description: z.string().nullish(),
    parameters: z.record(z.string(), z.unknown()).nullish(),
  }),
});

/** A request for a chat completion. */
export const chatSchema = z.object({
  ...samplingFields,
  messages: z.array(message).min(1),
  max_tokens: z.number().int().positive().nullish(),
  max_completion_tokens: z.number().int().positive().nullish(),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.number().int().min(0).max(MAX_TOP_LOGPROBS).nullish(),
  tools: z.array(declaration).max(MAX_TOOLS).nullish(),
  tool_choice: z
    .union([
      z.enum(["none", "auto", "required"]),
      z.object({ type: z.literal("function"), function: z.object({ name: z.string() }) }),
    ])
    .nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  reasoning_effort: z.enum(REASONING_EFFORTS).nullish(),
  chat_template_kwargs: z.object({ enable_thinking: z.boolean().optional() }).strict().nullish(),
  response_format: z
    .discriminatedUnion("type", [
      z.object({ type: z.literal("text") }),
      z.object({ type: z.literal("json_object") }),
      z.object({ type: z.literal("json_schema"), json_schema: z.object({ schema: z.unknown() }) }),
    ])
    .nullish(),
});

/** A request for a chat completion, as it was read. */
export type ChatRequest = z.output<typeof chatSchema>;

/** OpenAI's names for the fields of a conversation. */
export function openAiParamNames({ reasoning_effort: effort }: ChatRequest): ParamNames {
  return {
    messages: "messages",
    tools: "tools",
    toolChoice: "tool_choice",
    thinking: effort ? "reasoning_effort" : "chat_template_kwargs.enable_thinking",
    responseFormat: "response_format",
  };
}

/** The conversation of a request. */
export function openAiConversation(request: ChatRequest): SentConversation {
  const { tools, tool_choice: choice, response_format: format } = request;
  const messages = readMessages(request);
  return {
    messages,
    ids: callIdsOf(messages),
    tools: tools?.map(({ function: { name, description, parameters } }) => ({
      name,
      description: description ?? "",
      parameters: parameters ?? { type: "object", properties: {} },
    })),
    toolChoice: typeof choice === "object" ? choice?.function : choice,
    maxToolCalls: request.parallel_tool_calls === false ? 1 : undefined,
    thinking: request.reasoning_effort ?? request.chat_template_kwargs?.enable_thinking,
    stop: [request.stop ?? []].flat(),
    responseFormat: formatOf(format),
  };
}

const askedSchema = chatSchema.pick({ model: true, messages: true, tools: true });

/** Reads the conversation of a request for another service, and ignores its settings. */
export function openAiMessages({ model, messages, tools }: JsonFields): SentConversation {
  return openAiConversation(checkBody({ model, messages, tools }, askedSchema));
}

const answerSchema = z.object({ messages: z.array(message).length(1) });

/** The message of an answer of another service. */
export function openAiAnswer(given: object): Message {
  return readMessages(checkBody({ messages: [{ ...given, role: "assistant" }] }, answerSchema))[0]!;
}

/** The ids of the tool calls in each message of a conversation. */
export function callIdsOf(messages: readonly Message[]): Map<Message, readonly string[]> {
  const calling = messages.filter(({ toolCalls }) => toolCalls !== undefined);
  return new Map(
    calling.map((message) => [
      message,
      message.toolCalls!.flatMap(({ id }) => (id === undefined ? [] : [id])),
    ]),
  );
}

function formatOf(format: ChatRequest["response_format"]): ResponseFormat | undefined {
  if (!format || format.type === "text") return undefined;
  return format.type === "json_object" ? format : { type: "json_schema", schema: format.json_schema.schema };
}

function readMessages(request: Pick<ChatRequest, "messages">): readonly Message[] {
  const calledNames = new Map<string, string>();
  return request.messages.map((given): Message => {
    switch (given.role) {
      case "developer":
        return { role: "system", content: given.content };
      case "tool": {
        const { tool_call_id: toolCallId } = given;
        const name = given.name ?? calledNames.get(toolCallId);
        return { role: "tool", content: given.content, toolCallId, name };
      }
      case "assistant": {
        const { reasoning_content: thinking, tool_calls: calls } = given;
        for (const { id, function: called } of calls ?? []) calledNames.set(id, called.name);
        const text: ContentPart = { type: "text", text: given.content ?? "" };
        return {
          role: "assistant",
          content: thinking ? [{ type: "thinking", thinking }, text] : text.text,
          ...(calls?.length && {
            toolCalls: calls.map(({ id, function: called }) => ({ id, ...called })),
          }),
        };
      }
      default:
        return given;
    }
  });
}
