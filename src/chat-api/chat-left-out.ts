import { isObject, type Refuse } from "./lenience.js";
import { type JsonFields, unsupported } from "./param-error.js";

const TEXT_ONLY = "this server's models read text only.";

/** Replaces an image or a file that the model cannot read. */
export const leftOutText = (type: string): string =>
  `[${type.replace(/^input_/, "")}: not shown to this model]`;

/** Removes tools and content parts that models here do not have from a chat request. */
export function withoutChatExtras(body: JsonFields, refuse: Refuse): JsonFields {
  return {
    ...body,
    ...(Array.isArray(body.tools) && { tools: body.tools.filter(isFunction) }),
    ...(Array.isArray(body.messages) && { messages: body.messages.map(readable) }),
  };

  function isFunction(tool: unknown, index: number): boolean {
    if (!isObject(tool) || typeof tool.type !== "string" || tool.type === "function") return true;
    refuse(unsupported(`tools.${index}.type`, `${tool.type} is not supported here: only functions are.`));
    return false;
  }

  function readable(message: unknown, index: number): unknown {
    if (!isObject(message) || !Array.isArray(message.content)) return message;
    const content = message.content.map((part: unknown, place) => {
      if (!isObject(part) || typeof part.type !== "string" || part.type === "text") return part;
      if (part.type === "refusal") return { type: "text", text: String(part["refusal"]) };
      refuse(unsupported(`messages.${index}.content.${place}`, `is of type ${part.type}: ${TEXT_ONLY}`));
      return { type: "text", text: leftOutText(part.type) };
    });
    return { ...message, content };
  }
}
