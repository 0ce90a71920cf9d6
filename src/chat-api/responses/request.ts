import { z } from "zod";
import type { ResponseFormat, ToolChoice } from "../../renderers/prepare-answer.js";
import { REASONING_EFFORTS } from "../../renderers/thinking.js";
import type { SentConversation } from "../chat-model.js";
import type { Refuse } from "../lenience.js";
import { MAX_TOP_LOGPROBS } from "../openai-request.js";
import { type JsonFields, MAX_TOOLS, type ParamNames, unsupported } from "../param-error.js";
import { itemsSchema, readItems } from "./input.js";
import { ClientTools, modelName, toolSchema } from "./tools.js";

const chosenTool = z.object({
  type: z.enum(["function", "custom"]),
  name: z.string(),
  namespace: z.string().nullish(),
});

/** A request for a response, without its input. */
export const responseSchema = z.object({
  model: z.string().min(1),
  instructions: z.string().nullish(),
  previous_response_id: z.string().nullish(),
  store: z.boolean().nullish(),
  stream: z.boolean().nullish(),
  max_output_tokens: z.number().int().positive().nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  top_logprobs: z.number().int().min(0).max(MAX_TOP_LOGPROBS).nullish(),
  include: z.array(z.string()).nullish(),
  metadata: z.record(z.string(), z.string()).nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  tools: z.array(toolSchema).max(MAX_TOOLS).nullish(),
  tool_choice: z
    .union([
      z.enum(["none", "auto", "required"]),
      chosenTool,
      z.object({
        type: z.literal("allowed_tools"),
        mode: z.enum(["auto", "required"]),
        tools: z.array(chosenTool),
      }),
    ])
    .nullish(),
  reasoning: z
    .object({ effort: z.enum(REASONING_EFFORTS).nullish(), summary: z.string().nullish() })
    .nullish(),
  text: z
    .object({
      format: z
        .discriminatedUnion("type", [
          z.object({ type: z.literal("text") }),
          z.object({ type: z.literal("json_object") }),
          z.object({ type: z.literal("json_schema"), schema: z.record(z.string(), z.unknown()) }),
        ])
        .nullish(),
    })
    .nullish(),
});

/** A request for a response, after parsing. */
export type ResponseRequest = z.output<typeof responseSchema>;

/** The items of a request. */
export const inputSchema = z.object({ input: itemsSchema });

/** The Responses API's names for the fields of a conversation. */
export const RESPONSE_PARAM_NAMES: ParamNames = {
  messages: "input",
  tools: "tools",
  toolChoice: "tool_choice",
  thinking: "reasoning.effort",
  responseFormat: "text.format",
};

/** Values without effect, of fields that would otherwise change the answer and are not supported. */
const NEUTRAL: Readonly<Record<string, (value: unknown) => boolean>> = {
  background: (value) => value === false,
  truncation: (value) => value === "disabled",
  context_management: (value) => Array.isArray(value) && value.length === 0,
};

/** Refuses what this server does not support. A conversation or a prompt that does not exist here cannot be ignored. */
export function refuseExtras(body: JsonFields, refuse: Refuse): void {
  for (const param of ["conversation", "prompt"])
    if (body[param] !== undefined && body[param] !== null)
      throw unsupported(param, "is not supported by this server: send the conversation as input.");
  for (const [param, isNeutral] of Object.entries(NEUTRAL)) {
    const value = body[param];
    if (value !== undefined && value !== null && !isNeutral(value))
      refuse(unsupported(param, "is not supported by this server."));
  }
  const { verbosity } = (body["text"] ?? {}) as { readonly verbosity?: unknown };
  if (verbosity !== undefined && verbosity !== null && verbosity !== "medium")
    refuse(unsupported("text.verbosity", "is not supported by this server."));
}

/** The body without a choice of a tool that this server does not run. */
export function withKnownChoice(body: JsonFields, refuse: Refuse): JsonFields {
  const { type } = (body["tool_choice"] ?? {}) as { readonly type?: unknown };
  if (type === undefined || ["function", "custom", "allowed_tools"].includes(String(type))) return body;
  refuse(
    unsupported("tool_choice", `of type ${String(type)} is not supported: this server runs no tools itself.`),
  );
  return { ...body, tool_choice: undefined };
}

/** Fields that a response repeats from its request. */
export function echoedFields(given: JsonFields, request: ResponseRequest, createdAt: number): JsonFields {
  return {
    created_at: createdAt,
    background: false,
    instructions: request.instructions ?? null,
    max_output_tokens: request.max_output_tokens ?? null,
    metadata: request.metadata ?? {},
    model: request.model,
    parallel_tool_calls: request.parallel_tool_calls ?? true,
    previous_response_id: request.previous_response_id ?? null,
    reasoning: {
      effort: request.reasoning?.effort ?? null,
      summary: request.reasoning?.summary ?? null,
    },
    store: request.store ?? true,
    temperature: request.temperature ?? 1,
    text: given["text"] ?? { format: { type: "text" } },
    tool_choice: given["tool_choice"] ?? "auto",
    tools: given.tools ?? [],
    top_logprobs: request.top_logprobs ?? 0,
    top_p: request.top_p ?? 1,
    truncation: "disabled",
    user: null,
  };
}

/** The conversation and tools of a request. */
export function responseConversation(
  request: ResponseRequest,
  items: z.output<typeof itemsSchema>,
  refuse: Refuse,
): { readonly conversation: SentConversation; readonly tools: ClientTools } {
  const { instructions, text } = request;
  const instructed = instructions
    ? [{ type: "message", id: undefined, role: "system", content: instructions } as const, ...items]
    : items;
  const { messages, ids, tools: found } = readItems(instructed, refuse);
  const tools = new ClientTools([...(request.tools ?? []), ...found]);
  const { allowed, toolChoice } = choiceOf(request.tool_choice);
  const declared = allowed
    ? tools.declarations.filter(({ name }) => allowed.includes(name))
    : tools.declarations;
  return {
    tools,
    conversation: {
      messages,
      ids,
      tools: declared.length > 0 ? declared : undefined,
      toolChoice,
      maxToolCalls: request.parallel_tool_calls === false ? 1 : undefined,
      thinking: request.reasoning?.effort ?? undefined,
      responseFormat: formatOf(text?.format),
    },
  };
}

function choiceOf(choice: ResponseRequest["tool_choice"]): {
  readonly allowed?: readonly string[];
  readonly toolChoice: ToolChoice | undefined;
} {
  if (typeof choice !== "object" || choice === null) return { toolChoice: choice ?? undefined };
  if (choice.type !== "allowed_tools")
    return { toolChoice: { name: modelName(choice.name, choice.namespace) } };
  const allowed = choice.tools.map(({ name, namespace }) => modelName(name, namespace));
  return { allowed, toolChoice: choice.mode };
}

function formatOf(format: NonNullable<ResponseRequest["text"]>["format"]): ResponseFormat | undefined {
  return !format || format.type === "text" ? undefined : format;
}
