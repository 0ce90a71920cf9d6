import { leftOutText } from "../chat-left-out.js";
import { isObject, type Refuse } from "../lenience.js";
import { invalidValue, type JsonFields, unsupported } from "../param-error.js";

const TOOL_TYPES = ["function", "custom", "namespace"];
const TEXT_TYPES = ["input_text", "output_text", "text"];
const ITEM_TYPES = [
  "message",
  "function_call",
  "function_call_output",
  "custom_tool_call",
  "custom_tool_call_output",
  "reasoning",
  "item_reference",
  "additional_tools",
];

/** The tools of a request that models here can use: those that the client runs. */
export function clientTools(tools: unknown, param: string, refuse: Refuse): unknown {
  if (!Array.isArray(tools)) return tools;
  return tools.flatMap((tool: unknown, index) => {
    const place = `${param}.${index}`;
    if (!isObject(tool) || typeof tool.type !== "string") return [tool];
    if (!TOOL_TYPES.includes(tool.type)) {
      refuse(
        unsupported(`${place}.type`, `${tool.type} is not supported: this server runs no tools itself.`),
      );
      return [];
    }
    const { format } = tool;
    if (tool.type === "custom" && isObject(format) && format.type === "grammar")
      refuse(unsupported(`${place}.format`, "cannot be a grammar: what models write here is free text."));
    return [
      tool.type === "namespace"
        ? { ...tool, tools: clientTools(tool.tools, `${place}.tools`, refuse) }
        : tool,
    ];
  });
}

/** The items of a request that models here can read, each with its type. */
export function readableItems(items: readonly unknown[], refuse: Refuse): JsonFields[] {
  return items.flatMap((given, index) => {
    const param = `input.${index}`;
    if (!isObject(given)) throw invalidValue(param, `${param} must be an item.`);
    const item = { ...given, type: given.type ?? (given.role === undefined ? "item_reference" : "message") };
    // Tools that the client found: the model may call them from now on.
    if (item.type === "tool_search_output") item.type = "additional_tools";
    if (!ITEM_TYPES.includes(String(item.type))) {
      refuse(unsupported(`${param}.type`, `${String(item.type)} is not supported by this server.`));
      return [];
    }
    return [
      {
        ...item,
        ...(item.type === "additional_tools" && {
          tools: clientTools(given.tools, `${param}.tools`, refuse),
        }),
        ...(item.type === "message" && { content: texts(given.content, `${param}.content`) }),
        ...("output" in given && { output: texts(given["output"], `${param}.output`) }),
      },
    ];
  });

  function texts(content: unknown, param: string): unknown {
    if (!Array.isArray(content)) return content;
    return content.map((part: unknown, index) => {
      if (!isObject(part) || typeof part.type !== "string" || TEXT_TYPES.includes(part.type)) return part;
      if (part.type === "refusal") return { type: "output_text", text: String(part["refusal"]) };
      const why = `is of type ${part.type}: this server's models read text only.`;
      refuse(unsupported(`${param}.${index}`, why));
      return { type: "input_text", text: leftOutText(part.type) };
    });
  }
}
