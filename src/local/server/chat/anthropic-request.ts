import { z } from "zod";
import type { ChatRequest } from "./chat-request.js";
import { invalidValue, unsupported } from "./openai-errors.js";

const MAX_TOOLS = 128;
const MAX_STOP_SEQUENCES = 16;
const EFFORTS = ["low", "medium", "high", "xhigh", "max"] as const;

/** Of a request, what would change the answer and is not done here. */
const LEFT_OUT = ["container", "context_management", "mcp_servers"] as const;

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
    z.object({ type: z.literal("thinking"), thinking: z.string() }),
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
]);

const tool = z.object({
  type: z.literal("custom", { error: "must be custom: this server runs no tools itself" }).nullish(),
  name: z.string().regex(/^[\w.-]{1,64}$/, "must be letters, digits, '_', '-' and '.', at most 64"),
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

/** What both requests say of the conversation. */
export type ConversationRequest = z.output<typeof countSchema>;
/** A request for a message, as it was read. */
export type MessagesRequest = z.output<typeof messagesSchema>;

/** Whether a model is asked to think; one that is to decide for itself does as it always does. */
const THINKING = { enabled: true, disabled: false, adaptive: undefined } as const;

/** Refuses by name what is not done, rather than leaving it out in silence. */
export function refuseLeftOut(body: Readonly<Record<string, unknown>>): void {
  for (const param of LEFT_OUT) {
    const value = body[param];
    const isEmpty = value === undefined || value === null || (Array.isArray(value) && value.length === 0);
    if (!isEmpty) throw unsupported(param, "is not supported by this server.");
  }
}

/** The same request in the words that chats are prepared from. */
export function toChatRequest(request: ConversationRequest & Partial<MessagesRequest>): ChatRequest {
  const { model, system, tools, tool_choice: choice, thinking, output_config: output } = request;
  if (request.messages.at(-1)?.role === "assistant")
    throw unsupported(
      "messages",
      "must end with a user's: an answer that is begun cannot be continued here.",
    );
  const effort = thinking?.type === "disabled" ? undefined : (output?.effort ?? undefined);
  const asksToThink = effort === undefined ? THINKING[thinking?.type ?? "adaptive"] : undefined;
  const isSingle = choice && "disable_parallel_tool_use" in choice && choice.disable_parallel_tool_use;
  return {
    model,
    messages: [...(system ? [{ role: "system" as const, content: system }] : []), ...conversationOf(request)],
    max_tokens: request.max_tokens,
    temperature: request.temperature,
    top_p: request.top_p,
    top_k: request.top_k || undefined,
    stop: request.stop_sequences,
    tools: tools?.map(({ name, description, input_schema: parameters }) => ({
      type: "function",
      function: { name, description, parameters },
    })),
    tool_choice: toolChoiceOf(choice),
    parallel_tool_calls: isSingle ? false : undefined,
    reasoning_effort: effort,
    response_format: output?.format
      ? { type: "json_schema", json_schema: { schema: output.format.schema } }
      : undefined,
    chat_template_kwargs: asksToThink === undefined ? undefined : { enable_thinking: asksToThink },
  };
}

function toolChoiceOf(choice: ConversationRequest["tool_choice"]): ChatRequest["tool_choice"] {
  switch (choice?.type) {
    case undefined:
      return undefined;
    case "any":
      return "required";
    case "tool":
      return { type: "function", function: { name: choice.name } };
    case "auto":
    case "none":
      return choice.type;
    default:
      return choice satisfies never;
  }
}

/** Results of tools are messages of their own; the calls they answer must have been made. */
function conversationOf({ messages }: ConversationRequest): ChatRequest["messages"] {
  const called = new Set<string>();
  return messages.flatMap((given, index): ChatRequest["messages"] => {
    if (typeof given.content === "string") return [{ role: given.role, content: given.content }];
    if (given.role === "assistant") {
      const calls = given.content.flatMap((block) => (block.type === "tool_use" ? [block] : []));
      for (const { id } of calls) called.add(id);
      return [
        {
          role: "assistant",
          content: joined(given.content.map((block) => (block.type === "text" ? block.text : ""))),
          reasoning_content: joined(
            given.content.map((block) => (block.type === "thinking" ? block.thinking : "")),
          ),
          tool_calls: calls.map(({ id, name, input }) => ({
            id,
            function: { name, arguments: JSON.stringify(input) },
          })),
        },
      ];
    }
    const results = given.content.flatMap((block) => (block.type === "tool_result" ? [block] : []));
    const stray = results.find(({ tool_use_id: id }) => !called.has(id));
    if (stray !== undefined) {
      const param = `messages.${index}.content`;
      const id = JSON.stringify(stray.tool_use_id);
      throw invalidValue(param, `${param}: tool_use_id is ${id}, and no tool_use before it has that id.`);
    }
    const said = given.content.flatMap((block) => (block.type === "text" ? [block.text] : []));
    return [
      ...results.map(({ tool_use_id: id, content }) => ({
        role: "tool" as const,
        content: content ?? "",
        tool_call_id: id,
      })),
      ...(said.length > 0 || results.length === 0 ? [{ role: "user" as const, content: joined(said) }] : []),
    ];
  });
}

function joined(texts: readonly string[]): string {
  return texts.join("");
}
