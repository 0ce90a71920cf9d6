import { leftOutText } from "./chat-left-out.js";
import { isObject, type Refuse } from "./lenience.js";
import { type JsonFields, unsupported } from "./param-error.js";

/** Fields that would change the answer and are not supported. */
const LEFT_OUT = ["container", "mcp_servers"] as const;

/** Content blocks that models here can read, by role. */
const READ = new Map<unknown, readonly string[]>([
  ["assistant", ["text", "thinking", "tool_use"]],
  ["system", ["text"]],
  ["user", ["text", "tool_result"]],
]);

/** Removes from a request what models here cannot do. */
export function withoutAnthropicExtras(body: JsonFields, refuse: Refuse): JsonFields {
  for (const param of LEFT_OUT)
    if (isAsked(body[param])) refuse(unsupported(param, "is not supported by this server."));
  if (clearsSomething(body["context_management"]))
    refuse(
      unsupported("context_management", "is not supported by this server: all of a conversation is read."),
    );
  return {
    ...body,
    ...(Array.isArray(body.tools) && { tools: body.tools.filter(isCustom) }),
    ...(Array.isArray(body.messages) && { messages: body.messages.map(readable) }),
  };

  function isCustom(tool: unknown, index: number): boolean {
    if (!isObject(tool) || typeof tool.type !== "string" || tool.type === "custom") return true;
    const why = `must be custom, not ${tool.type}: this server runs no tools itself.`;
    refuse(unsupported(`tools.${index}.type`, why));
    return false;
  }

  function readable(message: unknown, index: number): unknown {
    if (!isObject(message) || !Array.isArray(message.content)) return message;
    const read = READ.get(message.role) ?? [];
    const content = message.content.flatMap((block: unknown, place) => {
      const param = `messages.${index}.content.${place}`;
      if (!isObject(block) || typeof block.type !== "string") return [block];
      if (block.type === "tool_result" && Array.isArray(block.content))
        return [
          { ...block, content: block.content.flatMap((part, at) => textOf(part, `${param}.content.${at}`)) },
        ];
      return read.includes(block.type) ? [block] : textOf(block, param);
    });
    return { ...message, content };
  }

  /** Replaces a block that models here cannot read: by the name of a found tool, by a note, or by nothing. */
  function textOf(block: unknown, param: string): readonly unknown[] {
    if (!isObject(block) || typeof block.type !== "string" || block.type === "text") return [block];
    if (block.type === "tool_reference")
      return [{ type: "text", text: `Tool: ${String(block["tool_name"])}` }];
    refuse(unsupported(param, `is of type ${block.type}: this server's models read text only.`));
    const isShown = block.type === "image" || block.type === "document";
    return isShown ? [{ type: "text", text: leftOutText(block.type) }] : [];
  }
}

function isAsked(value: unknown): boolean {
  return value !== undefined && value !== null && !(Array.isArray(value) && value.length === 0);
}

/** Whether the request really clears part of the conversation; agents also send the field to clear nothing. */
function clearsSomething(management: unknown): boolean {
  if (!isObject(management)) return isAsked(management);
  const { edits = [] } = management;
  return ![edits].flat().every((edit) => {
    if (!isObject(edit)) return false;
    const { type, keep } = edit;
    return /^clear_thinking/.test(String(type)) && keep === "all";
  });
}
