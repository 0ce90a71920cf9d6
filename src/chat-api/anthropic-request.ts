import { z } from "zod";
import type { Message } from "../renderers/messages.js";
import type { ModelFormats } from "../renderers/model-formats.js";
import type { ToolChoice } from "../renderers/prepare-answer.js";
import type { ReasoningEffort } from "../renderers/thinking.js";
import type { SentConversation } from "./chat-model.js";
import type { Refuse } from "./lenience.js";
import {
  checkBody,
  invalidValue,
  type JsonFields,
  MAX_TOOLS,
  type ParamNames,
  toolName,
  unsupported,
} from "./param-error.js";

const MAX_STOP_SEQUENCES = 16;
const EFFORTS = ["low", "medium", "high", "xhigh", "max"] as const;

const textBlock = z.object({ type: z.literal("text"), text: z.string() });
const text = z
  .union([z.string(), z.array(textBlock)], { error: "must be a text or a list of blocks of type text" })
  .transform((blocks) => (typeof blocks === "string" ? blocks : blocks.map((block) => block.text).join("")));

const userBlock = z.discriminatedUnion(
  "type",
  [
    textBlock,
    z.object({ type: z.literal("tool_result"), tool_use_id: z.string(), content: text.optional() }),
  ],
  { error: "must be a block of type text or tool_result: this server's models read text only" },
);

const assistantBlock = z.discriminatedUnion(
  "type",
  [
    textBlock,
    z.object({ type: z.literal("thinking"), thinking: z.string(), signature: z.string().nullish() }),
    z.object({
      type: z.literal("tool_use"),
      id: z.string(),
      name: z.string().min(1),
      input: z.record(z.string(), z.unknown()),
    }),
  ],
  { error: "must be a block of type text, thinking or tool_use" },
);

const message = z.discriminatedUnion("role", [
  z.object({ role: z.literal("user"), content: z.union([z.string(), z.array(userBlock)]) }),
  z.object({ role: z.literal("assistant"), content: z.union([z.string(), z.array(assistantBlock)]) }),
  z.object({ role: z.literal("system"), content: text }),
]);

const tool = z.object({
  type: z.literal("custom", { error: "must be custom: this server runs no tools itself" }).nullish(),
  name: toolName,
  description: z.string().nullish(),
  input_schema: z.record(z.string(), z.unknown()),
});

/** A request to count the tokens of a conversation. */
export const countSchema = z.object({
  model: z.string().min(1),
  messages: z.array(message).min(1),
  system: text.nullish(),
  tools: z.array(tool).max(MAX_TOOLS).nullish(),
  tool_choice: z
    .discriminatedUnion("type", [
      z.object({ type: z.enum(["auto", "any"]), disable_parallel_tool_use: z.boolean().nullish() }),
      z.object({
        type: z.literal("tool"),
        name: z.string(),
        disable_parallel_tool_use: z.boolean().nullish(),
      }),
      z.object({ type: z.literal("none") }),
    ])
    .nullish(),
  thinking: z.object({ type: z.enum(["enabled", "adaptive", "disabled"]) }).nullish(),
  output_config: z
    .object({
      effort: z.enum(EFFORTS).nullish(),
      format: z
        .object({ type: z.literal("json_schema"), schema: z.record(z.string(), z.unknown()) })
        .nullish(),
    })
    .nullish(),
});

/** A request for a message. */
export const messagesSchema = countSchema.extend({
  max_tokens: z.number().int().positive(),
  stop_sequences: z.array(z.string().min(1)).max(MAX_STOP_SEQUENCES).nullish(),
  temperature: z.number().min(0).max(1).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  top_k: z.number().int().min(0).nullish(),
  stream: z.boolean().nullish(),
});

/** Fields of the conversation that both requests have. */
export type ConversationRequest = z.output<typeof countSchema>;
/** A request for a message, as it was read. */
export type MessagesRequest = z.output<typeof messagesSchema>;

/** How the request sets thinking; a model that may decide for itself keeps its default. */
const THINKING = { enabled: true, disabled: false, adaptive: undefined } as const;

/** Anthropic's names for the fields of a conversation. */
export function anthropicParamNames(request: ConversationRequest): ParamNames {
  return {
    messages: "messages",
    tools: "tools",
    toolChoice: "tool_choice",
    thinking: effortOf(request) === undefined ? "thinking" : "output_config.effort",
    responseFormat: "output_config.format",
  };
}

