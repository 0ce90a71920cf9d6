import { z } from "zod";
import type { ContentPart, Message, ToolDeclaration } from "../../../renderers/messages.js";
import { REASONING_EFFORTS } from "../../../renderers/reasoning-effort.js";
import { EngineInputError, type JsonConstraint } from "../../engine/engine.js";
import { checkJsonConstraint } from "../../engine/sampling/json/json-sampling.js";
import { invalidValue, unsupported } from "./openai-errors.js";
import { MAX_TOP_LOGPROBS, samplingFields } from "./openai-request.js";

const MAX_TOOLS = 128;

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
    name: z.string().regex(/^[\w.-]{1,64}$/, "must be letters, digits, '_', '-' and '.', at most 64"),
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

/** The conversation in the words of renderers. */
export function readMessages(request: ChatRequest): readonly Message[] {
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

/** The functions that the model may call, and which of them it must. */
export interface ToolWish {
  readonly tools: readonly ToolDeclaration[];
  /** A call is wanted, whatever else there is to say. */
  readonly isForced: boolean;
  /** The function that must be called, where only one can be. */
  readonly forcedName: string | undefined;
}

/** Declared functions; none where none may be called. */
export function readTools({ tools, tool_choice: choice }: ChatRequest): ToolWish {
  const declared = (tools ?? []).map(
    ({ function: { name, description, parameters } }): ToolDeclaration => ({
      name,
      description: description ?? "",
      parameters: parameters ?? { type: "object", properties: {} },
    }),
  );
  if (choice === "none") return { tools: [], isForced: false, forcedName: undefined };
  const isForced = choice !== undefined && choice !== null && choice !== "auto";
  if (isForced && declared.length === 0)
    throw invalidValue("tool_choice", "tool_choice asks for a call, and no tools are given.");
  const named = typeof choice === "object" ? choice?.function.name : undefined;
  if (named !== undefined && !declared.some(({ name }) => name === named))
    throw invalidValue("tool_choice", `tool_choice names ${named}, which is not among tools.`);
  const only = declared.length === 1 ? declared[0]!.name : undefined;
  return { tools: declared, isForced, forcedName: isForced ? (named ?? only) : undefined };
}

/** What answers are held to; undefined where they are plain text. */
export function readConstraint({ response_format: format, tools }: ChatRequest): JsonConstraint | undefined {
  if (!format || format.type === "text") return undefined;
  if (tools?.length) throw unsupported("response_format", "must be of type text together with tools.");
  const constraint: JsonConstraint =
    format.type === "json_object" ? format : { type: "json_schema", schema: format.json_schema.schema };
  try {
    checkJsonConstraint(constraint);
    return constraint;
  } catch (error) {
    if (!(error instanceof EngineInputError)) throw error;
    throw invalidValue("response_format", `response_format: ${error.message}`);
  }
}
