import { z } from "zod";
import type { ToolCall, ToolDeclaration } from "../../renderers/messages.js";
import { toolName } from "../param-error.js";

const functionTool = z.object({
  type: z.literal("function"),
  name: toolName,
  description: z.string().nullish(),
  parameters: z.record(z.string(), z.unknown()).nullish(),
});

const customTool = z.object({
  type: z.literal("custom"),
  name: toolName,
  description: z.string().nullish(),
});

const namespaceTool = z.object({
  type: z.literal("namespace"),
  name: toolName,
  description: z.string().nullish(),
  tools: z.array(z.discriminatedUnion("type", [functionTool, customTool])),
});

/** A tool that a client runs. */
export const toolSchema = z.discriminatedUnion("type", [functionTool, customTool, namespaceTool]);

type Tool = z.output<typeof toolSchema>;

/** The tool's name for the client. */
export interface ToolForm {
  readonly type: "function" | "custom";
  readonly name: string;
  readonly namespace: string | undefined;
}

/** A custom tool takes any text; the model calls it as a function with this one argument. */
const TEXT_ARGUMENT = {
  type: "object",
  properties: { input: { type: "string" } },
  required: ["input"],
  additionalProperties: false,
};

/** The tool's name for the model. */
export function modelName(name: string, namespace: string | null | undefined): string {
  if (!namespace) return name;
  return namespace.endsWith("_") || name.startsWith("_") ? `${namespace}${name}` : `${namespace}__${name}`;
}

/** Arguments of a call to a custom tool. */
export const customArguments = (input: string): string => JSON.stringify({ input });

/** The tools of a request: the model's functions, and for each how the client calls it. */
export class ClientTools {
  readonly declarations: readonly ToolDeclaration[];
  readonly #forms = new Map<string, ToolForm>();

  /** If two tools have the same name, the later one counts. */
  constructor(tools: readonly Tool[]) {
    const declared = new Map<string, ToolDeclaration>();
    const declare = (tool: Exclude<Tool, { type: "namespace" }>, namespace: string | undefined) => {
      const name = modelName(tool.name, namespace);
      this.#forms.set(name, { type: tool.type, name: tool.name, namespace });
      const parameters = tool.type === "custom" ? TEXT_ARGUMENT : tool.parameters;
      declared.set(name, {
        name,
        description: tool.description ?? "",
        parameters: parameters ?? { type: "object", properties: {} },
      });
    };
    for (const tool of tools) {
      if (tool.type === "namespace") for (const inner of tool.tools) declare(inner, tool.name);
      else declare(tool, undefined);
    }
    this.declarations = [...declared.values()];
  }

  /** The client's tool, by the name that the model uses. */
  formOf(name: string): ToolForm {
    return this.#forms.get(name) ?? { type: "function", name, namespace: undefined };
  }
}

/** The text that a model passes to a custom tool. */
export function customInput({ arguments: given }: Pick<ToolCall, "arguments">): string {
  const { input } = JSON.parse(given) as { input?: unknown };
  return typeof input === "string" ? input : given;
}