/** Turns a request into the conversation of a model. `disabled` has no effect on a model without thinking modes. */
export function anthropicConversation(
  request: ConversationRequest & Partial<MessagesRequest>,
  formats: Pick<ModelFormats, "withThinking">,
  refuse: Refuse,
): SentConversation {
  const { system, tools, tool_choice: choice, output_config: output } = request;
  if (request.messages.at(-1)?.role === "assistant")
    throw unsupported("messages", "must end with a user message: a prefilled answer is not supported.");
  const isSingle = choice && "disable_parallel_tool_use" in choice && choice.disable_parallel_tool_use;
  const { messages, ids } = messagesOf(request, refuse);
  const thinking = effortOf(request) ?? THINKING[request.thinking?.type ?? "adaptive"];
  return {
    messages: [...(system ? [{ role: "system", content: system }] : []), ...messages],
    ids,
    tools: tools?.map(({ name, description, input_schema: parameters }) => ({
      name,
      description: description ?? "",
      parameters,
    })),
    toolChoice: toolChoiceOf(choice),
    maxToolCalls: isSingle ? 1 : undefined,
    thinking: thinking === false && formats.withThinking(false) === undefined ? undefined : thinking,
    stop: request.stop_sequences ?? [],
    responseFormat: output?.format ? { type: "json_schema", schema: output.format.schema } : undefined,
  };
}

/** Reads the conversation of a request for another service, and ignores its settings. */
export function anthropicMessages(
  { model, messages, system, tools }: JsonFields,
  refuse: Refuse,
): SentConversation {
  const request = checkBody({ model, messages, system, tools }, countSchema);
  return anthropicConversation(request, { withThinking: () => undefined }, refuse);
}

const answerSchema = z.object({ content: z.array(assistantBlock) });

/** The message of an answer of another service, and the ids that it may come back with. */
export function anthropicAnswer(body: JsonFields): { message: Message; ids: readonly string[] } {
  const { content } = checkBody({ content: body.content }, answerSchema);
  return { message: answerOf(content, new Map()), ids: content.flatMap(idOf) };
}

function effortOf({ thinking, output_config: output }: ConversationRequest): ReasoningEffort | undefined {
  return thinking?.type === "disabled" ? undefined : (output?.effort ?? undefined);
}

function toolChoiceOf(choice: ConversationRequest["tool_choice"]): ToolChoice | undefined {
  switch (choice?.type) {
    case undefined:
      return undefined;
    case "any":
      return "required";
    case "tool":
      return { name: choice.name };
    case "auto":
    case "none":
      return choice.type;
    default:
      return choice satisfies never;
  }
}

/** Tool results become messages of their own; the calls they answer must exist. */
function messagesOf({ messages: all }: ConversationRequest, refuse: Refuse) {
  const called = new Map<string, string>();
  const ids = new Map<Message, readonly string[]>();
  const messages = all.flatMap((given, index): Message[] => {
    if (typeof given.content === "string") return [{ role: given.role, content: given.content }];
    if (given.role === "assistant") {
      const answer = answerOf(given.content, called);
      ids.set(answer, given.content.flatMap(idOf));
      return [answer];
    }
    const results = given.content.flatMap((block) => (block.type === "tool_result" ? [block] : []));
    const stray = results.find(({ tool_use_id: id }) => !called.has(id));
    if (stray !== undefined) {
      const param = `messages.${index}.content`;
      const id = JSON.stringify(stray.tool_use_id);
      refuse(invalidValue(param, `${param}: tool_use_id is ${id}, and no tool_use before it has that id.`));
    }
    const said = given.content.flatMap((block) => (block.type === "text" ? [block.text] : []));
    return [
      ...results.map(({ tool_use_id: id, content = "" }) => ({
        role: "tool",
        content,
        toolCallId: id,
        name: called.get(id),
      })),
      ...(said.length > 0 || results.length === 0 ? [{ role: "user", content: said.join("") }] : []),
    ];
  });
  return { messages, ids };
}

/** The id that a block was sent with, if any. */
function idOf(block: z.output<typeof assistantBlock>): readonly string[] {
  const id = block.type === "tool_use" ? block.id : block.type === "thinking" ? block.signature : undefined;
  return id ? [id] : [];
}

function answerOf(blocks: readonly z.output<typeof assistantBlock>[], called: Map<string, string>): Message {
  const texts = blocks.map((block) => (block.type === "text" ? block.text : ""));
  const thoughts = blocks.map((block) => (block.type === "thinking" ? block.thinking : ""));
  const toolCalls = blocks.flatMap((block) =>
    block.type === "tool_use"
      ? [{ id: block.id, name: block.name, arguments: JSON.stringify(block.input) }]
      : [],
  );
  for (const { id, name } of toolCalls) called.set(id, name);
  const [text, thinking] = [texts.join(""), thoughts.join("")];
  return {
    role: "assistant",
    content:
      thinking === ""
        ? text
        : [
            { type: "thinking", thinking },
            { type: "text", text },
          ],
    ...(toolCalls.length > 0 && { toolCalls }),
  };
}
